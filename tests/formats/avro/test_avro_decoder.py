"""Avro values become rows, or reasons; what a value is does not depend on those around it."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import examples
from tests.formats.avro_cases import Schemas, avro_decoder, encoded, in_column, record, value, varint
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.avro import large_decimals
from tiered_stream.formats.columns import decoded as decoded_values
from tiered_stream.formats.columns.decoded import TOO_LARGE, LargeBatchError
from tiered_stream.formats.rows.row_choices import AvroColumns, LargeDecimals


def decode(schema: Any, *values: bytes | None, reader: Any = None) -> tuple[list[Any], dict[int, str]]:
    decoder = avro_decoder(json.dumps(schema), None if reader is None else json.dumps(reader))
    decoded = decoder.decode(pa.array(values, pa.binary()))
    decoded.column.validate(full=True)
    assert decoded.column.type == decoder.kind
    return decoded.column.to_pylist(), dict(decoded.reasons)


@given(st.integers(0, 2**32))
@settings(max_examples=examples(100), deadline=None)
def test_no_value_changes_what_another_is(seed: int) -> None:
    random = Random(seed)
    schema = Schemas(random).record()
    good = [encoded(schema, value(random, schema)) for _ in range(10)]
    values: list[bytes | None] = [*good]
    spoiled = {at: random.choice((None, b"", b"\xff" * 12, random.randbytes(8), good[at] + b"\0"))
               for at in random.sample(range(10), 4)}  # fmt: skip
    for at, each in spoiled.items():
        values[at] = each
    rows, reasons = decode(schema, *values)
    assert set(reasons) <= set(spoiled)
    for at, each in enumerate(good):
        if at not in spoiled:
            assert rows[at] == in_column(schema, each)
        elif at in reasons or values[at] is None:
            assert rows[at] is None


LONG_MINIMUM = b"\xff" * 9 + b"\x01"


@pytest.mark.parametrize(
    ("schema", "content", "reason"),
    [
        ("long", b"\x80" * 9 + b"\x02", "a number is longer than its type"),
        ("long", b"\x80" * 11, "a number is longer than its type"),
        ("int", varint(1 << 31), "a number is longer than its type"),
        ("int", b"\x80\x80\x80\x80\x80\x00", "a number is longer than its type"),
        ("long", b"\x80", "the bytes end within it"),
        ("long", b"\x02\x00", "there are bytes after its end"),
        ("boolean", b"\x02", "a boolean is neither 0 nor 1"),
        ("double", b"\0" * 7, "the bytes end within it"),
        ("string", varint(-1), "a length is negative, or more"),
        ("string", varint(1 << 40) + b"a", "a length is negative, or more"),
        ("string", b"\x04\xc3\x28", "a string is not UTF-8"),
        ("string", b"\x06\xed\xa0\x80", "a string is not UTF-8"),
        ("string", b"\x04\xc0\x80", "a string is not UTF-8"),
        (["null", "int"], b"\x04", "the union has no such branch"),
        (["null", "int"], b"\x01", "the union has no such branch"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, b"\x02", "the enum has no such symbol"),
        ({"type": "array", "items": "int"}, varint(10) + b"\0" * 5, "more items than the bytes"),
        ({"type": "array", "items": "int"}, varint(-(1 << 62)) + b"\0\0", "more items than the bytes"),
        ({"type": "array", "items": "int"}, LONG_MINIMUM + b"\0\0", "more items than the bytes"),
        ({"type": "array", "items": "int"}, varint(-1) + varint(2) + b"\0\0", "a block of items is not as long"),
        ({"type": "array", "items": "int"}, varint(-1) + varint(-2) + b"\0\0", "a block of items is not as long"),
        ({"type": "array", "items": "null"}, varint(1 << 61) + b"\0", "more items than the bytes"),
        ({"type": "map", "values": "int"}, b"\x04\x02a\x02\x02a\x04\0", "a map has a key twice"),
        ({"type": "map", "values": "int"}, b"\x02\x02a\x02\x02\x02a\x04\0", "a map has a key twice"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x02\x64", "more digits than its precision"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38}, b"\x22\x01" + b"\0" * 16, "more digits"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38}, b"\x22\0\x80" + b"\0" * 15, "more digits"),
        ({"type": "long", "logicalType": "timestamp-millis"}, varint(1 << 62), "does not fit into microseconds"),
    ],
)
def test_what_is_no_value_gets_a_reason(schema: Any, content: bytes, reason: str) -> None:
    rows, reasons = decode(record(("first", "int"), ("field", schema)), b"\x02" + content)
    assert rows == [None]
    assert reason in reasons[0]
    assert reasons[0].startswith(("field", "the value"))


def test_decimals_may_have_more_bytes_than_they_need() -> None:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}
    most = 10**38 - 1
    contents = [
        (b"\0" * 30, 0),
        (b"\xff" * 30, -1),
        (most.to_bytes(16), most),
        ((-most).to_bytes(20, signed=True), -most),
    ]
    rows, reasons = decode(schema, b"\0", *(varint(len(content)) + content for content, _ in contents))
    assert reasons == {}
    assert rows == [0, *(number for _, number in contents)]


def test_a_list_without_bytes_has_no_more_items_than_can_be_counted() -> None:
    schema = {"type": "array", "items": {"type": "array", "items": "null"}}
    rows, reasons = decode(schema, b"\x02" + varint(60_000) + b"\0\0", b"\x04" + (varint(40_000) + b"\0") * 2 + b"\0")
    assert [None if row is None else len(row[0]) for row in rows] == [60_000, None]
    assert list(reasons) == [1] and reasons[1].endswith("items without bytes, of which a value has at most 65,536")


def test_large_maps_are_searched_for_keys_that_come_twice() -> None:
    keys = [b"%05d" % at for at in range(20_000)]
    pairs = b"".join(b"\x0a" + key + b"\x02" for key in keys)
    schema = {"type": "map", "values": "int"}
    rows, reasons = decode(schema, varint(20_000) + pairs + b"\0", varint(20_001) + pairs + b"\x0a00000\x02" + b"\0")
    assert len(rows[0]) == 20_000
    assert list(reasons) == [1]


@pytest.mark.parametrize(
    ("written", "wanted", "content", "row"),
    [
        ("int", ["null", "long"], b"\x02", 1),
        (["null", "int"], "int", b"\x02\x02", 1),
        (["int", "string"], ["string", "long"], b"\0\x02", {"member0": None, "member1": 1}),
        ("bytes", "string", b"\x02a", "a"),
        ("string", "bytes", b"\x02a", b"a"),
        ("long", "float", varint((1 << 24) + 1), float(1 << 24)),
        ("null", ["null", "int"], b"", None),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]},
         {"type": "enum", "name": "x.e", "symbols": ["B", "Z"], "default": "Z"}, b"\0", "Z"),
        ({"type": "fixed", "name": "f", "size": 2},
         {"type": "fixed", "name": "g", "aliases": ["f"], "size": 2}, b"ab", b"ab"),
        ({"type": "array", "items": ["null", "int"]}, {"type": "array", "items": "long"}, b"\x02\x02\x06\0", [3]),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "int"}, b"\x01\x06\x02a\x04\x02\x02b\x06\0",
         [("a", 2), ("b", 3)]),
    ],
)  # fmt: skip
def test_a_writers_type_is_read_as_the_readers(written: Any, wanted: Any, content: bytes, row: Any) -> None:
    rows, reasons = decode(record(("f", written)), content, reader=record(("f", wanted)))
    assert reasons == {}
    assert rows == [{"f": row}]


@pytest.mark.parametrize(
    ("given", "chosen"),
    [({"name": "b"}, 1), ({"name": "new", "aliases": ["b"]}, 1), ({"name": "other.b"}, 1), ({"name": "new"}, 0)],
)
def test_a_record_is_read_as_the_branch_that_has_its_name_now_or_earlier(given: dict[str, Any], chosen: int) -> None:
    def named(**names: Any) -> dict[str, Any]:
        return {"type": "record", "fields": [{"name": "x", "type": "int"}], **names}

    reader = record(("f", [named(name="a"), named(**given), "string"]))
    rows, reasons = decode(record(("f", named(name="b"))), b"\x02", reader=reader)
    assert reasons == {}
    assert [number for number, row in enumerate(rows[0]["f"].values()) if row == {"x": 1}] == [chosen]


def test_a_record_is_not_read_as_another_branch_if_the_branch_of_its_name_cannot_have_it() -> None:
    def named(name: str, *fields: Any) -> dict[str, Any]:
        return {**record(("x", "int"), *fields), "name": name}

    grown = named("created", ("new", "int"))
    rows, reasons = decode(
        record(("f", [named("created"), named("deleted")])), b"\0\x02", b"\x02\x02",
        reader=record(("f", [grown, named("deleted"), "string"])),
    )  # fmt: skip
    assert list(reasons) == [0] and rows[1] == {"f": {"member0": None, "member1": {"x": 1}, "member2": None}}


@pytest.mark.parametrize(
    ("written", "wanted", "why"),
    [
        ("long", "int", "field: long is written, which cannot be read as int"),
        ("string", "long", "string is written"),
        (["null", "long"], {"type": "array", "items": "long"}, None),
        ({"type": "long", "logicalType": "timestamp-millis"}, {"type": "long", "logicalType": "local-timestamp-millis"},
         "cannot be read as"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
         {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}, "cannot be read as"),
        ({"type": "fixed", "name": "f", "size": 2}, {"type": "fixed", "name": "f", "size": 3}, "fixed f is written"),
    ],
)  # fmt: skip
def test_a_type_that_cannot_be_read_is_refused(written: Any, wanted: Any, why: str | None) -> None:
    if why is None:  # a union's branches are looked at by themselves
        rows, reasons = decode(record(("field", written)), b"\0", reader=record(("field", wanted)))
        assert rows == [None] and "field: null is written" in reasons[0]
        return
    with pytest.raises(ConfigurationError, match=why.replace("(", r"\(")):
        decode(record(("field", written)), reader=record(("field", wanted)))


def decimal(precision: int, scale: int = 2, size: int = 0) -> dict[str, Any]:
    kind = {"type": "fixed", "name": "f", "size": size} if size else {"type": "bytes"}
    return {**kind, "logicalType": "decimal", "precision": precision, "scale": scale}


def number(unscaled: int) -> bytes:
    content = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, signed=True)
    return varint(len(content)) + content


@pytest.mark.parametrize("large", [LargeDecimals.STRING, LargeDecimals.DOUBLE])
def test_a_scale_beyond_all_numbers_is_refused(large: LargeDecimals) -> None:
    with pytest.raises(ConfigurationError, match=f"{large.name} has at most 1000"):
        avro_decoder(json.dumps(decimal(1 << 40, 1001)), columns=AvroColumns(large))


def test_a_text_is_not_made_of_a_number_of_unbounded_size() -> None:
    decoded = avro_decoder(json.dumps(decimal(64)), columns=AvroColumns(LargeDecimals.STRING)).decode(
        pa.array([number(7), number(1 << 4000)], pa.binary())
    )
    assert decoded.column.to_pylist() == ["0.07", None]
    assert decoded.reasons == {1: "the value: a decimal has more than 400 bytes"}


def numbers(count: int) -> bytes:
    """Return a list of `count` numbers of one byte."""
    return varint(count) + b"\2\7" * count + b"\0"


def test_a_value_whose_numbers_are_too_long_as_texts_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_decimals, "MAX_MEMORY", 100_000)
    schema = record(("a", ["null", {"type": "array", "items": decimal(2000, 1000)}]), ("b", "int"))
    values = [b"\2" + numbers(size) + b"\2" for size in (90, 110, 1)] + [b"\0\2", None]
    reader = avro_decoder(json.dumps(schema), columns=AvroColumns(LargeDecimals.STRING))
    found = reader.decode(pa.array(values, pa.binary()))
    found.column.validate(full=True)
    assert found.reasons == {1: TOO_LARGE}
    text = "0." + "0" * 999 + "7"
    rows = [{"a": [text] * 90, "b": 1}, None, {"a": [text], "b": 1}, {"a": None, "b": 1}, None]
    assert found.column.to_pylist() == rows


def test_values_whose_numbers_are_long_as_texts_are_decoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (large_decimals, decoded_values):
        monkeypatch.setattr(module, "MAX_BATCH_MEMORY", 100_000)
    schema = json.dumps({"type": "map", "values": ["null", decimal(2000, 1000)]})
    values = pa.array([b"\2\2k\2\2\7\0"] * 150, pa.binary())
    reader = avro_decoder(schema, columns=AvroColumns(LargeDecimals.STRING))
    with pytest.raises(LargeBatchError) as caught:
        reader.decode(values)
    assert caught.value.fitting == 99
    assert len(reader.decode(values.slice(0, 99)).column) == 99


@pytest.mark.parametrize("sizes", [(0, 0), (4, 6), (6, 4)])
@pytest.mark.parametrize(("written", "wanted"), [(9, 12), (12, 9), (64, 9), (9, 64)])
def test_a_decimal_of_another_precision_is_the_same_number(written: int, wanted: int, sizes: tuple[int, int]) -> None:
    unscaled = 12_345_678
    content = unscaled.to_bytes(sizes[0]) if sizes[0] else number(unscaled)
    schemas = [
        record(("a", decimal(9 if size == 4 else 12 if size else each, 2, size)))
        for each, size in zip((written, wanted), sizes, strict=True)
    ]
    assert decode(schemas[0], content, reader=schemas[1]) == ([{"a": Decimal("123456.78")}], {})


def test_a_decimal_that_does_not_fit_is_an_error_of_its_value() -> None:
    rows, reasons = decode(record(("a", decimal(12))), number(10**9), number(7), reader=record(("a", decimal(9))))
    assert rows == [None, {"a": Decimal("0.07")}] and "more digits" in reasons[0]


@pytest.mark.parametrize(
    ("kind", "default", "row"),
    [
        (record(("a", "int"), {"name": "b", "type": "int", "default": 5}) | {"name": "q"}, {"a": 1}, {"a": 1, "b": 5}),
        (["int", "string"], "x", {"member0": None, "member1": "x"}),
        ("double", "-Infinity", -math.inf),
        (record({"name": "b", "type": "float", "default": "Infinity"}) | {"name": "q"}, {}, {"b": math.inf}),
        (["double", "string"], "Infinity", {"member0": None, "member1": "Infinity"}),
    ],
)
def test_a_field_that_the_writer_lacks_has_its_default(kind: Any, default: Any, row: Any) -> None:
    reader = record(("a", "int"), {"name": "d", "type": kind, "default": default})
    rows, reasons = decode(record(("a", "int")), b"\x02", reader=reader)
    assert reasons == {}
    assert rows[0]["d"] == row


def test_a_writers_field_is_read_once_and_by_its_name_first() -> None:
    taken = {"name": "b", "type": "int", "aliases": ["a"], "default": 9}
    for fields in ([taken, ("a", "int")], [("a", "int"), taken]):
        rows, reasons = decode(record(("a", "int")), b"\x02", reader=record(*fields))
        assert reasons == {}
        assert rows == [{"a": 1, "b": 9}]


@pytest.mark.parametrize(("kind", "default"), [("int", "a"), ("int", 1 << 31), ("int", True), ("string", None),
                                               ("double", "much"),
                                               ({"type": "enum", "name": "e", "symbols": ["A"]}, "B")])  # fmt: skip
def test_a_default_that_is_none_is_refused(kind: Any, default: Any) -> None:
    reader = record({"name": "d", "type": kind, "default": default})
    with pytest.raises(ConfigurationError, match="d: .*default"):
        decode(record(("a", "int")), reader=reader)


def test_a_field_without_a_default_must_be_written() -> None:
    with pytest.raises(ConfigurationError, match="b: .*default"):
        decode(record(("a", "int")), reader=record(("a", "int"), ("b", "int")))
