"""JSON Schemas that state drawn types in drawn ways: no column is lost, and no value is changed.

The types are drawn first, so that the expected columns do not come from a reading of the schema. Spark's `from_json`
reads the values by these types.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import examples
from tests.formats.landed import landed
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.json.json_schema import json_schema_kind

Drawn = tuple[Any, Any]
"""A value as JSON, and the value that its column has."""
TEXT = pa.large_string()
"""Type of a drawn column of which the values are anything; the column itself is a string, which has their JSON text."""
LEAVES: dict[pa.DataType, tuple[dict[str, Any], ...]] = {
    pa.int64(): ({"type": "integer"}, {"const": 3}, {"enum": [1, None]}, {"type": ["integer", "null"]}),
    pa.float64(): ({"type": "number"}, {"type": ["integer", "number"]}, {"enum": [1, 0.5]}, {"const": 0.5},
                   {"oneOf": [{"type": "integer"}, {"type": "number"}]}),
    pa.bool_(): ({"type": "boolean"}, {"const": True}, {"enum": [False, None]}),
    pa.string(): ({"type": "string"}, {"enum": ["a", None]}, {"const": "a"}, {"type": "string", "format": "time"},
                  {"type": "string", "contentMediaType": "application/json", "contentSchema": {"type": "integer"}},
                  {"anyOf": [{"type": "string"}, {"type": "string", "format": "date"}]}),
    pa.date32(): ({"type": "string", "format": "date"},),
    pa.timestamp("us", tz="UTC"): ({"type": "string", "format": "date-time"}, {"type": ["null", "string"],
                                   "format": "date-time"}),
    pa.binary(): ({"type": "string", "contentEncoding": "base64"},),
    TEXT: ({}, {"type": ["integer", "string"]}, {"type": "object"}, {"enum": [1, "a"]}, {"enum": [[], {}]},
           {"type": "object", "patternProperties": {"^a": {"type": "number"}}}, {"type": "array", "prefixItems": [{}]},
           {"type": "array", "items": [{"type": "integer"}]}, {"oneOf": [{"type": "integer"}, {"type": "array"}]},
           {"anyOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"b": {"type": "string"}}}]}),
}  # fmt: skip
SIMPLE = (*LEAVES,)
CONDITIONS: tuple[dict[str, Any], ...] = (
    {"anyOf": [{"minimum": 3}, {"maxLength": 4}, {"required": ["a"]}]},
    {"oneOf": [{"required": ["a"]}, {"not": {"required": ["a"]}}]},
    {"not": {"const": "never"}},
    {"allOf": [{"description": "nothing"}, {"minProperties": 0}]},
    {"if": {"required": ["a"]}, "then": {"minProperties": 1}},
    {"dependentSchemas": {"a": {"minProperties": 1}}},
    {"dependencies": {"a": ["b"], "b": {"minProperties": 1}}, "dependentRequired": {"a": ["b"]}},
    {"propertyNames": {"maxLength": 3}, "maxProperties": 9, "required": ["a"], "unevaluatedProperties": False},
    {"minimum": 0, "exclusiveMinimum": -1, "maximum": 9, "exclusiveMaximum": 10, "multipleOf": 0.01},
    {"minLength": 1, "maxLength": 9, "pattern": "^a"},
    {"contains": {"type": "integer"}, "minContains": 0, "maxContains": 3, "uniqueItems": True, "maxItems": 3,
     "minItems": 0, "unevaluatedItems": False, "additionalItems": False},
    {"title": "t", "description": "d", "default": 3, "examples": [1], "deprecated": True, "readOnly": True,
     "writeOnly": False, "$comment": "c", "$anchor": "here"},
)  # fmt: skip
NOT_FOLLOWED = ({"$ref": "#d"}, {"$dynamicRef": "#d"}, {"$recursiveRef": "#"}, {"$ref": "#"})


@dataclass(eq=False)
class Schemas:
    """Drawn schemas. `definitions` are the parts to which their references lead."""

    random: Random
    is_draft_7: bool = False
    definitions: dict[str, Any] = field(default_factory=dict)

    def kind(self, depth: int) -> pa.DataType:
        """Draw the type of a column."""
        choice = self.random.randrange(12 if depth else 8)
        if choice < 8:
            return SIMPLE[choice]
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
            items = {"items": True} if self.random.random() < 0.5 else {}
            items = items if kind.value_type == TEXT else {"items": self.written(kind.value_type)}
            return self.around({"type": "array", **items})
        if pa.types.is_map(kind):
            return self.around({"type": "object", "additionalProperties": self.written(kind.item_type)})
        return self.around(dict(self.random.choice(LEAVES[kind])))

    def of_struct(self, kind: pa.StructType) -> dict[str, Any]:
        """Return a schema of objects whose properties are next to a reference, or in alternatives."""
        first, *others = [{name: self.written(kind.field(name).type)} for name in kind.names]
        more = ({}, {"additionalProperties": False}, {"additionalProperties": {"type": "number"}},
                {"patternProperties": {"^z": {"type": "number"}}, "type": ["null", "object"]})  # fmt: skip
        schema: dict[str, Any] = {"type": "object", "properties": first, **self.random.choice(more)}
        for each in others:
            part = {"properties": each}
            match self.random.randrange(8):
                case 0 if "$ref" not in schema and not self.is_draft_7:
                    schema["$ref"] = self.reference(part)
                case 1:
                    schema.setdefault("allOf", []).append(part)
                case 2:
                    schema.setdefault("anyOf", [{"required": ["a"]}]).append(part)
                case 3 if "if" not in schema:
                    schema |= {"if": {"required": ["a"]}, self.random.choice(["then", "else"]): part}
                case 4 | 5 as word:
                    words = ("dependentSchemas", "dependencies")
                    schema.setdefault(words[word - 4], {})[next(iter(each))] = part
                case _:
                    first |= each
        return schema

    def around(self, schema: dict[str, Any]) -> dict[str, Any]:
        for condition in self.random.sample(CONDITIONS, self.random.randrange(3)):
            schema = schema | condition if not schema.keys() & condition.keys() else {"allOf": [schema, condition]}
        match self.random.randrange(9):
            case 0:
                without_meaning = {"type": "integer", "properties": {"g": {"type": "boolean"}}}
                return {"$ref": self.reference(schema), **(without_meaning if self.is_draft_7 else {})}
            case 1:
                return {"allOf": [schema]}
            case 2:
                return {"anyOf": [{"type": "null"}, schema]}
            case 3:
                return {"oneOf": [schema, {"type": "null"}]}
        return schema

    def reference(self, schema: dict[str, Any]) -> str:
        name = f"d/{len(self.definitions)}%"
        self.definitions[name] = schema
        return f"#/{self.place}/d~1{len(self.definitions) - 1}%25"

    @property
    def place(self) -> str:
        return "definitions" if self.is_draft_7 else "$defs"

    def table(self) -> tuple[pa.StructType, dict[str, Any], list[Drawn]]:
        """Return the type of a row, a schema, and rows."""
        kind = self.struct(3)
        schema = {**self.of_struct(kind), self.place: self.definitions}
        if self.is_draft_7:
            schema["$schema"] = "http://json-schema.org/draft-07/schema#"
        return kind, schema, [pair for pair in (self.value(kind) for _ in range(10)) if pair[0] is not None]

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
        if kind == TEXT and random.random() < 0.8:
            anything = random.choice((number, None, True, [], [number, [None]], {"b": {"a": "x"}, "a": number}))
            return anything, None if anything is None else json.dumps(anything, separators=(",", ":"))
        if kind in (pa.string(), TEXT):
            text = "".join(random.choices('aé"\\\n😀 0', k=random.randrange(6)))
            return text, text
        at = datetime.fromtimestamp(random.randrange(1 << 31), UTC).replace(microsecond=random.randrange(1_000_000))
        return at.isoformat(), at


@given(st.integers(0, 2**32))
@settings(max_examples=examples(200), deadline=None)
def test_no_column_of_a_drawn_schema_is_lost_and_no_value_is_changed(seed: int) -> None:
    random = Random(seed)
    kind, schema, drawn = Schemas(random, random.random() < 0.3).table()
    text = json.dumps(schema)
    assert _sorted(json_schema_kind(text)) == _sorted(kind), text
    rows, reasons = landed(_values(drawn), value_format="json", value_schema=text)
    assert reasons == {} and rows == [row for _, row in drawn]
    schema["properties"] |= {"g": random.choice(NOT_FOLLOWED)}
    with pytest.raises(ConfigurationError, match="not followed|refers to itself"):
        landed([], value_format="json", value_schema=json.dumps(schema))


def _values(drawn: list[Drawn]) -> list[bytes]:
    return [json.dumps(given, ensure_ascii=False).encode() for given, _ in drawn]


def _sorted(kind: pa.DataType) -> Any:
    """Return a type without the order of its fields, which follows the keywords of a schema."""
    if pa.types.is_struct(kind):
        return {each.name: _sorted(each.type) for each in kind}
    if pa.types.is_list(kind):
        return [_sorted(kind.value_type)]
    kind = pa.string() if kind == TEXT else kind
    return ("map", _sorted(kind.item_type)) if pa.types.is_map(kind) else kind
