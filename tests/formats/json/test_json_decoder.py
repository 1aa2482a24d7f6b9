"""JSON documents become the rows of Spark's `from_json`, or a reason, whatever they hold and beside whom they stand."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import examples
from tests.formats.json_documents import UTC, document, in_python, make_kind
from tiered_stream.errors import ConfigurationError, CorruptDataError, UnsupportedDataError
from tiered_stream.formats.columns import column_builder
from tiered_stream.formats.columns.decoded import REASON_SIZE
from tiered_stream.formats.json.exact_json import ExactJson
from tiered_stream.formats.json.json_decoder import JsonDecoder
from tiered_stream.formats.json.json_kernels import append_documents

LONGS = pa.struct([("x", pa.int64()), ("y", pa.int64())])


def decoded(kind: pa.StructType, documents: Sequence[bytes | None]) -> tuple[list[Any], dict[int, str]]:
    found = JsonDecoder(kind).decode(pa.array(documents, pa.binary()))
    found.column.validate(full=True)
    assert (found.column.type, len(found.column)) == (kind, len(documents))
    assert all(0 < len(reason) <= REASON_SIZE and reason.isprintable() for reason in found.reasons.values())
    assert not found.column.is_valid().to_numpy(zero_copy_only=False)[list(found.reasons)].any()
    return found.column.to_pylist(), dict(found.reasons)


def field(kind: pa.DataType, text: str | bytes) -> Any:
    """What a field of one type is made of a value's text; a reason is raised."""
    value = text.encode() if isinstance(text, str) else text
    (row,), reasons = decoded(pa.struct([("x", kind)]), [b'{"x":' + value + b"}"])
    if reasons:
        raise CorruptDataError(reasons[0])
    return row["x"]


@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(150))
def test_what_is_written_at_once_is_what_the_exact_rules_say_of_each_value(random: Random) -> None:
    kind = make_kind(random)
    documents = [document(random, kind) for _ in range(20)]
    decoder, exact = JsonDecoder(kind), ExactJson(kind, "UTC")
    found = decoder.decode(pa.array(documents, pa.binary()))
    found.column.validate(full=True)
    rows: list[Any] = []
    for slot, each in enumerate(documents):
        try:
            rows.append(exact.row(each))
        except CorruptDataError as error:
            assert found.reasons.get(slot) == str(error), each
            rows.append(None)
    expected = pa.scalar(rows, pa.list_(kind)).values
    # By their printed form, as not-a-number equals nothing.
    assert str(in_python(found.column)) == str(in_python(expected))
    assert len(found.reasons) == rows.count(None)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.int64(), "-0", 0),
        (pa.int64(), "-9223372036854775808", -(2**63)),
        (pa.int8(), "-128", -128),
        (pa.float64(), "123456789012345678901234567890", 1.2345678901234568e29),
        (pa.float64(), "0.10000000000000000555", 0.1),
        (pa.float64(), "1e400", float("inf")),
        (pa.float64(), '"-INF"', float("-inf")),
        (pa.float32(), "16777217", 16777216.0),
        (pa.float32(), "3.4028235677973366e38", 3.4028234663852886e38),
        (pa.float32(), "-3.4028235677973367e38", float("-inf")),
        (pa.float32(), "7.006492321624085e-46", 0.0),
        (pa.float32(), "7.006492321624086e-46", 1.401298464324817e-45),
        (pa.decimal128(5, 2), "1.005", decimal.Decimal("1.01")),
        (pa.decimal128(5, 2), "-1.005", decimal.Decimal("-1.01")),
        (pa.decimal128(20, 0), '"1,000.5"', decimal.Decimal(1001)),
        (pa.decimal128(38, 0), "9" * 38, decimal.Decimal("9" * 38)),
        (pa.string(), "1.10", "1.1"),
        (pa.string(), "1e400", '"Infinity"'),
        (pa.string(), "[5e-324,1e-322,1.04e-322,1e23]", "[4.9E-324,9.9E-323,1.04E-322,1.0E23]"),
        (pa.string(), "[5.684341886080802e-14,1e22]", "[5.684341886080802E-14,1.0E22]"),
        (pa.string(), "12345678901234567890", "12345678901234567890"),
        (pa.string(), "true", "true"),
        (pa.string(), '{"k" : [1.10, -0,"\\u001F\xe9"] }', '{"k":[1.1,0,"\\u001Fé"]}'),
        (pa.string(), '"\\ud83d\\ude00"', "\U0001f600"),
        (pa.string(), '"\\u0000"', "\0"),
        (pa.binary(), '"YWJj"', b"abc"),
        (pa.binary(), '" YWJj\\u0000\\nYQ==YWJj\\t"', b"abcaabc"),
        (pa.date32(), '"2020-02-29"', datetime.date(2020, 2, 29)),
        (pa.date32(), '"18262"', None),
        (UTC, "1.0e0", None),
        (UTC, "-1", datetime.datetime(1969, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)),
        (UTC, '"2020-01-02T03:04:05.000GMT+01:00"', datetime.datetime(2020, 1, 2, 2, 4, 5, tzinfo=datetime.UTC)),
        (UTC, '"2020-01-02T03:04:05+1:2"', datetime.datetime(2020, 1, 2, 2, 2, 5, tzinfo=datetime.UTC)),
        (UTC, '"2020-01-02T03:04:05+010203"', datetime.datetime(2020, 1, 2, 2, 2, 2, tzinfo=datetime.UTC)),
        (UTC, '"2020-01-02T03:04:05+123"', None),
        (UTC, '"2020-01-02T03:04:05+12345"', None),
        (UTC, '"2020-01-02T03:04:05+12:345"', None),
        (UTC, '"2020-01-02T03:04:05UTC+1:2:33"', None),
        (pa.map_(pa.string(), pa.int8()), '{"k":1,"k":null}', [("k", 1), ("k", None)]),
        (pa.list_(pa.field("element", pa.int8())), "[]", []),
    ],
)  # fmt: skip
def test_a_value_is_converted_as_spark_does(kind: pa.DataType, text: str, value: Any) -> None:
    if value is None:
        with pytest.raises((CorruptDataError, ValueError, OverflowError)):
            field(kind, text)
    else:
        assert field(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (pa.int8(), "128", ".x: the number 128 is no int8"),
        (pa.int64(), "9223372036854775808", ".x: the number 9223372036854775808 is no int64"),
        (pa.int64(), "1.0", ".x: the number 1.0 is no int64"),
        (pa.int64(), '"1"', ".x: the string '1' is no int64"),
        (pa.bool_(), '"true"', ".x: the string 'true' is no bool"),
        (pa.float64(), '"1.5"', ".x: the string '1.5' is no double"),
        (pa.decimal128(5, 2), "1e400", ".x: the number 1e400 is no decimal128(5, 2)"),
        (pa.decimal128(5, 2), "1e999999999", ".x: the number 1e999999999 is no decimal128(5, 2)"),
        (pa.decimal128(5, 2), "999.995", ".x: the number 999.995 is no decimal128(5, 2)"),
        (pa.string(), '"\\ud800"', ".x: half a surrogate pair"),
        (pa.string(), b'"\xff"', "byte 6 is not UTF-8"),
        (pa.string(), b'"\xed\xa0\x80"', "byte 6 is not UTF-8"),
        (pa.string(), '"a\tb"', "no JSON: Invalid control character at at character 7"),
        (pa.string(), "01", "no JSON: Expecting ',' delimiter at character 6"),
        (pa.int64(), "1" * 1001, "a number of 1001 characters"),
        (pa.binary(), '"YWJ"', ".x: the string 'YWJ' is no binary"),
        (pa.binary(), '"YW Jj"', ".x: the string 'YW Jj' is no binary"),
        (pa.binary(), '"YWJj="', ".x: the string 'YWJj=' is no binary"),
        (UTC, '"2020-01-02T"', ".x: the string '2020-01-02T' is no timestamp[us, tz=UTC]"),
        (UTC, "9223372036854775807", ".x: the number 9223372036854775807 is no timestamp[us, tz=UTC]"),
        (pa.timestamp("us"), '"2020-01-02T03:04:05Z"', ".x: the string '2020-01-02T03:04:05Z' is no timestamp[us]"),
        (pa.list_(pa.struct([("a", pa.int8())])), '[{},{"a":"z"}]', ".x[1].a: the string 'z' is no int8"),
        (pa.map_(pa.string(), pa.int8()), '{"k":{}}', ".x.k: an object is no int8"),
        (pa.map_(pa.string(), pa.int8()), '{"a\\nb":true}', ".x.a\\nb: true is no int8"),
        (pa.struct([("a", pa.int8())]), "[]", ".x: an array is no struct<a: int8>"),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_has_a_reason_that_names_it(
    kind: pa.DataType, text: str | bytes, reason: str
) -> None:
    with pytest.raises(CorruptDataError) as caught:
        field(kind, text)
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"", "the value is empty"),
        (b" \n", "the value is empty"),
        (b"null", "the value is null, not an object"),
        (b"[{}]", "the value is an array, not an object"),
        (b'{"x":1}{"x":2}', "no JSON: Extra data at character 7"),
        (b'{"x":1} z', "no JSON: Extra data at character 8"),
        (b"\xef\xbb\xbf{}", "no JSON: Expecting value at character 0"),
        (b'{"x":1', "no JSON: Expecting ',' delimiter at character 6"),
        (b'{"x":1,}', None),
        (b'{"z":' + b"[" * 1_000_000, "more than 200 levels of nesting"),
        (b'{"z":"' + b'\\"' * 500_000, "no JSON: Unterminated string starting at at character 5"),
        (b'{"x":1,"x":"two"}', ".x: the string 'two' is no int64"),
    ],
)
def test_a_document_that_is_none_has_a_reason_and_touches_no_other(document: bytes, reason: str | None) -> None:
    found, reasons = decoded(LONGS, [b'{"x":1,"y":2}', document, None, b'{"y":3}'])
    assert found == [{"x": 1, "y": 2}, None, None, {"x": None, "y": 3}]
    assert list(reasons) == [1] and (reason is None or reasons[1] == reason)


def test_of_a_key_that_comes_twice_the_last_value_counts() -> None:
    assert decoded(LONGS, [b'{"x":1,"y":2,"x":3}']) == ([{"x": 3, "y": 2}], {})


def test_keys_may_come_in_any_order_and_others_are_passed_over() -> None:
    documents = [b'{"y":2,"x":1}', b'{"x":3}', b'{"z":[{"x":9}],"x":4,"X":8}', b'{"y":5,"q":{},"x":6}']
    rows = [{"x": 1, "y": 2}, {"x": 3, "y": None}, {"x": 4, "y": None}, {"x": 6, "y": 5}]
    assert decoded(LONGS, documents) == (rows, {})


def test_a_name_with_a_quote_in_it_is_found_by_its_escape_alone() -> None:
    kind = pa.struct([('x":1,"y', pa.int64()), ("y", pa.int64())])
    found, _ = decoded(kind, [b'{"x\\":1,\\"y":5}', b'{"x":1,"y":2}'])
    assert found == [{'x":1,"y': 5, "y": None}, {'x":1,"y': None, "y": 2}]


def test_a_slice_of_values_is_decoded_like_any_other() -> None:
    values = pa.array([b'{"x":1}', None, b"z", b'{"x":2}', None, b'{"x":3}'], pa.binary()).slice(2, 4)
    found = JsonDecoder(LONGS).decode(values)
    assert found.column.field("x").to_pylist() == [None, 2, None, 3]
    assert list(found.reasons) == [0]
    assert len(JsonDecoder(LONGS).decode(values.slice(0, 0)).column) == 0
    assert JsonDecoder(LONGS).decode(pa.array([None, b""], pa.binary())).reasons == {1: "the value is empty"}


def test_the_kernel_is_compiled_once_wherever_the_values_lie() -> None:
    decoder = JsonDecoder(LONGS)
    written = pa.py_buffer(np.frombuffer(b"{}", np.uint8).copy())
    for values in (
        pa.array([b"{}"], pa.binary()),
        pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), written]),
        pa.array([None, b"", b"{}"], pa.binary()),
        pa.array([], pa.binary()),
    ):
        decoder.decode(values)
    assert len(append_documents.signatures) == 1


@pytest.mark.parametrize("value", [b"\0\2", b"\0", b"\0\0\2\2", b"\xff\1"])
def test_bytes_that_begin_no_value_are_no_container(value: bytes) -> None:
    found, reasons = decoded(LONGS, [b'{"x":1,"y":2}', b'{"x":' + value + b',"y":3}', b'{"x":5,"y":6}'])
    assert found == [{"x": 1, "y": 2}, None, {"x": 5, "y": 6}] and list(reasons) == [1]


def test_room_is_made_for_rows_that_take_more_than_those_before() -> None:
    kind = pa.struct([("text", pa.string()), ("numbers", pa.list_(pa.field("element", pa.int64())))])
    rows = [{"text": "x" * size, "numbers": list(range(size))} for size in (0, 1, 100_000, 3, 9_000, 2, 0)]
    assert decoded(kind, [orjson.dumps(row) for row in rows]) == (rows, {})


@pytest.mark.parametrize("rows", [1, 2])
def test_nulls_that_need_more_room_than_there_is_leave_the_next_column_alone(rows: int) -> None:
    kind = pa.struct([("nulls", pa.list_(pa.field("element", pa.int64()))), ("next", pa.int64())])
    for size in range(40):
        given = [{"next": 5, "nulls": [None] * size}] * rows
        assert decoded(kind, [orjson.dumps(row) for row in given]) == (given, {})


@pytest.mark.parametrize(
    ("kind", "fits", "huge"),
    [
        (
            pa.list_(pa.field("element", pa.struct([(f"f{at}", pa.int64()) for at in range(50)]))),
            [[], [{}]],
            [{}] * 10_000,
        ),
        (pa.string(), ["x", "x" * 500_000], "x" * (1 << 20)),
    ],
)
def test_a_value_that_takes_too_much_memory_has_a_reason(
    monkeypatch: pytest.MonkeyPatch, kind: pa.DataType, fits: list[Any], huge: Any
) -> None:
    monkeypatch.setattr(column_builder, "MAX_MEMORY", 1 << 20)
    values = [fits[0], huge, fits[1]]
    found, reasons = decoded(pa.struct([("x", kind)]), [orjson.dumps({"x": value}) for value in values])
    assert [row and len(row["x"]) for row in found] == [len(fits[0]), None, len(fits[1])]
    assert reasons == {1: column_builder.TOO_LARGE}


def test_timestamps_without_a_zone_are_in_the_sessions() -> None:
    kind = pa.struct([("x", UTC)])
    values = pa.array([b'{"x":"2020-07-01T12:00:00"}', b'{"x":"2020-07-01T12:00:00Z"}'], pa.binary())
    found = JsonDecoder(kind, zone="Europe/Berlin").decode(values)
    assert [row["x"].hour for row in found.column.to_pylist()] == [10, 12]
    with pytest.raises(ConfigurationError, match="Europe/Nowhere"):
        JsonDecoder(kind, zone="Europe/Nowhere")


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("0000-12-31 00:30:00 Europe/Berlin", -62135684608000000),
        ("10000-07-01T00:00:00 America/New_York", 253418040000000000),
        ("99999-12-31T02:30:00 Europe/Berlin", 3093527899800000000),
        ("294247-01-10 1:2:3 Pacific/Apia", 9223371979323000000),
    ],
)
def test_a_time_of_any_year_is_read_in_a_zone_with_a_name(text: str, micros: int) -> None:
    """The numbers are Spark's."""
    found = JsonDecoder(pa.struct([("x", UTC)])).decode(pa.array([orjson.dumps({"x": text})], pa.binary()))
    assert found.column.field(0).cast(pa.int64()).to_pylist() == [micros], found.reasons


@pytest.mark.parametrize("zone", ["America/__init__/x", "posix/UTC", "right/UTC", "localtime", "Factory", "zone.tab"])
def test_a_file_or_a_module_of_the_system_is_no_time_zone(zone: str) -> None:
    with pytest.raises(CorruptDataError, match="is no timestamp"):
        field(UTC, f'"2020-07-01T12:00:00 {zone}"')


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (pa.map_(pa.int32(), pa.int32()), "a key of JSON is a string"),
        (pa.struct([("a", pa.int8()), ("a", pa.int8())]), "two fields of one name"),
        (pa.duration("us"), "duration"),
        (pa.uint8(), "uint8"),
    ],
)
def test_a_type_that_json_cannot_be_read_into_is_refused(kind: pa.DataType, message: str) -> None:
    with pytest.raises((ConfigurationError, UnsupportedDataError), match=message):
        JsonDecoder(pa.struct([("x", kind)]))


def test_a_field_named_as_the_first_field_of_the_struct_before_it_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ExactJson, "row", None)
    decoder = JsonDecoder(pa.struct([("user", pa.struct([("id", pa.int64())])), ("id", pa.int64())]))
    found = decoder.decode(pa.array([b'{"user":{"id":1},"id":2}'] * 2, pa.binary()))
    assert found.column.to_pylist() == [{"user": {"id": 1}, "id": 2}] * 2


def test_as_deep_as_a_schema_may_go_values_are_read_both_ways() -> None:
    kind: pa.DataType = pa.struct([("x", pa.int64())])
    for _ in range(62):
        kind = pa.struct([("x", kind)])
    document = b'{"x":' * 63 + b"1" + b"}" * 63
    quick, exact = (JsonDecoder(kind).decode(pa.array([each], pa.binary())) for each in (document, document + b"\n"))
    assert quick.column.equals(exact.column) and not quick.reasons and not exact.reasons
    assert ExactJson(kind, "UTC").row(document) == orjson.loads(document)
    with pytest.raises(ConfigurationError, match="64 levels"):
        JsonDecoder(pa.struct([("x", pa.struct([("x", pa.struct([("x", kind)]))]))]))
