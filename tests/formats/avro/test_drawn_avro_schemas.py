"""Drawn Avro schemas of writers and readers: no column is lost, and no value is another one than fastavro reads."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import examples
from tests.formats.avro_cases import Grown, Schemas, as_text, encoded, in_column, value
from tests.formats.landed import landed
from tests.formats.scripted_registry import ScriptedRegistry, framed
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.rows.row_choices import AvroColumns, LargeDecimals

IDS = itertools.count(1, 2)


@pytest.fixture(scope="module")
def registry() -> Iterator[ScriptedRegistry]:
    with ScriptedRegistry() as server:
        yield server


@given(st.integers(0, 2**32))
@settings(max_examples=examples(200), deadline=None)
def test_no_column_of_a_drawn_schema_is_lost_and_no_value_is_changed(registry: ScriptedRegistry, seed: int) -> None:
    random = Random(seed)
    schemas = Schemas(random, every=True)
    written, grown = schemas.record(), Grown(schemas)
    reader = written if schemas.reuses else grown.of(written)
    columns = AvroColumns(random.choice([*LargeDecimals]), random.random() < 0.5)
    number, values, expected, beyond = next(IDS), [], [], set[int]()
    for at in range(10):
        writer = written if reader is written else random.choice((written, reader))
        content = encoded(writer, value(random, writer))
        values.append(content if reader is written else framed(number + (writer is reader), content))
        try:
            wanted, defaults = (None, {}) if writer is reader else (reader, grown.defaults)
            expected.append(in_column(writer, content, columns, wanted, defaults))
        except OverflowError:
            beyond.add(at)

    given: dict[str, Any] = {"largeDecimals": columns.large_decimals, "value_format": "avro"}
    given |= {"times": "schema"} if columns.has_named_times else {}
    if reader is not written:
        registry.schemas |= {number + at: {"schema": as_text(each)} for at, each in enumerate((written, reader))}
        given |= {"value_schema.id.deserializer": "PrefixSchemaIdDeserializer", "schema_registry_url": registry.url}
    values += [None, values[0] + b"\0"]
    rows, reasons = landed(values, value_schema=as_text(reader, random), **given)
    assert reasons.keys() == {*beyond, len(values) - 1}, reasons
    assert all("more digits" in reasons[at] for at in beyond)
    expected.append({each["name"]: None for each in reader["fields"]})
    assert rows == expected


@given(st.integers(0, 2**32))
@settings(max_examples=examples(20), deadline=None)
def test_a_drawn_schema_that_holds_itself_is_refused(seed: int) -> None:
    schema = Schemas(Random(seed), every=True).record()
    schema["fields"].append({"name": "next", "type": ["null", schema["name"]]})
    with pytest.raises(ConfigurationError, match="holds itself"):
        landed([], value_format="avro", value_schema=as_text(schema))
