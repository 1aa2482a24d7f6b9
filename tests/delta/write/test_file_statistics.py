from __future__ import annotations

from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest

from tests.delta.made_batches import ORDERS, decoded
from tests.rigs.stack.rows import Record
from tiered_stream.delta.write.file_statistics import FileStatistics
from tiered_stream.formats.rows.kafka_columns import FIRST_OFFSET, hidden
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


def test_a_row_of_several_records_has_the_offsets_of_all_of_them() -> None:
    statistics = FileStatistics()
    row = pa.record_batch({"value": [b"a"]})
    for name, offset in (("offset", 25), (FIRST_OFFSET, 20)):
        row = row.append_column(hidden(name, pa.int64()), pa.array([offset]))
    statistics.add(ORDERS, row)
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


def typed(**columns: pa.Array) -> dict[str, Any]:
    """The statistics of a file that has these columns, and none of Kafka's."""
    rows = len(next(iter(columns.values())))
    offset = pa.array(range(rows), pa.int64())
    fields = [*(pa.field(name, each.type) for name, each in columns.items()), hidden("offset", pa.int64())]
    return stats((ORDERS, pa.RecordBatch.from_arrays([*columns.values(), offset], schema=pa.schema(fields))))


def test_columns_of_every_type_have_their_bounds() -> None:
    found = typed(
        n=pa.array([3, None, -1], pa.int8()),
        d=pa.array([Decimal("1.10"), Decimal("-20.00"), None], pa.decimal128(10, 2)),
        s=pa.array([None, "b", "a"]),
        day=pa.array([0, 19_000, None], pa.date32()),
        local=pa.array([1_001, 0, None], pa.timestamp("us")),
        b=pa.array([True, None, False]),
        raw=pa.array([b"x", None, b"y"]),
    )
    least = {"n": -1, "d": -20.0, "s": "a", "day": "1970-01-01", "local": "1970-01-01T00:00:00.000"}
    most = {"n": 3, "d": 1.1, "s": "b", "day": "2022-01-08", "local": "1970-01-01T00:00:00.002"}
    assert (found["minValues"], found["maxValues"]) == (least, most)
    assert set(found["nullCount"].values()) == {1} and "\0offset" not in found["nullCount"]


def test_fields_of_structs_have_bounds_of_their_own_and_lists_only_count_nulls() -> None:
    inner = pa.array(
        [{"x": 1, "l": [1]}, {"x": None, "l": None}, None], pa.struct([("x", pa.int32()), ("l", pa.list_(pa.int32()))])
    )
    found = typed(a=inner)
    assert found["minValues"] == found["maxValues"] == {"a": {"x": 1}}
    assert found["nullCount"] == {"a": {"x": 2, "l": 2}}


def test_only_the_first_32_leaves_are_counted() -> None:
    wide = pa.array([dict.fromkeys(map(str, range(40)), 1)], pa.struct([(str(n), pa.int32()) for n in range(40)]))
    found = typed(first=pa.array([1]), wide=wide, last=pa.array([1]))
    assert len(found["nullCount"]["wide"]) == len(found["minValues"]["wide"]) == 31
    assert "last" not in found["nullCount"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_json_cannot_say_bounds_nothing(value: float) -> None:
    found = typed(x=pa.array([1.0, value, 2.0]))
    assert found["minValues"].get("x", -1e400) <= 1.0
    assert found["maxValues"].get("x", 1e400) >= 2.0 and ("x" in found["maxValues"]) == (value == float("-inf"))


@pytest.mark.parametrize("next_character", ["a", "\ufffd", "\U0001f600", "\U0010ffff"])
def test_a_long_text_is_below_its_maximum(next_character: str) -> None:
    text = "é" * 32 + next_character + "z"
    found = typed(s=pa.array([text]))
    assert found["minValues"]["s"] == "é" * 32
    assert found["maxValues"].get("s", "\U0010ffff") > text


def test_a_column_of_nulls_bounds_nothing() -> None:
    assert typed(s=pa.array([None], pa.string())) == {
        "numRecords": 1, "minValues": {}, "maxValues": {}, "nullCount": {"s": 1},
    }  # fmt: skip


@pytest.mark.parametrize("values", [[-0.0, 0.0], [0.0, -0.0], [0.0], [-0.0], [None, 0.0]])
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_a_bound_of_zero_is_for_either_zero(values: list[float | None], kind: pa.DataType) -> None:
    """They are equal, but a reader may take -0.0 for the smaller one."""
    inner = pa.array([{"f": value} for value in values], pa.struct([("f", kind)]))
    found = typed(e=pa.array(values, kind), s=inner)
    assert str(found["minValues"]) == "{'e': -0.0, 's': {'f': -0.0}}"
    assert str(found["maxValues"]) == "{'e': 0.0, 's': {'f': 0.0}}"
