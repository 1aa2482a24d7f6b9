"""`replay --replace` and `verify` find a record's rows by the names that the table gives to Kafka's columns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyspark.sql import SparkSession

import tiered_stream
from tests.rigs.stack.rows import Record
from tests.tier.topics import topic_options, write_topic
from tiered_stream.delta.schema.row_plan import record_columns
from tiered_stream.delta.settings.ingest_settings import table_spec
from tiered_stream.errors import ConfigurationError
from tiered_stream.replays.run_replay import ReplayReport, plan_replay
from tiered_stream.replays.table_and_folder_targets import DeltaTarget

COUNT, FROM, TO = 300, 100, 200
FIRST_MS = 1_700_000_000_000
VALUE = {
    "ingest.value.format": "json",
    "ingest.value.schema": "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, id BIGINT",
}
RENAMED = VALUE | {
    "ingest.kafkaColumns": "topic as kafka_topic, partition as kafka_partition, offset as kafka_offset, "
    "timestamp as kafka_timestamp, key as kafka_key"
}
OF_THE_TOPIC = {name.replace("ingest.", "ingest.topic.orders."): value for name, value in RENAMED.items()}
GUIDES_OWN = VALUE | {"ingest.kafkaColumns": "partition as kafka_partition, offset as kafka_offset"}


def test_the_tables_names_are_those_of_the_settings() -> None:
    own = {name: name for name in ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value")}
    assert record_columns(table_spec({})) == own | {"headers": "headers"}
    decoded = record_columns(table_spec(VALUE))
    assert "value" not in decoded and decoded["key"] == "key"
    assert record_columns(table_spec(RENAMED)) == {
        "key": "kafka_key", "topic": "kafka_topic", "partition": "kafka_partition", "offset": "kafka_offset",
        "timestamp": "kafka_timestamp",
    }  # fmt: skip
    texts = {"ingest.value.format": "string", "ingest.value.columns": "body", "ingest.kafkaColumns": "none"}
    assert record_columns(table_spec(texts)) == {"value": "body"}


class Typed:
    """A topic whose values have fields that are called as Kafka's columns, with misleading content."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.bucket, self.table = spark, folder / "bucket", folder / "table"
        values = (
            {"topic": "other", "partition": 7, "offset": COUNT - at, "timestamp": "1970-01-01T00:00:00Z", "id": at}
            for at in range(COUNT)
        )
        records = [Record(b"k%d" % at, orjson.dumps(each), (), FIRST_MS + at) for at, each in enumerate(values)]
        write_topic(self.bucket, "orders", [records])

    def replay(self, settings: Mapping[str, str], *, first: int = FROM, **given: Any) -> ReplayReport:
        given_options = topic_options(self.bucket, "orders", settings)
        target = DeltaTarget(self.spark, str(self.table), given_options)
        return plan_replay(
            target, from_time=str(FIRST_MS + first), to_time=str(FIRST_MS + TO) if first else None, **given
        ).run()  # fmt: skip

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.spark.read.format("delta").load(str(self.table)).collect())


@pytest.fixture
def typed(spark: SparkSession, tmp_path: Path) -> Typed:
    return Typed(spark, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("given", "exact"), [(RENAMED, False), (OF_THE_TOPIC, True)])
def test_rows_are_replaced_by_the_records_place_and_not_by_fields_of_the_value(
    typed: Typed, given: dict[str, str], exact: bool
) -> None:
    typed.replay(given, first=0, name="all")
    assert typed.ids() == list(range(COUNT))
    name = f"delta.`{typed.table}`"
    typed.spark.sql(f"INSERT INTO {name} SELECT * FROM {name} WHERE id IN (150, 160)")
    typed.spark.sql(f"DELETE FROM {name} WHERE id = 170")
    typed.spark.sql(f"UPDATE {name} SET kafka_key = X'00' WHERE id = 180")
    settings = topic_options(typed.bucket, "orders", given)
    report = tiered_stream.verify(typed.spark, options=settings, table=str(typed.table))
    (partition,) = report.partitions
    assert not report.equal and report.left_out == ("value", "headers")
    assert partition.first is not None and partition.first.offset == 150
    typed.replay(given, name="mended", replace=True, exact=exact)
    assert typed.ids() == list(range(COUNT))
    assert tiered_stream.verify(typed.spark, options=settings, table=str(typed.table)).equal


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "exact", "missing"),
    [
        (GUIDES_OWN, False, "topic"),
        (GUIDES_OWN, True, "topic, timestamp"),
        (VALUE | {"ingest.kafkaColumns": "none"}, False, "topic, partition, offset"),
    ],
)
def test_a_table_without_the_records_place_is_refused_before_anything_is_written(
    typed: Typed, settings: dict[str, str], exact: bool, missing: str
) -> None:
    """Though the value has fields of those names."""
    with pytest.raises(ConfigurationError, match=f" {missing} "):
        typed.replay(settings, name="mended", replace=True, exact=exact)
    assert not typed.table.exists()


@pytest.mark.slow
def test_a_table_without_the_records_place_cannot_be_verified(typed: Typed) -> None:
    settings = VALUE | {"ingest.kafkaColumns": "offset as kafka_offset"}
    typed.replay(settings, first=0, name="all")
    given = topic_options(typed.bucket, "orders", settings)
    with pytest.raises(ConfigurationError, match="topic and partition"):
        tiered_stream.verify(typed.spark, options=given, table=str(typed.table))
