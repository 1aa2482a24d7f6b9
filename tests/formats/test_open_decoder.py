"""A topic's newest schema in a registry says what its columns are, whatever the format."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from tests.delta import made_batches
from tests.formats.registry.test_registry_protobuf import ONE
from tests.formats.scripted_registry import ScriptedRegistry, framed
from tests.rigs.stack.rows import Record
from tiered_stream.delta.schema.row_plan import registered, resolved
from tiered_stream.errors import ConfigurationError, UnknownSchemaError
from tiered_stream.formats.open_decoder import open_decoder, with_registered
from tiered_stream.formats.registry.schema_registry import SchemaRegistry
from tiered_stream.formats.row_decoder import RowDecoder
from tiered_stream.formats.rows.row_choices import Evolution, Format, OnDecodeError
from tiered_stream.formats.rows.row_format import VALUE, PartFormat, RowFormat, schema_to_text

ORDER = {"schema": ONE, "schemaType": "PROTOBUF"}


def values_of(registry: ScriptedRegistry, kind: Format) -> RowFormat:
    part = PartFormat(kind, "", "p.Order" if kind is Format.PROTOBUF else "", registered=True)
    return RowFormat((("offset", "offset"),), value=part, registry={"url": registry.url})


def decoded(how: RowFormat, subject: str, value: bytes) -> list[Any]:
    """Return the row of a value, in a task that gets the newest schema of its subject."""
    how = replace(how, value=with_registered(how.value, how, subject))
    in_a_task = pickle.loads(pickle.dumps(how))
    assert in_a_task == how
    decoder = open_decoder(in_a_task, VALUE)
    assert decoder is not None
    found = decoder.decode(pa.array([value], pa.binary()))
    assert found.reasons == {}
    return found.column.to_pylist()


def test_a_registered_json_schema_says_what_the_columns_are(registry: ScriptedRegistry) -> None:
    line = {"type": "object", "properties": {"n": {"type": "integer"}}}
    order = {"type": "object", "properties": {"id": {"type": "integer"}, "line": {"$ref": "line.json"}}}
    registry.versions["line", "1"] = {"schema": json.dumps(line), "schemaType": "JSON"}
    reference = {"name": "line.json", "subject": "line", "version": 1}
    registry.schemas[5] = {"schema": json.dumps(order), "schemaType": "JSON", "references": [reference]}
    registry.versions["lines-value", "latest"] = {"id": 5, **registry.schemas[5]}
    value = framed(5, b'{"id":1,"line":{"n":2}}')
    assert decoded(values_of(registry, Format.JSON), "lines-value", value) == [{"id": 1, "line": {"n": 2}}]


@pytest.mark.parametrize("schema", [{"type": "array"}, {"properties": {"a": {"$ref": "x.json"}}}])
def test_a_registered_json_schema_without_columns_is_refused_by_its_subject(
    registry: ScriptedRegistry, schema: object
) -> None:
    registry.versions["lines-value", "latest"] = {"schema": json.dumps(schema), "schemaType": "JSON"}
    how = values_of(registry, Format.JSON)
    with pytest.raises(ConfigurationError, match="'lines-value' .*JSON Schema"):
        with_registered(how.value, how, "lines-value")


def test_values_that_name_a_schema_are_read_by_one_that_is_given(registry: ScriptedRegistry) -> None:
    registry.schemas[5] = {"schema": "{}", "schemaType": "JSON"}
    given = schema_to_text(pa.schema([("id", pa.int32())]))
    how = replace(values_of(registry, Format.JSON), value=PartFormat(Format.JSON, given, registered=True))
    assert decoded(how, "any", framed(5, b'{"id":1}')) == [{"id": 1}]
    assert registry.asked == ["/schemas/ids/5"]


def avro(*names: str) -> str:
    fields = [{"name": name, "type": "string"} for name in names]
    return json.dumps({"type": "record", "name": "Person", "fields": fields})


@pytest.mark.parametrize("kind", [Format.AVRO, Format.JSON, Format.PROTOBUF])
@pytest.mark.parametrize(("path", "subject"), [("", ":.prod:people-value"), ("/contexts/.prod", "people-value")])
def test_ids_are_looked_up_in_the_context_of_the_subject(
    registry: ScriptedRegistry, kind: Format, path: str, subject: str
) -> None:
    wrong = {"schema": avro("last", "first")}
    texts = {Format.AVRO: avro("first", "last"), Format.PROTOBUF: ONE, Format.JSON: json.dumps(
        {"properties": {name: {"type": "string"} for name in ("first", "last")}}
    )}  # fmt: skip
    values = {Format.AVRO: b"\6Ada\20Lovelace", Format.PROTOBUF: b"\0\x08\x05",
              Format.JSON: b'{"first":"Ada","last":"Lovelace"}'}  # fmt: skip
    registry.schemas[1] = wrong
    registry.contexts[":.prod:"] = {1: {"schema": texts[kind], "schemaType": kind.value.upper()}}
    registry.versions["%3A.prod%3Apeople-value", "latest"] = registry.contexts[":.prod:"][1]
    how = values_of(registry, kind)
    how = replace(how, value=replace(how.value, subject=subject), registry={"url": registry.url + path})
    row = {"a": 5, "b": None} if kind is Format.PROTOBUF else {"first": "Ada", "last": "Lovelace"}
    assert decoded(how, subject, framed(1, values[kind])) == [row]


def test_references_are_in_the_context_of_the_schema_that_refers_to_them(registry: ScriptedRegistry) -> None:
    def referring(name: str, subject: str) -> dict[str, object]:
        field = {"name": name.lower(), "type": name}
        record = {"type": "record", "name": subject.strip(":.") + "R", "fields": [field]}
        return {"schema": json.dumps(record), "references": [{"name": name, "subject": subject, "version": 1}]}

    registry.versions["%3A.prod%3Apeople", "1"] = {"schema": avro("first")}
    registry.versions["people", "1"] = {"schema": avro("last")}
    registry.contexts[":.prod:"] = {1: referring("Person", "people")}
    schemas = SchemaRegistry(replace(registry.settings, context=":.prod:"))
    assert schemas.by_id(1).references == (("Person", avro("first")),)
    assert schemas.by_id(1) is schemas.by_id(1)


def test_a_subject_that_is_not_there_is_told_with_the_settings_that_name_another(registry: ScriptedRegistry) -> None:
    how = values_of(registry, Format.AVRO)
    with pytest.raises(
        UnknownSchemaError, match=r"nobody-value.*ingest\.value\.subject\.name\.strategy .*ingest\.value\.subject"
    ):
        registered(how, "nobody")


def test_a_subject_of_another_format_is_refused(registry: ScriptedRegistry) -> None:
    registry.versions["orders-value", "latest"] = {"id": 1, **ORDER}
    how = values_of(registry, Format.AVRO)
    with pytest.raises(ConfigurationError, match="'orders-value' .*PROTOBUF, .* avro"):
        with_registered(how.value, how, "orders-value")


def test_a_schema_that_refers_to_others_is_pinned_with_them(registry: ScriptedRegistry) -> None:
    enum = {"type": "enum", "name": "x.e", "symbols": ["A", "B"]}
    newest = {"type": "record", "name": "r", "fields": [{"name": "e", "type": "x.e"}]}
    registry.versions["enum", "3"] = {"schema": json.dumps(enum)}
    referring = {"schema": json.dumps(newest), "references": [{"name": "x.e", "subject": "enum", "version": 3}]}
    registry.schemas[2] = referring
    registry.versions["users-value", "latest"] = {"id": 2, **referring}
    assert decoded(values_of(registry, Format.AVRO), "users-value", framed(2, b"\2")) == [{"e": "B"}]


@pytest.mark.parametrize("kind", ["float", "double"])
def test_a_column_of_times_is_never_widened_to_a_writers_double(registry: ScriptedRegistry, kind: str) -> None:
    def born(kind: str) -> dict[str, object]:
        record = {"type": "record", "name": "r", "fields": [{"name": "born", "type": kind}]}
        return {"schema": json.dumps(record)}

    registry.versions["t-value", "latest"] = registry.schemas[1] = born("int")
    registry.schemas[2], registry.schemas[3] = born(kind), born("long")
    how = replace(
        values_of(registry, Format.AVRO), times=(("born", "days"),), evolution=Evolution.WIDEN,
        on_error=OnDecodeError.DEAD_LETTER,
    )  # fmt: skip
    contents = {1: b"\4", 2: bytes(4 if kind == "float" else 8), 3: b"\6"}
    values = [framed(at, content) for at, content in contents.items()]
    found = RowDecoder(resolved(how, "t")).decode(made_batches.decoded([Record(None, value) for value in values]))
    assert found.rows.column("born").to_pylist() == [date(1970, 1, 3), date(1970, 1, 4)]
    assert found.dead is not None and found.dead.column("offset").to_pylist() == [1]
