"""A driver's address that is none for an IPv4 socket: the job's metrics never cost its query."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.jobs.submitted import SubmittedJob
from tests.reading import build_segments
from tests.tier.topics import topic_options
from tiered_stream.delta.settings.ingest_settings import CHECKPOINT, TABLE

pytestmark = pytest.mark.starts_spark


def test_the_job_runs_where_spark_is_told_of_an_ipv6_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "::1")
    count = build_segments(tmp_path / "bucket", "orders", [20])
    places = {TABLE: f"{tmp_path}/table", CHECKPOINT: f"{tmp_path}/checkpoint"}
    job = SubmittedJob("ingest_to_delta.py", tmp_path / "job", topic_options(tmp_path / "bucket", "orders", places))
    with job:
        assert job.wait(600) == 0, job.output()
    assert len(DeltaTable(f"{tmp_path}/table").to_pyarrow_table(columns=["offset"])) == count
