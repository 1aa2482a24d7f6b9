from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa
import pytest

from tests.delta.made_batches import ORDERS, decoded
from tests.stack.rows import Record
from tiered_stream.delta.file_statistics import FileStatistics
from tiered_stream.model import TopicPartition


def stats(*batches: tuple[TopicPartition, pa.RecordBatch]) -> dict[str, Any]:
    statistics = FileStatistics()
    for partition, batch in batches:
        statistics.add(partition, batch)
    parsed: dict[str, Any] = orjson.loads(statistics.to_json())
    return parsed


def test_statistics_are_those_that_delta_spark_writes() -> None:
    records = [Record(None, b"v", (("h", b"1"),), 1_704_164_645_678), Record(b"k", None, (), 1_704_164_645_679)]
    assert stats((ORDERS, decoded(records, 5))) == {
        "numRecords": 2,
        "minValues": {
            "topic": "orders", "partition": 3, "offset": 5, "timestamp": "2024-01-02T03:04:05.678Z", "timestampType": 0,
        },
        "maxValues": {
            "topic": "orders", "partition": 3, "offset": 6, "timestamp": "2024-01-02T03:04:05.679Z", "timestampType": 0,
        },
        "nullCount": {
            "key": 1, "value": 1, "topic": 0, "partition": 0, "offset": 0, "timestamp": 0, "timestampType": 0,
            "headers": 1,
        },
    }  # fmt: skip


def test_statistics_span_batches_and_partitions() -> None:
    other = TopicPartition("a", 11)
    records = [Record(b"k", b"v")] * 3
    found = stats((ORDERS, decoded(records, 100)), (ORDERS, decoded(records, 103)), (other, decoded(records, 7, other)))
    assert (found["numRecords"], found["nullCount"]["headers"]) == (9, 9)
    assert [found["minValues"][name] for name in ("topic", "partition", "offset")] == ["a", 3, 7]
    assert [found["maxValues"][name] for name in ("topic", "partition", "offset")] == ["orders", 11, 105]


def test_offsets_are_told_by_partition() -> None:
    statistics = FileStatistics()
    for first in (20, 23):
        statistics.add(ORDERS, decoded([Record(b"k", b"v")] * 3, first))
    assert statistics.offsets == {ORDERS: (20, 25)}


def test_a_long_topic_is_cut_and_its_maximum_rounded_up() -> None:
    long = TopicPartition("t" * 40, 0)
    found = stats((long, decoded([Record()], 0, long)))
    assert found["minValues"]["topic"] == "t" * 32
    assert found["maxValues"]["topic"] == "t" * 32 + "\ufffd" > "t" * 40


@pytest.mark.parametrize("timestamp_ms", [253_402_300_800_000, -62_135_596_800_001])
def test_a_timestamp_that_no_date_can_say_bounds_nothing(timestamp_ms: int) -> None:
    found = stats((ORDERS, decoded([Record(timestamp_ms=timestamp_ms)])))
    assert "timestamp" not in found["minValues"] and "timestamp" not in found["maxValues"]


def test_microseconds_are_cut_off_below_and_rounded_up_above() -> None:
    batch = decoded([Record(timestamp_ms=1)])
    at = batch.schema.get_field_index("timestamp")
    finer = batch.set_column(at, batch.schema.field(at), pa.array([1_001], batch.schema.field(at).type))
    found = stats((ORDERS, finer))
    assert found["minValues"]["timestamp"] == "1970-01-01T00:00:00.001Z"
    assert found["maxValues"]["timestamp"] == "1970-01-01T00:00:00.002Z"
