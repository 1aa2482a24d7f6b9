"""A stream that outlives its tickets: the driver and the workers get new ones, and no row is lost or repeated."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.delta.archive import offsets_of, rows_of
from tests.jobs.submitted import SubmittedJob
from tests.kerberos.kdc import REALM
from tests.kerberos.realm import ROWS, TOPIC, Realm
from tests.reading import options
from tests.stack.processes import wait_until
from tests.stack.produce import RawProducer
from tests.stack.rows import Record

pytestmark = [pytest.mark.stack, pytest.mark.slow]

LIFE_SECONDS = 60
"""Lifetime of a ticket. The Kerberos library gets another one after half of it."""


def test_a_stream_outlives_its_tickets(here: Realm, tmp_path: Path) -> None:
    table, tickets = tmp_path / "table", f"krbtgt/{REALM}"
    short = here.kdc.add("short", f"{LIFE_SECONDS} seconds")
    login = {f"kafka.{name}": each for name, each in here.login("SHORT", here.by_keytab("short", short)).items()}
    own = {"ingest.table": str(table), "ingest.checkpointLocation": str(tmp_path / "checkpoint")}
    given = options(here.stack, TOPIC, {**login, **own, "ingest.trigger": "1 second", "remote.log.locator": "none"})
    job = SubmittedJob("ingest_to_delta.py", tmp_path / "job", given)
    job.start()
    rows = ROWS
    try:
        wait_until(lambda: not job.running or rows_of(table) == rows, "the first rows")
        issued, begin = here.kdc.issued("short", tickets), time.monotonic()
        with RawProducer(here.stack.broker) as producer:
            while here.kdc.issued("short", tickets) < issued + 4 or time.monotonic() < begin + 2.5 * LIFE_SECONDS:
                producer.send(TOPIC, [Record(value=b"v")] * 3)
                rows += 3
                wait_until(lambda: not job.running or rows_of(table) == rows, "the rows")  # noqa: B023 - asked at once
                assert job.running, job.output()
    finally:
        job.kill()
    assert offsets_of(table) == list(range(rows))
