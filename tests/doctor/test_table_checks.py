"""What the doctor says of a session's connector, and of a table's columns, without starting Spark."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import cast
from uuid import UUID

import orjson
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.inspection.test_query_checkpoint import write_checkpoint
from tests.rigs.stack.rows import Record
from tests.tier.topics import topic_options, write_topic
from tiered_stream.delta.catalog.session_checks import GCS_CONNECTOR, GS_SETTINGS
from tiered_stream.delta.commit.deltalake_commit import create_table
from tiered_stream.delta.requirements.lane import table_schema
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.doctor.environment import Job
from tiered_stream.doctor.finding import Examination, Finding, Known, NotNeededError, Status
from tiered_stream.doctor.spark_conf import SparkConf
from tiered_stream.doctor.table_checks import (
    Checkpoint,
    _check_connector,
    _check_positions,
    _check_table_fits,
    _reach_table,
    _read_checkpoint,
    _written,
    check_landed,
)
from tiered_stream.errors import DataLossError
from tiered_stream.locate.log_source import LogSource, open_log_source
from tiered_stream.model import TopicPartition
from tiered_stream.options.offset_json import LastOffsets, Notes, StreamOffsets
from tiered_stream.options.parsing import parse_options

READ = {"kafka.bootstrap.servers": "a:1", "subscribe": "x"}


def found(names: Iterable[str]) -> Finding:
    settings = {f"spark.hadoop.{name}": GS_SETTINGS[name] for name in names}
    spark = SparkConf({"spark.jars.packages": GCS_CONNECTOR, **settings}, None)
    examination = Examination(lambda _: None)
    examination.check("connector", lambda _: _check_connector("gcs-connector", GCS_CONNECTOR, spark), Known("job", 1))
    return examination.findings[0]


def test_googles_connector_is_right_with_all_its_settings() -> None:
    assert found(GS_SETTINGS).status is Status.OK


@pytest.mark.parametrize("missing", GS_SETTINGS)
def test_each_setting_that_hadoop_has_for_its_own_connector_is_asked_for(missing: str) -> None:
    warning = found(set(GS_SETTINGS) - {missing})
    assert warning.status is Status.WARNING
    assert missing in warning.fix


@pytest.mark.parametrize(("headers", "ends"), [("true", "the direct lane"), ("false", "NULL in headers")])
def test_a_table_is_compared_with_the_columns_of_the_job_and_its_day(tmp_path: Path, headers: str, ends: str) -> None:
    files = TableSpec((tmp_path / "orders").as_uri(), day_column="day")
    create_table(files, table_schema(include_headers=True, day_column="day"), {})
    job = Job(parse_options({**READ, "includeHeaders": headers}, streaming=True), {}, ())
    found = _check_table_fits(job, files).description
    assert found.startswith("version 0, its columns fit; the direct lane")
    assert found.endswith(ends)


def test_the_jobs_own_table_settings_reach_the_checks_of_its_table(tmp_path: Path) -> None:
    table = tmp_path / "orders"
    DeltaTable.create(str(table), pa.schema([("id", pa.int64())]))
    own = {"ingest.value.format": "json", "ingest.value.schema": "id BIGINT", "ingest.mode": "upsert",
           "ingest.keys": "id"}  # fmt: skip
    job = Job(parse_options(READ, streaming=True), {**READ, **own}, ())
    files = _reach_table(job, str(table), SparkConf({}, None)).value
    assert "decoded columns" in _check_table_fits(job, files).description
    with pytest.raises(NotNeededError, match="latest state"):
        check_landed(job, files, Checkpoint({}, None), {}, cast(LogSource, None))


@pytest.mark.parametrize(("commit", "status"), [("deltalake", Status.FAILED), ("auto", Status.WARNING)])
def test_a_store_without_conditional_puts_is_a_fault_where_deltalake_commits(commit: str, status: Status) -> None:
    job = Job(parse_options(READ, streaming=True), {"ingest.commit": commit}, ())
    examination = Examination(lambda _: None)
    examination.check("writing", lambda: _written(job, conditional=False, condition="If-None-Match"))
    (finding,) = examination.findings
    assert (finding.status, "ingest.commit=spark" in finding.fix) == (status, True)
    assert "If-None-Match is not honoured" in finding.found


@pytest.mark.parametrize("known", [True, False])
def test_a_topic_that_was_created_again_is_found_although_it_is_long_enough(tmp_path: Path, known: bool) -> None:
    write_topic(tmp_path / "bucket", "orders", [[Record(b"k", b"v")] * 9])
    options = parse_options(topic_options(tmp_path / "bucket", "orders"), streaming=True)
    partition = TopicPartition("orders", 0)
    ids = {"orders": UUID(int=9)} if known else {}
    ends = LastOffsets().to_dict(StreamOffsets({partition: 5}, Notes(start={partition: 0}, topic_ids=ids)))
    checkpoint = write_checkpoint(tmp_path / "c", 0, orjson.dumps(ends).decode())
    job = Job(options, {}, ())
    continued = _read_checkpoint(job, str(checkpoint), SparkConf({}, None)).value
    with closing(open_log_source(options)) as source:
        if known:
            with pytest.raises(DataLossError, match="orders was deleted and made again"):
                _check_positions(job, continued, source)
        else:
            assert "4 offsets are to be read" in _check_positions(job, continued, source).description
