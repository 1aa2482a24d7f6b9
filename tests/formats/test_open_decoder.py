"""A topic's newest schema in a registry says what its columns are, whatever the format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.formats.scripted_registry import ScriptedRegistry
from tests.formats.test_registry_protobuf import ONE, framed
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.open_decoder import open_decoder, with_registered
from tiered_stream.formats.row_choices import Format
from tiered_stream.formats.row_format import VALUE, PartFormat, RowFormat, row_format


@pytest.fixture
def registry() -> Iterator[ScriptedRegistry]:
    with ScriptedRegistry() as server:
        server.schemas[1] = {"schema": ONE, "schemaType": "PROTOBUF"}
        server.versions["orders-value", "latest"] = {"id": 1, **server.schemas[1]}
        yield server


def values_of(registry: ScriptedRegistry, kind: Format) -> RowFormat:
    part = PartFormat(kind, "", "p.Order" if kind is Format.PROTOBUF else "", registered=True)
    return RowFormat((("offset", "offset"),), value=part, registry={"url": registry.url})


def test_messages_are_read_by_the_newest_schema_of_their_subject(registry: ScriptedRegistry) -> None:
    how = values_of(registry, Format.PROTOBUF)
    how = replace(how, value=with_registered(how.value, how, "orders-value"))
    decoder = open_decoder(how, VALUE)
    assert decoder is not None
    assert decoder.decode(pa.array([framed(1)], pa.binary())).column.to_pylist() == [{"a": 5, "b": None}]


def test_a_subject_of_another_format_is_refused(registry: ScriptedRegistry) -> None:
    how = values_of(registry, Format.AVRO)
    with pytest.raises(ConfigurationError, match="'orders-value' in the registry is of the format PROTOBUF, .* avro"):
        with_registered(how.value, how, "orders-value")


def test_a_schema_that_refers_to_others_is_pinned_with_them(registry: ScriptedRegistry) -> None:
    enum = {"type": "enum", "name": "x.e", "symbols": ["A", "B"]}
    newest = {"type": "record", "name": "r", "fields": [{"name": "e", "type": "x.e"}]}
    registry.versions["enum", "3"] = {"schema": json.dumps(enum)}
    referring = {"schema": json.dumps(newest), "references": [{"name": "x.e", "subject": "enum", "version": 3}]}
    registry.schemas[2] = referring
    registry.versions["users-value", "latest"] = {"id": 2, **referring}
    how = values_of(registry, Format.AVRO)
    how = replace(how, value=with_registered(how.value, how, "users-value"))
    in_a_task = row_format(how.to_json(), how.registry)
    assert in_a_task == how
    decoder = open_decoder(in_a_task, VALUE)
    assert decoder is not None
    assert decoder.decode(pa.array([b"\0\0\0\0\2\2"], pa.binary())).column.to_pylist() == [{"e": "B"}]
