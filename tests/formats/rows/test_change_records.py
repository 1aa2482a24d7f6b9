"""Upserts, deletes and tombstones: their keys, and records that change no row."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa
import pytest

from tests.delta.made_batches import decoded
from tests.stack.rows import Record
from tiered_stream.errors import ConfigurationError, UndecodableRecordError
from tiered_stream.formats.row_decoder import RowDecoder
from tiered_stream.formats.rows.change_records import check_key_columns, is_deleted
from tiered_stream.formats.rows.envelope import unwrapped_type
from tiered_stream.formats.rows.row_choices import Envelope, Format, OnDecodeError
from tiered_stream.formats.rows.row_format import PartFormat, RowFormat, schema_to_text
from tiered_stream.formats.rows.table_rules import TableRules

ROW = pa.struct([("id", pa.int64()), ("name", pa.string())])
ENVELOPE = pa.struct([("before", ROW), ("after", ROW), ("op", pa.string()), ("ts_ms", pa.int64())])
KEY = pa.struct([("id", pa.int64())])


def part(kind: pa.StructType, table: pa.DataType | None = None) -> PartFormat:
    return PartFormat(Format.JSON, schema_to_text(pa.schema(list(kind))), kind=table or kind)


def debezium(key: PartFormat | None = None, **given: Any) -> RowDecoder:
    values = {"on_error": OnDecodeError.DEAD_LETTER, "keys": ("id",), "envelope": Envelope.DEBEZIUM, **given}
    return RowDecoder(RowFormat((), key or part(KEY), part(ENVELOPE, unwrapped_type(ENVELOPE)), **values))


def event(op: str, before: Any = None, after: Any = None, ts_ms: int | None = 1) -> bytes:
    return orjson.dumps({"before": before, "after": after, "op": op, "ts_ms": ts_ms})


def rows(decoder: RowDecoder, *records: Record) -> list[tuple[Any, Any, bool]]:
    result = decoder.decode(decoded(list(records))).rows
    found = zip(result.column("id").to_pylist(), result.column("name").to_pylist(), is_deleted(result), strict=True)
    return [(key, name, mark.as_py()) for key, name, mark in found]


def reasons(decoder: RowDecoder, *records: Record) -> list[tuple[int, str, str]]:
    dead = decoder.decode(decoded(list(records))).dead
    return [] if dead is None else [(row["offset"], row["failed"], row["reason"]) for row in dead.to_pylist()]


def test_debeziums_events_and_the_tombstone_after_a_delete_have_their_keys() -> None:
    key = b'{"id": 1}'
    assert rows(
        debezium(),
        Record(key, event("c", None, {"id": 1, "name": "a"})),
        Record(key, event("u", {"id": 1, "name": "a"}, {"id": 1, "name": "b"})),
        Record(key, event("d", {"id": 1, "name": None})),
        Record(key, None),
        Record(b'{"id": 2}', event("r", None, {"id": 2, "name": None})),
    ) == [(1, "a", False), (1, "b", False), (1, None, True), (1, None, True), (2, None, False)]


def test_a_delete_without_a_before_image_and_a_key_with_its_schema_have_their_keys() -> None:
    key = part(pa.struct([("payload", KEY)]))
    assert rows(debezium(key), Record(b'{"schema": {}, "payload": {"id": 3}}', event("d"))) == [(3, None, True)]


def test_a_record_whose_key_is_not_known_is_named_and_never_left_out() -> None:
    bare = debezium(PartFormat())
    records = [Record(b"x", None), Record(b"x", event("c", None, {"id": None, "name": "a"}))]
    assert reasons(bare, *records) == [
        (0, "row", "it is a delete, and its key column id is null: the record's key has no such field"),
        (1, "row", "its key column id is null"),
    ]
    with pytest.raises(UndecodableRecordError, match="offset 0: it is a delete, and its key column id is null"):
        debezium(PartFormat(), on_error=OnDecodeError.FAIL).decode(decoded(records))


def test_an_event_that_changes_no_row_is_named() -> None:
    assert reasons(debezium(), Record(b'{"id": 1}', event("t")), Record(b'{"id": 1}', b"{}")) == [
        (0, "row", "its op is t: only c, u, r and d change a row"),
        (1, "value", "it is not Debezium's envelope: it has no op"),
    ]


def test_a_null_that_a_schema_allows_is_no_tombstone_and_no_event() -> None:
    schema = {"type": "record", "name": "E", "fields": [
        {"name": "after", "type": {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}},
        {"name": "op", "type": "string"},
    ]}  # fmt: skip
    kind = unwrapped_type(pa.struct([("after", KEY), ("op", pa.string())]))
    value = PartFormat(Format.AVRO, orjson.dumps(["null", schema]).decode(), kind=kind)
    given = {"on_error": OnDecodeError.DEAD_LETTER, "keys": ("id",), "envelope": Envelope.DEBEZIUM}
    decoder = RowDecoder(RowFormat((), part(KEY), value, **given))
    assert reasons(decoder, Record(b'{"id": 1}', b"\0"), Record(b'{"id": 1}', None)) == [
        (0, "row", "it is not Debezium's envelope: it has no op")
    ]


def test_garbage_is_no_tombstone() -> None:
    assert [failed for _, failed, _ in reasons(debezium(), Record(b'{"id": 1}', b"garbage"))] == ["value"]
    assert [failed for _, failed, _ in reasons(debezium(), Record(b"garbage", None))] == ["key"]


def test_a_row_without_the_value_that_orders_it_is_named() -> None:
    decoder = debezium(order_by="__ts_ms")
    assert reasons(decoder, Record(b'{"id": 1}', event("c", None, {"id": 1}, None)), Record(b'{"id": 1}', None)) == [
        (0, "row", "__ts_ms, by which rows are ordered, is null"),
        (1, "row", "it is a delete, and __ts_ms, by which rows are ordered, is null: order rows by timestamp, which "
         "every record has"),
    ]  # fmt: skip


def test_a_tombstone_deletes_by_kafkas_own_key() -> None:
    plain = RowDecoder(RowFormat((("key", "key"), ("value", "value")), keys=("key",)))
    result = plain.decode(decoded([Record(b"a", b"1"), Record(b"a", None)])).rows
    assert result.column("key").to_pylist() == [b"a", b"a"]
    assert is_deleted(result).to_pylist() == [False, True]


def test_a_delete_breaks_no_rule_of_the_table() -> None:
    decoder = debezium(rules=TableRules(not_null=("name",)))
    records = [Record(b'{"id": 1}', event("d", {"id": 1})), Record(b'{"id": 1}', event("c", None, {"id": 1}))]
    assert rows(decoder, *records) == [(1, None, True)]
    assert reasons(decoder, *records) == [(1, "row", "the column name is NOT NULL")]


@pytest.mark.parametrize(
    ("keys", "order_by", "said"),
    [
        (["nope"], None, "ingest.keys has nope, which is no column of the rows"),
        (["id", "price"], None, "ingest.keys has price, which is double"),
        (["place"], None, "ingest.keys has place, which is struct"),
        (["id"], "nope", "ingest.orderBy has nope, which is no column"),
    ],
)
def test_columns_that_cannot_be_keys_are_refused(keys: list[str], order_by: str | None, said: str) -> None:
    columns = pa.schema([("id", pa.int64()), ("price", pa.float64()), ("place", ROW)])
    with pytest.raises(ConfigurationError, match=said):
        check_key_columns(columns, keys, order_by)
    check_key_columns(columns, ["ID"], None)
