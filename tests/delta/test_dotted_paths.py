"""Tables, checkpoints and dead letters whose paths have `.` and `..`: every reader finds them where Spark does."""

from __future__ import annotations

from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import tiered_stream
from tests.cli.running import run
from tests.delta import committing
from tests.delta.archive import LONG, ODD, everything, in_order, landed, options
from tests.delta.clouds import in_s3
from tests.rigs.stack.rows import Record
from tests.rigs.stack.s3_client import s3a_settings
from tests.rigs.stack.spark import configured
from tests.rigs.stack.versitygw import VersityGateway
from tests.tier.topics import topic_options, write_topic
from tiered_stream import land
from tiered_stream.delta.checkpoint.query_run import QueryRun
from tiered_stream.delta.landing.land import plan_query
from tiered_stream.errors import ConfigurationError

pytestmark = pytest.mark.slow

LANES = pytest.mark.parametrize("lane", ["direct", "spark"])


@LANES
def test_a_table_and_its_checkpoint_are_found_where_the_dots_lead(
    spark: SparkSession, tmp_path: Path, lane: str
) -> None:
    """No folder `x` is there, as a library that asks the file system would need."""
    table, checkpoint = f"file://{tmp_path}/x/.././table", f"{tmp_path}/x/../checkpoint"
    given = options(LONG, {"maxOffsetsPerTrigger": "9000"})
    for each in (table, f"{tmp_path}/./y/../table"):
        land(spark, options=given, table=each, checkpoint=checkpoint, lane=lane).awaitTermination()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["checkpoint", "table"]
    assert landed(tmp_path / "table").equals(everything(LONG))
    assert tiered_stream.verify(spark, options=given, table=table).equal
    said = orjson.loads(run("lag", given, "--json", "--checkpoint", checkpoint).stdout)
    assert said["total"]["lag_offsets"] == 0


def test_routes_and_dead_letters_are_found_where_the_dots_lead(spark: SparkSession, tmp_path: Path) -> None:
    for topic in ("good", "bad"):
        write_topic(tmp_path / "bucket", topic, [[Record(None, text) for text in (b'{"id":1}', b"{", b'{"id":2}')]])
    settings = topic_options(tmp_path / "bucket", "good,bad", {
        "ingest.value.format": "json", "ingest.value.schema": "id BIGINT", "ingest.onDecodeError": "deadLetter",
        "ingest.deadLetterTable": f"{tmp_path}/x/../dead", "ingest.route": f"bad={tmp_path}/x/../{{topic}}/raw",
    })  # fmt: skip
    for _ in range(2):
        query = land(spark, options=settings, table=f"{tmp_path}/./{{topic}}/raw", checkpoint=f"{tmp_path}/x/../c")
        query.awaitTermination()
    for topic in ("good", "bad"):
        assert DeltaTable(tmp_path / topic / "raw").to_pyarrow_table()["id"].to_pylist() == [1, 2]
    assert DeltaTable(tmp_path / "dead").to_pyarrow_table().num_rows == 2
    assert not (tmp_path / "x").exists()


@LANES
def test_a_table_in_s3_is_found_where_the_dots_lead(
    spark: SparkSession, lake: VersityGateway, tmp_path: Path, lane: str
) -> None:
    bucket = f"dotted-{lane}"
    lake.client().create_bucket(Bucket=bucket)
    with configured(spark, s3a_settings(lake.endpoint, lake.access_key, lake.secret_key, bucket)):
        for place in (f"s3a://{bucket}/a/./t", f"s3a://{bucket}/a/x/../t"):
            land(spark, options=options(ODD), table=place, checkpoint=str(tmp_path), lane=lane).awaitTermination()
    found = lake.client().list_objects_v2(Bucket=bucket)["Contents"]
    assert {each["Key"].split("/")[1] for each in found} == {"t"}
    rows = committing.table(in_s3(lake, f"s3://{bucket}/a/t")).to_pyarrow_table()
    assert in_order(pa.table(rows)).equals(everything(ODD))


def test_a_path_above_its_root_is_refused_at_planning(spark: SparkSession, tmp_path: Path) -> None:
    for table, given in (
        ("s3a://lake/../t", {}),
        (str(tmp_path / "t"), {"ingest.route": f"{LONG}=s3a://lake/x/../../t"}),
    ):
        with pytest.raises(ConfigurationError, match=r"s3a://lake/.*: .*root"):
            plan_query(spark, options=options(ODD, given), table=table, run=QueryRun(f"{tmp_path}/c"))
    assert list(tmp_path.iterdir()) == []
