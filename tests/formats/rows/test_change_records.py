"""Upserts, deletes and tombstones: their keys, and records that change no row."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any

import orjson
import pyarrow as pa
import pytest
from google.protobuf import message_factory

from tests.delta.made_batches import decoded
from tests.rigs.stack.rows import Record
from tiered_stream.delta.settings.row_settings import advising
from tiered_stream.errors import ConfigurationError, UndecodableRecordError
from tiered_stream.formats.protobuf.proto_compiler import compiled_proto
from tiered_stream.formats.protobuf.protobuf_decoder import ProtobufDecoder, message_descriptor
from tiered_stream.formats.row_decoder import RowDecoder
from tiered_stream.formats.rows.change_records import check_flattened, check_key_columns, is_deleted, unwrapped_type
from tiered_stream.formats.rows.row_choices import Envelope, Format, OnDecodeError
from tiered_stream.formats.rows.row_format import PartFormat, RowFormat, schema_to_text
from tiered_stream.formats.rows.table_rules import TableRules, TextLimit

ROW = pa.struct([("id", pa.int64()), ("name", pa.string())])
ENVELOPE = pa.struct([("before", ROW), ("after", ROW), ("op", pa.string()), ("ts_ms", pa.int64())])
TEXT = pa.string()
KEY = pa.struct([("id", pa.int64())])


def part(kind: pa.StructType, table: pa.DataType | None = None) -> PartFormat:
    return PartFormat(Format.JSON, schema_to_text(pa.schema(list(kind))), kind=table or kind)


def changes(value: PartFormat, envelope: Envelope, key: PartFormat | None = None, **given: Any) -> RowDecoder:
    values = {"on_error": OnDecodeError.DEAD_LETTER, "keys": ("id",), "envelope": envelope, **given}
    return RowDecoder(RowFormat((), key or part(KEY), value, **values))


def debezium(key: PartFormat | None = None, kind: pa.StructType = ENVELOPE, **given: Any) -> RowDecoder:
    return changes(part(kind, unwrapped_type(kind)), Envelope.DEBEZIUM, key, **given)


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


def flattened(mark: pa.DataType = TEXT, **given: Any) -> RowDecoder:
    kind = pa.struct([*ROW, ("at", pa.int64()), ("__deleted", mark), ("__lsn", pa.int64())])
    return changes(part(kind), Envelope.FLATTENED, **given)


@pytest.mark.parametrize(("mark", "yes", "no"), [(pa.string(), '"true"', '"false"'), (pa.bool_(), "true", "false")])
def test_flattened_events_delete_rows_and_have_no_column_for_it(mark: pa.DataType, yes: str, no: str) -> None:
    decoder = flattened(mark)
    records = [
        Record(b'{"id": 1}', f'{{"id": 1, "name": "a", "__deleted": {no}}}'.encode()),
        Record(b'{"id": 1}', f'{{"id": 1, "__deleted": {yes}}}'.encode()),
        Record(b'{"id": 2}', b'{"id": 2, "name": "b"}'),
        Record(b'{"id": 2}', None),
    ]
    assert rows(decoder, *records) == [(1, "a", False), (1, None, True), (2, "b", False), (2, None, True)]
    assert "__deleted" not in decoder.decode(decoded(records)).rows.schema.names


def test_a_flattened_delete_with_a_value_that_debezium_made_up_has_no_order() -> None:
    delete = Record(b'{"id": 1}', b'{"id": 1, "name": "", "at": 0, "__deleted": "true", "__lsn": 7}')
    assert reasons(flattened(order_by="at"), delete) == [
        (0, "row", "it is a delete that lacks the row's at: order rows by timestamp, which every record has")
    ]


@pytest.mark.parametrize(
    ("kind", "made_up", "known"),
    [
        (TEXT, "0.00", "9.99"), (TEXT, "00:00:00Z", "10:00:00Z"), (TEXT, "1970-01-01T00:00:00.000Z", "0:1"),
        (pa.decimal128(4, 2), 0, 1), (pa.decimal128(38, 38), 0, 0.5), (pa.float64(), 0, -1), (pa.bool_(), False, True),
    ],
)  # fmt: skip
def test_a_delete_has_no_order_if_all_of_its_values_are_zeros(kind: pa.DataType, made_up: Any, known: Any) -> None:
    row = pa.struct([("id", pa.int64()), ("x", kind), ("at", pa.int64()), ("__deleted", TEXT)])
    decoder = changes(part(row), Envelope.FLATTENED, order_by="at")
    delete = {"id": 1, "at": 0, "__deleted": "true"}
    records = [Record(b'{"id": 1}', orjson.dumps({**delete, "x": each})) for each in (made_up, known)]
    assert [offset for offset, *_ in reasons(decoder, *records)] == [0]


def test_rules_do_not_hold_for_a_placeholder_whose_column_keeps_the_rows_value() -> None:
    rules = TableRules(text_limits=(TextLimit(("name",), 3, False),), checks=(("c", "name IN ('a')"), ("d", "id < 9")))
    decoder = debezium(placeholder="__gone", rules=rules)
    updates = [Record(b"{}", event("u", None, {"id": id, "name": name})) for id, name in ((1, "__gone"), (2, "__go"))]
    broken = Record(b"{}", event("u", None, {"id": 9, "name": "__gone"}))
    assert reasons(decoder, *updates, broken) == [
        (1, "row", "name is VARCHAR(3), and the value has more characters"),
        (2, "row", "the constraint d does not hold"),
    ]


def test_flattened_rows_must_say_which_are_deletes() -> None:
    check_flattened(pa.struct([("__deleted", pa.string())]))
    with pytest.raises(ConfigurationError, match="no field __deleted: .* to rewrite"):
        check_flattened(ROW)


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
    with pytest.raises(UndecodableRecordError, match="offset 0: .*delete.* id is null"):
        debezium(PartFormat(), on_error=OnDecodeError.FAIL).decode(decoded(records))


def test_an_event_that_changes_no_row_is_named() -> None:
    records = (
        Record(b'{"id": 1}', event("t")),
        Record(b'{"id": 1}', b"{}"),
        Record(b'{"id": 1}', event("\n" + "x" * 99)),
    )
    assert reasons(debezium(), *records) == [
        (0, "row", "its op is 't': only c, u, r and d change a row"),
        (1, "value", "it is not Debezium's envelope: it has no op"),
        (2, "row", f"its op is '\\n{'x' * 37}: only c, u, r and d change a row"),
    ]


def test_a_null_that_a_schema_allows_is_no_tombstone_and_no_event() -> None:
    schema = {"type": "record", "name": "E", "fields": [
        {"name": "after", "type": {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}},
        {"name": "op", "type": "string"},
    ]}  # fmt: skip
    kind = unwrapped_type(pa.struct([("after", KEY), ("op", pa.string())]))
    value = PartFormat(Format.AVRO, orjson.dumps(["null", schema]).decode(), kind=kind)
    decoder = changes(value, Envelope.DEBEZIUM)
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
        (["nope"], None, "the key column nope is no column of the rows"),
        (["id", "price"], None, "the key column price is double"),
        (["place"], None, "the key column place is struct"),
        (["id"], "nope", "the ordering column nope is no column"),
    ],
)
def test_columns_that_cannot_be_keys_are_refused(keys: list[str], order_by: str | None, said: str) -> None:
    columns = pa.schema([("id", pa.int64()), ("price", pa.float64()), ("place", ROW)])
    with pytest.raises(ConfigurationError, match=said):
        check_key_columns(columns, keys, order_by)
    check_key_columns(columns, ["ID"], None)


@pytest.mark.parametrize(
    ("before", "is_known"),
    [
        ({"id": 1, "name": "", "version": 0, "at": 0}, False),
        ({"id": 1, "name": None, "version": 0, "at": None}, False),
        ({"id": 1, "name": "a", "version": 0, "at": 0}, True),
        ({"id": 1, "name": "", "version": 7, "at": 0}, True),
        ({"id": 1, "name": "", "version": 0, "at": 5}, True),
    ],
)
def test_a_delete_whose_order_debezium_made_up_is_named(before: dict[str, Any], is_known: bool) -> None:
    """PostgreSQL logs the key alone, and Debezium fills columns that are NOT NULL with 0 or an empty text."""
    row = pa.struct([("id", pa.int64()), ("name", pa.string()), ("version", pa.int32()), ("at", pa.int64())])
    kind = pa.struct([("before", row), ("after", row), ("op", pa.string()), ("ts_ms", pa.int64())])
    for order_by in ("version", "__ts_ms"):
        records = Record(b'{"id": 1}', event("d", before)), Record(b'{"id": 1}', event("u", None, before))
        found = reasons(debezium(kind=kind, order_by=order_by), *records)
        made_up = order_by == "version" and not is_known
        expected = "it is a delete that lacks the row's version: order rows by timestamp, which every record has"
        assert found == ([(0, "row", expected)] if made_up else [])


PROTO = (
    'syntax = "proto3"; message Row { int64 id = 1; string code = 2; bool b = 3; State state = 4; Inner inner = 5; '
    "optional int32 maybe = 6; int32 version = 7; } enum State { NEW = 0; } message Inner { int64 id = 1; } "
    "message Change { Row before = 1; Row after = 2; string op = 3; }"
)


def proto(message: str, table: Callable[[pa.DataType], pa.DataType] = lambda kind: kind) -> tuple[PartFormat, Any]:
    descriptors = compiled_proto({"made.proto": PROTO})
    kind = ProtobufDecoder(descriptors, message).kind
    made = PartFormat(Format.PROTOBUF, b64encode(descriptors).decode(), message, kind=table(kind))
    return made, message_factory.GetMessageClass(message_descriptor(descriptors, message))


def test_a_key_of_proto3_that_is_zero_is_a_key() -> None:
    part_of, row = proto("Row")
    keys = ("id", "code", "b", "state")
    decoder = changes(part_of, Envelope.NONE, PartFormat(), keys=keys, order_by="version")
    values = [row().SerializeToString(), row(id=5, inner={}, version=1).SerializeToString()]
    result = decoder.decode(decoded([Record(None, value) for value in values]))
    assert result.dead is None
    assert [[each[name] for name in (*keys, "version")] for each in result.rows.to_pylist()] == [
        [0, "", False, "NEW", 0], [5, "", False, "NEW", 1]
    ]  # fmt: skip
    assert [(each["inner"], each["maybe"]) for each in result.rows.to_pylist()] == [(None, None), ({"id": None}, None)]
    missing = changes(part_of, Envelope.NONE, PartFormat(), keys=("maybe",))
    assert reasons(missing, Record(None, values[1])) == [(0, "row", "its key column maybe is null")]


def test_a_key_of_proto3_that_is_zero_is_a_key_in_tombstones_and_envelopes_too() -> None:
    key, row = proto("Row")
    change, event_of = proto("Change", unwrapped_type)
    zero = row().SerializeToString()
    records = [
        Record(zero, event_of(after={}, op="c").SerializeToString()),
        Record(zero, event_of(before={}, op="d").SerializeToString()), Record(zero, None),
    ]  # fmt: skip
    result = changes(change, Envelope.DEBEZIUM, key).decode(decoded(records)).rows
    assert (result.column("id").to_pylist(), is_deleted(result).to_pylist()) == ([0, 0, 0], [False, True, True])


def test_the_error_shows_the_schemas_that_fit_the_record() -> None:
    """The settings have no payload, but Kafka Connect's converter writes schemas."""
    after = {"id": 1, "name": "a"}
    value = orjson.dumps({"schema": {}, "payload": {"before": None, "after": after, "op": "c", "ts_ms": 1}})
    key = orjson.dumps({"schema": {}, "payload": {"id": 1}})
    decoder = debezium(part(pa.struct([("other", pa.int64())])), on_error=OnDecodeError.FAIL)
    with pytest.raises(UndecodableRecordError) as refused, advising():
        decoder.decode(decoded([Record(key, value)]))
    image = "STRUCT<id BIGINT, name STRING>"
    fits = f"payload STRUCT<before {image}, after {image}, op STRING, ts_ms BIGINT>"
    assert f"This value fits ingest.value.schema={fits}." in str(refused.value)
    with pytest.raises(UndecodableRecordError) as refused, advising():
        decoder.decode(decoded([Record(key, None)]))
    assert "This key fits ingest.key.schema=payload STRUCT<id BIGINT>." in str(refused.value)
