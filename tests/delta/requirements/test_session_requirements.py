"""The list of what the session may ask of a writer: each entry; and what would change values in the Spark lane."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import orjson
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from tests.delta.archive import ODD, everything, landed, options
from tests.rigs.stack.spark import ROOT, configured
from tiered_stream import land
from tiered_stream.delta.landing.spark_lane import check_spark_sink
from tiered_stream.delta.redrive.redrive_run import DeadLetterFilter, redrive
from tiered_stream.delta.requirements.lane import TableDescription
from tiered_stream.delta.requirements.session_requirements import (
    CODEC,
    OUTPUT_TIMESTAMPS,
    SESSION_TRANSACTION,
    STORE_ASSIGNMENT,
)
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.errors import ConfigurationError

WITHOUT_EFFECT = {
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.execution.pyspark.udf.idleTimeoutSeconds": "60",
    "spark.sql.execution.pyspark.udf.killOnIdleTimeout": "true",
    OUTPUT_TIMESTAMPS: "TIMESTAMP_MILLIS",
    STORE_ASSIGNMENT: "LEGACY",
    SESSION_TRANSACTION[0]: "somebody's",
    SESSION_TRANSACTION[1]: "1",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.charAsVarchar": "true",
    "spark.sql.legacy.charVarcharAsString": "true",
    "spark.sql.readSideCharPadding": "false",
    "spark.databricks.delta.schema.autoMerge.enabled": "true",
    "spark.databricks.delta.optimizeWrite.enabled": "true",
    "spark.sql.files.maxRecordsPerFile": "1",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.parquet.writeLegacyFormat": "true",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.databricks.delta.commitInfo.userMetadata": "somebody's",
    "spark.databricks.delta.stats.collect": "false",
}
OF_THE_APPLICATION = {"spark.python.worker.idleTimeoutSeconds", "spark.python.worker.killOnIdleTimeout"}
"""No session can set these; `spark.sql.execution.pyspark.udf.*` are theirs, too."""
TOPIC = ODD.partition(",")[0]


def test_each_setting_that_is_said_to_have_no_effect_is_tried() -> None:
    page = (Path(ROOT) / "docs/guides/table-requirements.md").read_text()
    rows = re.findall(r"^\| (`spark\.[^|]+) \| It asks nothing", page, re.MULTILINE)
    names = {name for row in rows for name in re.findall("`(.+?)`", row)}
    assert names == WITHOUT_EFFECT.keys() | OF_THE_APPLICATION


@pytest.mark.slow
def test_settings_that_are_said_to_have_no_effect_change_no_row_and_no_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    def run(name: str) -> DeltaTable:
        query = land(
            spark, options=options(TOPIC, {"ingest.commit": "spark"}), table=f"{tmp_path}/{name}",
            checkpoint=f"{tmp_path}/{name} checkpoint", lane="direct",
        )  # fmt: skip
        query.awaitTermination()
        return DeltaTable(tmp_path / name)

    plain = run("plain")
    with configured(spark, WITHOUT_EFFECT):
        table = run("table")
    assert landed(tmp_path / "table").equals(everything(TOPIC))
    assert table.schema().to_json() == plain.schema().to_json()
    assert (table.protocol(), len(table.file_uris())) == (plain.protocol(), len(plain.file_uris()))
    assert TOPIC in orjson.loads(table.history(1)[0]["userMetadata"])["endOffsets"]


WRITTEN = StructType([StructField("at", TimestampType()), StructField("n", LongType())])


def described(number: str = "long", time: str = "timestamp") -> TableDescription:
    kinds = {"at": time, "n": number}
    fields = ({"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items())
    return TableDescription(tuple(fields))


def checked(found: TableDescription, *, typed: bool = True, **given: str) -> None:
    names = {"stored": STORE_ASSIGNMENT, "times": OUTPUT_TIMESTAMPS}
    settings = {names[name]: value for name, value in given.items()}
    check_spark_sink(settings.get, TableSpec("", name="lake", columns=WRITTEN), found, typed=typed)


def test_what_would_change_values_in_the_spark_lane_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"outputTimestampType is TIMESTAMP_MILLIS"):
        checked(described(), times="timestamp_millis")
    with pytest.raises(ConfigurationError, match=r" n as integer.* spark\.sql\.storeAssignmentPolicy is LEGACY"):
        checked(described("integer"), stored="Legacy")
    with pytest.raises(ConfigurationError, match="lake .* at as TIMESTAMP_NTZ.* TIMESTAMP in"):
        checked(described(time="timestamp_ntz"))


def test_what_changes_no_value_is_left_to_spark() -> None:
    checked(described("integer"))
    checked(described("integer"), stored="ANSI")
    checked(described(), stored="LEGACY", times="TIMESTAMP_MICROS")
    checked(described(), typed=False, times="TIMESTAMP_MILLIS")
    text = StructType([StructField("s", StringType())])
    settings = {OUTPUT_TIMESTAMPS: "TIMESTAMP_MILLIS"}
    check_spark_sink(settings.get, TableSpec("", name="lake", columns=text), described(), typed=True)


@pytest.mark.slow
def test_the_spark_lane_makes_no_local_time_of_an_instant(spark: SparkSession, tmp_path: Path) -> None:
    columns = (
        "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP_NTZ, "
        "timestampType INT"
    )
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/local` ({columns}) USING delta")
    given = options(TOPIC, {"includeHeaders": "false"})
    with pytest.raises(ConfigurationError, match=" timestamp as TIMESTAMP_NTZ.* TIMESTAMP in"):
        land(spark, options=given, table=f"{tmp_path}/local", checkpoint=f"{tmp_path}/checkpoint", lane="spark")
    with configured(spark, {"spark.sql.timestampType": "TIMESTAMP_NTZ", "spark.sql.session.timeZone": "Asia/Tokyo"}):
        query = land(
            spark, options=options(TOPIC), table=f"{tmp_path}/table", checkpoint=f"{tmp_path}/other", lane="spark"
        )
        query.awaitTermination()
    assert landed(tmp_path / "table").equals(everything(TOPIC))


def test_a_redrive_refuses_the_sessions_transaction(spark: SparkSession) -> None:
    given = dict(zip(SESSION_TRANSACTION, ("app", "1"), strict=True))
    with configured(spark, given), pytest.raises(ConfigurationError, match=r"delta\.write\.txnAppId "):
        redrive(spark, {}, "lake", DeadLetterFilter())


def written_codecs(spark: SparkSession, table: Path, lane: str, given: dict[str, str] | None = None) -> set[str]:
    """Land a topic, and return the compressions of the columns of its files."""
    query = land(spark, options=options(TOPIC, given), table=str(table), checkpoint=f"{table} checkpoint", lane=lane)
    query.awaitTermination()
    files = [pq.ParquetFile(unquote(file)).metadata for file in DeltaTable(table).file_uris()]
    groups = [file.row_group(0) for file in files]
    return {group.column(number).compression for group in groups for number in range(group.num_columns)}


@pytest.mark.parametrize("lane", ["direct", "spark"])
def test_files_have_the_compression_that_the_session_names(spark: SparkSession, tmp_path: Path, lane: str) -> None:
    with configured(spark, {CODEC: "GZIP"}):
        assert written_codecs(spark, tmp_path / "session", lane) - {"UNCOMPRESSED"} == {"GZIP"}
        assert written_codecs(spark, tmp_path / "own", lane, {"ingest.compression": "zstd"}) - {"UNCOMPRESSED"} == {
            "ZSTD"
        }
    assert written_codecs(spark, tmp_path / "default", lane) - {"UNCOMPRESSED"} == {"SNAPPY"}


def test_a_compression_that_only_spark_writes_takes_the_spark_lane(spark: SparkSession, tmp_path: Path) -> None:
    with configured(spark, {CODEC: "lz4_raw"}):
        with pytest.raises(ConfigurationError, match=f"{CODEC}"):
            written_codecs(spark, tmp_path / "direct", "direct")
        assert written_codecs(spark, tmp_path / "auto", "auto") - {"UNCOMPRESSED"} == {"LZ4"}
