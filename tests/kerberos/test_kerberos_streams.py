"""A stream that outlives its tickets: the driver and the workers get new ones, and no row is lost or repeated."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.delta.archive import offsets_of, rows_of
from tests.jobs.submitted import SubmittedJob
from tests.kerberos.kdc import REALM
from tests.kerberos.realm import Realm
from tests.reading import options, tier_segments
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.produce import RawProducer
from tests.rigs.stack.rows import Record

pytestmark = [pytest.mark.starts_spark, pytest.mark.slow]

LIFE_SECONDS = 60
"""Lifetime of a ticket. The Kerberos library gets another one after half of it."""


def test_a_stream_outlives_its_tickets(here: Realm, topic: str, tmp_path: Path) -> None:
    rows = tier_segments(here.stack, topic, [40, 50])
    table, tickets = tmp_path / "table", f"krbtgt/{REALM}"
    short = here.kdc.add("streamed", f"{LIFE_SECONDS} seconds")
    login = {f"kafka.{name}": each for name, each in here.login("GSSSHORT", here.by_keytab("streamed", short)).items()}
    own = {"ingest.table": str(table), "ingest.checkpointLocation": str(tmp_path / "checkpoint")}
    given = options(here.stack, topic, {**login, **own, "ingest.trigger": "1 second", "remote.log.locator": "none"})
    with SubmittedJob("ingest_to_delta.py", tmp_path / "job", given) as job:
        wait_until(lambda: not job.running or rows_of(table) == rows, "the first rows")
        issued, begin = here.kdc.issued("streamed", tickets), time.monotonic()
        with RawProducer(here.stack.broker) as producer:
            while here.kdc.issued("streamed", tickets) < issued + 4 or time.monotonic() < begin + 2.5 * LIFE_SECONDS:
                producer.send(topic, [Record(value=b"v")] * 3)
                rows += 3
                wait_until(lambda: not job.running or rows_of(table) == rows, "the rows")  # noqa: B023 - asked at once
                assert job.running, job.output()
    assert offsets_of(table) == list(range(rows))
