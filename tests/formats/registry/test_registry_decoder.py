"""Values that name their schemas come out in their order, each read by its own."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from tests.formats.avro_cases import encoded, record, varint
from tests.formats.scripted_registry import HEADER, ScriptedRegistry, framed, headers_of, with_guid
from tests.local_http import Answer
from tiered_stream.errors import SchemaRegistryError, SchemaRegistryUnavailableError, UnsupportedDataError
from tiered_stream.formats.columns.decoded import ByteSlices, Decoded
from tiered_stream.formats.registry import writer_schemas
from tiered_stream.formats.registry.registry_decoder import RegistryDecoder
from tiered_stream.formats.registry.writer_schemas import NOT_FRAMED
from tiered_stream.formats.rows.row_choices import AvroColumns, Evolution, LargeDecimals

GUID = UUID("00112233-4455-6677-8899-aabbccddeeff")


def register(registry: ScriptedRegistry, schema_id: int, schema: Any) -> None:
    registry.schemas[schema_id] = {"schema": json.dumps(schema)}


def decoder(registry: ScriptedRegistry, reader: Any, evolution: Evolution = Evolution.NONE) -> RegistryDecoder:
    return RegistryDecoder(registry.settings, json.dumps(reader), evolution=evolution)


def decode(of: RegistryDecoder, *values: bytes | None) -> Decoded:
    decoded = of.decode(pa.array(values, pa.binary()))
    decoded.column.validate(full=True)
    return decoded


ONE, TWO = record(("a", "int"), ("b", "string")), record(("c", "double"), ("a", "long"))
READER = record(("a", "long"), {"name": "b", "type": ["null", "string"], "default": None})


def test_without_evolution_values_have_those_fields_of_older_schemas_that_a_table_has(
    registry: ScriptedRegistry,
) -> None:
    inner = record(("x", "int"), ("y", "int"))
    register(registry, 1, record(("a", "int"), ("b", "string"), ("c", "int"), ("n", {**inner, "name": "n"})))
    newest = record(("a", "int"), ("n", {**record(("x", "int")), "name": "n"}))
    register(registry, 2, newest)
    older = pa.struct([("a", pa.int32()), ("b", pa.string()), ("n", pa.struct([("x", pa.int32()), ("y", pa.int32())]))])
    reader = RegistryDecoder(registry.settings, json.dumps(newest), column=older)
    found = decode(reader, framed(2, b"\x02\x04"), framed(1, b"\x06\x02x\x08\x0a\x0c")).column.to_pylist()
    assert found == [
        {"a": 1, "n": {"x": 2, "y": None}, "b": None},
        {"a": 3, "n": {"x": 5, "y": 6}, "b": "x"},
    ]


def test_each_value_is_read_by_the_schema_that_it_names(registry: ScriptedRegistry) -> None:
    register(registry, 1, ONE)
    register(registry, 1 << 30, TWO)
    one, two = framed(1, b"\x02\x02x"), framed(1 << 30, b"\0" * 8 + b"\x04")
    decoded = decode(decoder(registry, READER), two, one, None, one, two, b"", b"\1\0\0\0\1", framed(9, b""))
    assert decoded.column.to_pylist()[:5] == [
        {"a": 2, "b": None}, {"a": 1, "b": "x"}, None, {"a": 1, "b": "x"}, {"a": 2, "b": None}
    ]  # fmt: skip
    assert decoded.column.null_count == 4
    assert decoded.reasons[5] == decoded.reasons[6] == NOT_FRAMED
    assert " schema 9" in decoded.reasons[7]
    assert len(registry.asked) == 3


def test_a_column_grows_by_the_fields_that_writers_add(registry: ScriptedRegistry) -> None:
    inner = {**record(("y", "int")), "name": "q"}
    register(registry, 1, ONE)
    register(registry, 2, record(("a", "int"), ("b", "string"), ("new", inner), ("A", "int")))
    one, two = framed(1, b"\x02\x02x"), framed(2, b"\x02\x02x\x06\0")
    growing = decoder(registry, READER, evolution=Evolution.ADD)
    before = growing.kind
    assert decode(growing, one).column.type == before
    decoded = decode(growing, one, two)
    assert decoded.reasons == {}
    assert decoded.column.to_pylist() == [{"a": 1, "b": "x", "new": None}, {"a": 1, "b": "x", "new": {"y": 3}}]
    assert decoded.column.type == growing.kind != before
    assert decode(growing, one).column.type == growing.kind
    assert decode(decoder(registry, READER), two).column.to_pylist() == [{"a": 1, "b": "x"}]


def test_only_the_first_of_new_fields_whose_names_differ_by_case_is_added(registry: ScriptedRegistry) -> None:
    def schema(*names: str) -> dict[str, Any]:
        return record(("n", {**record(*((name, "int") for name in names)), "name": "n"}))

    register(registry, 1, schema("x", "foo", "X", "Foo"))
    growing = decoder(registry, schema("x"), evolution=Evolution.ADD)
    decoded = decode(growing, framed(1, b"\2\4\6\x08"))
    assert decoded.reasons == {} and decoded.column.to_pylist() == [{"n": {"x": 1, "foo": 2}}]


def test_fields_within_lists_and_maps_are_added_too(registry: ScriptedRegistry) -> None:
    def schema(*fields: tuple[str, Any]) -> dict[str, Any]:
        inner = ["null", {**record(*fields), "name": "q"}]
        return record(("l", {"type": "array", "items": {"type": "map", "values": inner}}))

    register(registry, 1, schema(("x", "int"), ("y", "int")))
    growing = decoder(registry, schema(("x", "int")), evolution=Evolution.ADD)
    decoded = decode(growing, framed(1, b"\x02\x02\x02k\x02\x02\x04\0\0"))
    assert decoded.column.to_pylist() == [{"l": [[("k", {"x": 1, "y": 2})]]}]


def test_numbers_become_wider_as_writers_write_them(registry: ScriptedRegistry) -> None:
    inner = {"type": "array", "items": ["null", "int"]}
    narrow = record(("a", "int"), ("b", "float"), ("c", ["null", "int"]), ("d", inner))
    wide = record(("a", ["null", "long"]), ("b", "double"), ("c", "float"), ("d", {"type": "array", "items": "long"}))
    register(registry, 1, narrow)
    register(registry, 2, wide)
    one = framed(1, encoded(narrow, {"a": 1, "b": 0.5, "c": 3, "d": [4]}))
    two = framed(2, encoded(wide, {"a": 1 << 40, "b": 0.1, "c": 1.5, "d": [1 << 41]}))
    found = decode(decoder(registry, narrow, Evolution.WIDEN), one, two)
    assert found.reasons == {} and found.column.to_pylist() == [
        {"a": 1, "b": 0.5, "c": 3.0, "d": [4]}, {"a": 1 << 40, "b": 0.1, "c": 1.5, "d": [1 << 41]}
    ]  # fmt: skip
    assert [each.type for each in found.column.type][:3] == [pa.int64(), pa.float64(), pa.float64()]
    reasons = decode(decoder(registry, narrow, Evolution.ADD), one, two).reasons
    assert list(reasons) == [1] and "schema evolution widen" in reasons[1]


@pytest.mark.parametrize("newest", [1, 2])
def test_decimals_become_wider_as_writers_write_them(registry: ScriptedRegistry, newest: int) -> None:
    def priced(precision: int) -> dict[str, Any]:
        return record(("a", {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 2}))

    schemas = {1: priced(9), 2: priced(12)}
    for number, schema in schemas.items():
        register(registry, number, schema)
    one, two = framed(1, b"\2\7"), framed(2, b"\x0a" + (10**11).to_bytes(5))
    found = decode(decoder(registry, schemas[newest], Evolution.WIDEN), one, two)
    assert found.reasons == {} and found.column.type == pa.struct([("a", pa.decimal128(12, 2))])
    assert found.column.to_pylist() == [{"a": Decimal("0.07")}, {"a": Decimal("1000000000.00")}]
    column = pa.struct([("a", pa.decimal128(12, 2))])
    again = RegistryDecoder(registry.settings, json.dumps(schemas[1]), evolution=Evolution.WIDEN, column=column)
    assert again.kind == column and decode(again, one).column.to_pylist() == [{"a": Decimal("0.07")}]


def test_a_decimal_column_does_not_become_a_text_for_a_writers_larger_decimal(registry: ScriptedRegistry) -> None:
    schemas = [
        record(("a", {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 2}))
        for precision in (9, 50)
    ]
    register(registry, 1, schemas[1])
    columns = AvroColumns(LargeDecimals.STRING)
    reader = RegistryDecoder(registry.settings, json.dumps(schemas[0]), evolution=Evolution.WIDEN, columns=columns)
    found = decode(reader, framed(1, b"\2\7"), framed(1, b"\x0a" + (10**11).to_bytes(5)))
    assert found.column.to_pylist() == [{"a": Decimal("0.07")}, None]
    assert list(found.reasons) == [1] and "more digits" in found.reasons[1]


def test_values_are_read_as_the_wider_type_that_the_table_has(registry: ScriptedRegistry) -> None:
    register(registry, 1, record(("a", "int")))
    register(registry, 2, record(("a", "double")))
    column = pa.struct([("a", pa.int64()), ("b", pa.string())])
    reader = json.dumps(record(("a", "int")))
    found = decode(
        RegistryDecoder(registry.settings, reader, evolution=Evolution.WIDEN, column=column),
        framed(1, b"\x02"), framed(2, b"\0" * 8),
    )  # fmt: skip
    assert found.column.type == pa.struct([("a", pa.int64())]) and found.column.to_pylist() == [{"a": 1}, None]
    assert list(found.reasons) == [1]


@pytest.mark.parametrize("order", [(2, 3), (3, 2)])
def test_a_number_that_becomes_wider_in_two_ways_is_an_error_whatever_came_first(
    registry: ScriptedRegistry, order: tuple[int, int]
) -> None:
    register(registry, 2, record(("a", "long")))
    register(registry, 3, record(("a", "double")))
    widening = decoder(registry, record(("a", "int")), Evolution.WIDEN)
    values = {2: framed(2, b"\x02"), 3: framed(3, b"\0" * 8)}
    decode(widening, values[order[0]])
    with pytest.raises(UnsupportedDataError, match="a .*(double .*int64|int64 .*double)"):
        decode(widening, values[order[1]])


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        ({"schema": json.dumps(record(("a", "string")))}, "schema 3: values of the writer's schema cannot be read"),
        ({"schema": "{}"}, "schema 3: the schema: this is no Avro type"),
        ({"schema": "x", "schemaType": "JSON"}, "schema 3 is of the format JSON, not AVRO"),
    ],
)
def test_a_schema_that_does_not_fit_is_the_reason_of_its_values(
    registry: ScriptedRegistry, stored: dict[str, Any], why: str
) -> None:
    registry.schemas[3] = stored
    register(registry, 1, ONE)
    decoded = decode(decoder(registry, READER), framed(3, b"\x02"), framed(1, b"\x02\x02x"))
    assert decoded.column.to_pylist() == [None, {"a": 1, "b": "x"}]
    assert list(decoded.reasons) == [0] and why in decoded.reasons[0]


def test_a_registry_that_is_down_is_no_reason_but_an_error(registry: ScriptedRegistry) -> None:
    registry.answers += [Answer(503)] * 5
    register(registry, 1, ONE)
    asking = decoder(registry, READER)
    with pytest.raises(SchemaRegistryUnavailableError):
        decode(asking, framed(1, b"\x02\x02x"))
    assert decode(asking, framed(1, b"\x02\x02x")).reasons == {}


def test_values_whose_schema_is_in_a_header_are_read_by_it(registry: ScriptedRegistry) -> None:
    register(registry, 1, ONE)
    registry.guids[str(GUID)] = {"schema": json.dumps(TWO)}
    asking = RegistryDecoder(registry.settings, json.dumps(READER), header=HEADER)
    given = [with_guid(GUID), None, with_guid(UUID(int=5)), b"\3", b"\0\0\0\0\1"]
    headers = headers_of(given)
    whole, one = b"\0" * 8 + b"\x04", b"\x02\x02x"
    values = pa.array([whole, framed(1, one), whole, whole, one], pa.binary())
    for _ in range(2):
        decoded = asking.decode(values, headers)
        row = {"a": 1, "b": "x"}
        assert decoded.column.to_pylist() == [{"a": 2, "b": None}, row, None, None, row]
        assert decoded.reasons == {
            2: f"the schema registry has no schema {UUID(int=5)}",
            3: "its header for the schema's id holds neither an id nor a GUID",
        }
    assert len(registry.asked) == 3


def test_a_registry_that_knows_no_guids_is_an_error_that_says_so(registry: ScriptedRegistry) -> None:
    registry.answers.append(Answer(404, b"<html>"))
    headers = headers_of([with_guid(GUID)])
    asking = RegistryDecoder(registry.settings, '"int"', header=HEADER)
    with pytest.raises(SchemaRegistryError, match="GUIDs.*PrefixSchemaIdDeserializer"):
        asking.decode(pa.array([b"\2"], pa.binary()), headers)


def test_garbage_is_no_flood_of_requests(registry: ScriptedRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_schemas, "_MAX_UNKNOWN", 5)
    register(registry, 1000, "int")
    good = [framed(1000, varint(1))] * 2
    decoded = decode(decoder(registry, "int"), *good, *(framed(each, b"") for each in range(50)))
    assert decoded.column.to_pylist() == [1, 1, *[None] * 50]
    assert len(registry.asked) == 6
    assert sum("was not asked for" in why for why in decoded.reasons.values()) == 45


def test_values_without_a_usable_schema_are_not_read_one_schema_after_another(
    registry: ScriptedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(registry, 1000, "int")
    register(registry, 1001, "long")
    sizes, take = [], ByteSlices.take

    def counted(slices: ByteSlices, rows: Any) -> ByteSlices:
        sizes.append(len(rows))
        return take(slices, rows)

    monkeypatch.setattr(ByteSlices, "take", counted)
    garbage = [framed(each, b"") for each in range(50)]
    decoded = decode(decoder(registry, "long"), *garbage, framed(1001, b"\4"), None, framed(1000, b"\2"))
    assert decoded.column.to_pylist() == [*[None] * 50, 2, None, 1]
    assert list(decoded.reasons) == [*range(50)] and len(sizes) == 2


def test_no_values_are_no_rows(registry: ScriptedRegistry) -> None:
    asking = decoder(registry, READER)
    assert decode(asking).column == pa.array([], asking.kind)
    assert decode(asking, None, None).column.null_count == 2
