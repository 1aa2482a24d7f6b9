"""SIGTERM and Ctrl-C let a job's micro-batch finish, and the job prints its sum."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tests.delta.archive import LONG, options, rows_of
from tests.jobs.submitted import SubmittedJob
from tests.rigs.stack.processes import wait_until

pytestmark = [pytest.mark.starts_spark, pytest.mark.slow]


@pytest.mark.parametrize(("number", "to_all"), [(signal.SIGTERM, False), (signal.SIGINT, True)])
def test_a_job_of_spark_submit_finishes_its_micro_batch_and_prints_its_sum(
    tmp_path: Path, number: signal.Signals, to_all: bool
) -> None:
    places = {"ingest.table": f"{tmp_path}/table", "ingest.checkpointLocation": f"{tmp_path}/checkpoint"}
    endless = {"maxOffsetsPerTrigger": "100", "ingest.trigger": "0 seconds"}
    with SubmittedJob("ingest_to_delta.py", tmp_path / "job", options(LONG, {**places, **endless})) as job:
        wait_until(lambda: "batch 1: " in job.output() or not job.running, "two micro-batches", pause=0.05)
        assert job.running, job.output()
        job.send(number, to_all=to_all)
        status = job.wait()
    said = job.output()
    assert status == 128 + number, said
    assert ": stopped after its micro-batch; the next run goes on" in said, said
    # Tasks of the next micro-batch may have read rows already, which its stop has kept out of the table.
    (landed,) = re.findall(r": in all (?:[\d,]+ rows read, )?([\d,]+) rows", said)
    assert int(landed.replace(",", "")) == rows_of(tmp_path / "table")
    assert "Traceback" not in said
