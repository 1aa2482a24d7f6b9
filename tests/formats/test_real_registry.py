"""With a real schema registry: it is asked, is away, stands still, and does not know."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

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


def record(*fields: tuple[str, Any]) -> str:
    listed = [{"name": name, "type": kind} for name, kind in fields]
    return json.dumps({"type": "record", "name": "r", "fields": listed})


def framed(schema_id: int, content: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4) + content


def test_each_value_is_read_by_the_schema_that_was_registered(registry: Apicurio, tmp_path: Path) -> None:
    one = registry.register("t-value", record(("a", "int")))
    two = registry.register("t-value", record(("b", ["null", "string"]), ("a", "int")))
    given = settings(registry, tmp_path)
    assert SchemaRegistry(given).latest("t-value").text == record(("b", ["null", "string"]), ("a", "int"))
    decoder = RegistryDecoder(given, record(("a", "int")), evolution=Evolution.ADD)
    values = [framed(two, b"\x02\x02x\x04"), framed(one, b"\x02"), framed(99_999_999, b"\x02")]
    decoded = decoder.decode(pa.array(values, pa.binary()))
    assert decoded.column.to_pylist() == [{"a": 2, "b": "x"}, {"a": 1, "b": None}, None]
    assert " schema 99999999" in decoded.reasons[2]


def test_a_schema_comes_with_those_that_it_refers_to(registry: Apicurio, tmp_path: Path) -> None:
    enum = {"type": "enum", "name": "x.e", "symbols": ["A", "B"]}
    registry.register("enum", json.dumps(enum))
    reference = {"name": "x.e", "subject": "enum", "version": 1}
    schema_id = registry.register("user", record(("e", "x.e")), references=[reference])
    decoder = RegistryDecoder(settings(registry, tmp_path), record(("e", enum)))
    decoded = decoder.decode(pa.array([framed(schema_id, b"\x02")], pa.binary()))
    assert decoded.column.to_pylist() == [{"e": "B"}]


def test_what_is_not_there_is_unknown(registry: Apicurio, tmp_path: Path) -> None:
    asking = SchemaRegistry(settings(registry, tmp_path))
    with pytest.raises(UnknownSchemaError):
        asking.by_id(77_777)
    with pytest.raises(UnknownSchemaError):
        asking.latest("nothing")


def test_a_registry_that_stands_still_is_an_error_until_it_goes_on(
    registry: Apicurio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema_id = registry.register("slow", '"long"')
    decoder = RegistryDecoder(settings(registry, tmp_path), '"long"')
    value = pa.array([framed(schema_id, b"\x02")], pa.binary())
    registry.hold(True)
    with monkeypatch.context() as patience:
        patience.setattr(schema_registry_module, "_FIRST_WAIT", 0)
        patience.setattr(schema_registry_module, "_READ_SECONDS", 0.2)
        with pytest.raises(SchemaRegistryUnavailableError, match="reached"):
            RegistryDecoder(settings(registry, tmp_path / "impatient"), '"long"').decode(value)
    registry.hold(False)
    assert decoder.decode(value).column.to_pylist() == [1]


def test_a_registry_that_is_away_is_an_error_but_for_what_it_has_told(
    registry: Apicurio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_registry_module, "_FIRST_WAIT", 0)
    known, other = registry.register("long", '"long"'), registry.register("int", '"int"')
    decoder = RegistryDecoder(settings(registry, tmp_path), '"long"')
    first, second = (pa.array([framed(each, b"\x02")], pa.binary()) for each in (known, other))
    assert decoder.decode(first).column.to_pylist() == [1]
    registry.stop()
    assert decoder.decode(first).column.to_pylist() == [1]
    with pytest.raises(SchemaRegistryUnavailableError, match="reached"):
        decoder.decode(second)
    registry.start()
    with pytest.raises(UnknownSchemaError):  # it has forgotten all
        SchemaRegistry(settings(registry, tmp_path)).by_id(other)
