"""With a real schema registry: it is asked, is away, stands still, and does not know."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.formats.avro_cases import record
from tests.formats.scripted_registry import framed
from tests.rigs.stack.apicurio import Apicurio
from tiered_stream.errors import SchemaRegistryUnavailableError, UnknownSchemaError
from tiered_stream.formats.registry import schema_registry as schema_registry_module
from tiered_stream.formats.registry.registry_decoder import RegistryDecoder
from tiered_stream.formats.registry.schema_registry import RegistrySettings, SchemaRegistry
from tiered_stream.formats.rows.row_choices import Evolution

pytestmark = [pytest.mark.stack, pytest.mark.slow]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apicurio]:
    with Apicurio(tmp_path_factory.mktemp("apicurio")) as running:
        yield running


def settings(registry: Apicurio, folder: Path) -> RegistrySettings:
    """Of the test's own, as a process keeps what it was told for given settings."""
    return RegistrySettings.parse({"url": registry.url, "basic.auth.user.info": f"{folder.name}:password"})


def schema(*fields: Any) -> str:
    return json.dumps(record(*fields))


def test_each_value_is_read_by_the_schema_that_was_registered(registry: Apicurio, tmp_path: Path) -> None:
    one = registry.register("t-value", schema(("a", "int")))
    two = registry.register("t-value", schema(("b", ["null", "string"]), ("a", "int")))
    enum = {"type": "enum", "name": "x.e", "symbols": ["A", "B"]}
    registry.register("enum", json.dumps(enum))
    reference = {"name": "x.e", "subject": "enum", "version": 1}
    three = registry.register("user", schema(("a", "int"), ("e", "x.e")), references=[reference])
    given = settings(registry, tmp_path)
    assert SchemaRegistry(given).latest("t-value").text == schema(("b", ["null", "string"]), ("a", "int"))
    with pytest.raises(UnknownSchemaError):
        SchemaRegistry(given).latest("nothing")
    decoder = RegistryDecoder(given, schema(("a", "int")), evolution=Evolution.ADD)
    values = [framed(two, b"\x02\x02x\x04"), framed(one, b"\x02"), framed(99_999_999, b"\x02"), framed(three, b"\6\2")]
    decoded = decoder.decode(pa.array(values, pa.binary()))
    assert decoded.column.to_pylist() == [
        {"a": 2, "b": "x", "e": None}, {"a": 1, "b": None, "e": None}, None, {"a": 3, "b": None, "e": "B"}
    ]  # fmt: skip
    assert " schema 99999999" in decoded.reasons[2]


def test_a_registry_that_stands_still_or_is_away_is_an_error_but_for_what_it_has_told(
    registry: Apicurio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_registry_module, "_FIRST_WAIT", 0)
    known, other = registry.register("long", '"long"'), registry.register("int", '"int"')
    decoder = RegistryDecoder(settings(registry, tmp_path), '"long"')
    first, second = (pa.array([framed(each, b"\x02")], pa.binary()) for each in (known, other))
    assert decoder.decode(first).column.to_pylist() == [1]
    registry.hold(True)
    with monkeypatch.context() as patience:
        patience.setattr(schema_registry_module, "_READ_SECONDS", 0.2)
        with pytest.raises(SchemaRegistryUnavailableError, match="reached"):
            RegistryDecoder(settings(registry, tmp_path / "impatient"), '"long"').decode(second)
    registry.hold(False)
    registry.stop()
    assert decoder.decode(first).column.to_pylist() == [1]
    with pytest.raises(SchemaRegistryUnavailableError, match="reached"):
        decoder.decode(second)
    registry.start()
    with pytest.raises(UnknownSchemaError):  # it has forgotten all
        SchemaRegistry(settings(registry, tmp_path)).by_id(other)
