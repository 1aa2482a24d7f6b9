"""JSON Schemas that state drawn types in drawn ways: no column is lost, and no value is changed.

The types are drawn first, so that the expected columns do not come from a reading of the schema.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import examples
from tiered_stream.formats.json.json_decoder import JsonDecoder
from tiered_stream.formats.json.json_schema import json_schema_kind

Drawn = tuple[Any, Any]
"""A value as JSON, and the value that its column has."""
LEAVES: tuple[tuple[dict[str, Any], pa.DataType], ...] = (
    ({"type": "integer"}, pa.int64()),
    ({"type": "number"}, pa.float64()),
    ({"type": "boolean"}, pa.bool_()),
    ({"type": "string"}, pa.string()),
    ({"type": "string", "format": "date"}, pa.date32()),
    ({"type": "string", "format": "date-time"}, pa.timestamp("us", tz="UTC")),
    ({"type": "string", "contentEncoding": "base64"}, pa.binary()),
    ({"type": ["integer", "string"]}, pa.string()),
)
CONDITIONS: tuple[dict[str, Any], ...] = (
    {"anyOf": [{"minimum": 3}, {"maxLength": 4}, {"required": ["a"]}]},
    {"oneOf": [{"required": ["a"]}, {"not": {"required": ["a"]}}]},
    {"not": {"const": "never"}},
    {"allOf": [{"description": "nothing"}, {"minProperties": 0}]},
    {"if": {"required": ["a"]}, "then": {"minProperties": 1}},
    {"dependentSchemas": {"a": {"minProperties": 1}}},
)


@dataclass(eq=False)
class Schemas:
    """Drawn schemas. `definitions` are the parts to which their references lead."""

    random: Random
    definitions: dict[str, Any] = field(default_factory=dict)

    def kind(self, depth: int) -> pa.DataType:
        """Draw the type of a column."""
        choice = self.random.randrange(12 if depth else 8)
        if choice < 8:
            return LEAVES[choice][1]
        if choice == 8:
            return pa.list_(pa.field("element", self.kind(depth - 1)))
        return pa.map_(pa.string(), self.kind(depth - 1)) if choice == 9 else self.struct(depth - 1)

    def struct(self, depth: int) -> pa.StructType:
        return pa.struct([(name, self.kind(depth)) for name in "abcdef"[: self.random.randint(1, 6)]])

    def written(self, kind: pa.DataType) -> dict[str, Any]:
        """Return a schema of the values of a column, with conditions and detours."""
        if pa.types.is_struct(kind):
            return self.around(self.of_struct(kind))
        if pa.types.is_list(kind):
            return self.around({"type": "array", "items": self.written(kind.value_type)})
        if pa.types.is_map(kind):
            return self.around({"type": "object", "additionalProperties": self.written(kind.item_type)})
        return self.around(dict(self.random.choice([schema for schema, of in LEAVES if of == kind])))

    def of_struct(self, kind: pa.StructType) -> dict[str, Any]:
        """Return a schema of objects whose properties are next to a reference, or in alternatives."""
        first, *others = [{name: self.written(kind.field(name).type)} for name in kind.names]
        schema: dict[str, Any] = {"type": "object", "properties": first}
        for each in others:
            part = {"properties": each}
            match self.random.randrange(7):
                case 0 if "$ref" not in schema:
                    schema["$ref"] = self.reference(part)
                case 1:
                    schema.setdefault("allOf", []).append(part)
                case 2:
                    schema.setdefault("anyOf", [{"required": ["a"]}]).append(part)
                case 3 if "if" not in schema:
                    schema |= {"if": {"required": ["a"]}, self.random.choice(["then", "else"]): part}
                case 4:
                    schema.setdefault("dependentSchemas", {})[next(iter(each))] = part
                case _:
                    first |= each
        return schema

    def around(self, schema: dict[str, Any]) -> dict[str, Any]:
        for condition in self.random.sample(CONDITIONS, self.random.randrange(3)):
            schema = schema | condition if not schema.keys() & condition.keys() else {"allOf": [schema, condition]}
        match self.random.randrange(8):
            case 0:
                return {"$ref": self.reference(schema)}
            case 1:
                return {"allOf": [schema]}
            case 2:
                return {"anyOf": [{"type": "null"}, schema]}
        return schema

    def reference(self, schema: dict[str, Any]) -> str:
        name = f"d{len(self.definitions)}"
        self.definitions[name] = schema
        return f"#/$defs/{name}"

    def value(self, kind: pa.DataType) -> Drawn:
        random = self.random
        if random.randrange(6) == 0:
            return None, None
        if pa.types.is_struct(kind):
            pairs = {name: self.value(kind.field(name).type) for name in kind.names}
            return {name: pair[0] for name, pair in pairs.items()}, {name: pair[1] for name, pair in pairs.items()}
        if pa.types.is_list(kind):
            items = [self.value(kind.value_type) for _ in range(random.randrange(3))]
            return [given for given, _ in items], [item for _, item in items]
        if pa.types.is_map(kind):
            entries = [(name, self.value(kind.item_type)) for name in "xyz"[: random.randrange(4)]]
            return {name: pair[0] for name, pair in entries}, [(name, pair[1]) for name, pair in entries]
        return self.leaf(kind)

    def leaf(self, kind: pa.DataType) -> Drawn:
        random = self.random
        number = random.randint(-(1 << 63), (1 << 63) - 1) >> random.randrange(64)
        if kind == pa.int64():
            return number, number
        if kind == pa.float64():
            return (number / 128,) * 2
        if kind == pa.bool_():
            return (number % 2 == 0,) * 2
        if kind == pa.date32():
            day = date.fromordinal(random.randint(600_000, 800_000))
            return day.isoformat(), day
        if kind == pa.binary():
            content = random.randbytes(random.randrange(5))
            return b64encode(content).decode(), content
        if kind == pa.string():
            text = "".join(random.choices('aé"\\\n😀 0', k=random.randrange(6)))
            return text, text
        at = datetime.fromtimestamp(random.randrange(1 << 31), UTC).replace(microsecond=random.randrange(1_000_000))
        return at.isoformat(), at


@given(st.integers(0, 2**32))
@settings(max_examples=examples(200), deadline=None)
def test_no_column_of_a_drawn_schema_is_lost_and_no_value_is_changed(seed: int) -> None:
    schemas = Schemas(Random(seed))
    kind = schemas.struct(3)
    schema = schemas.of_struct(kind)
    text = json.dumps({**schema, "$defs": schemas.definitions})
    found = json_schema_kind(text)
    assert _sorted(found) == _sorted(kind), text
    drawn = [pair for pair in (schemas.value(kind) for _ in range(10)) if pair[0] is not None]
    values = [json.dumps(given, ensure_ascii=False).encode() for given, _ in drawn]
    decoded = JsonDecoder(found).decode(pa.array(values, pa.binary()))
    assert decoded.reasons == {} and decoded.column.to_pylist() == [row for _, row in drawn]


def _sorted(kind: pa.DataType) -> Any:
    """Return a type without the order of its fields, which follows the keywords of a schema."""
    if pa.types.is_struct(kind):
        return {each.name: _sorted(each.type) for each in kind}
    if pa.types.is_list(kind):
        return [_sorted(kind.value_type)]
    return ("map", _sorted(kind.item_type)) if pa.types.is_map(kind) else kind
