"""A JSON Schema (draft 7, 2019-09 or 2020-12) as the struct that its documents are read into.

Every field may be null, as in Spark's `from_json`. A value that may be of several types is a string: its JSON text.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import orjson
import pyarrow as pa
from pyarrow import types

from tiered_stream.errors import ConfigurationError

_STRINGS = {"date-time": pa.timestamp("us", tz="UTC"), "date": pa.date32()}
_SIMPLE = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
_MOST_NESTING = 64


def json_schema_kind(text: bytes | str) -> pa.StructType:
    """The struct of a schema's text.

    Raises:
        ConfigurationError: it is no JSON Schema of objects, refers to what is not in it, or to itself without an end.
    """
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ConfigurationError(f"the JSON Schema is no JSON: {error}") from error
    kind = _Reader(document).kind(document, 0)
    if not types.is_struct(kind):
        raise ConfigurationError(f"the JSON Schema is one of {kind}; records are objects with properties")
    return kind


class _Reader:
    def __init__(self, document: Any) -> None:
        self._document = document

    def kind(self, schema: Any, depth: int) -> pa.DataType:
        if depth > _MOST_NESTING:
            raise ConfigurationError(
                f"the JSON Schema goes deeper than {_MOST_NESTING} levels, or refers to itself; no table has such types"
            )
        if not isinstance(schema, dict):
            if isinstance(schema, bool):
                return pa.string()
            raise ConfigurationError(f"a JSON Schema is an object, not {str(schema)[:40]!r}")
        if "$ref" in schema:
            return self.kind(self._referred(schema["$ref"]), depth + 1)
        if "allOf" in schema:
            return self._all_of(schema, depth)
        for word in ("anyOf", "oneOf"):
            if word in schema:
                return self._one_of([self.kind(each, depth + 1) for each in _list(schema, word)])
        return self._of_types(schema, depth)

    def _below(self, schema: Any, depth: int) -> pa.DataType:
        found = self.kind(schema, depth + 1)
        return pa.string() if types.is_null(found) else found

    def _of_types(self, schema: dict[str, Any], depth: int) -> pa.DataType:
        named = schema.get("type", _type_of_values(schema))
        names = named if isinstance(named, list) else [named]
        return self._one_of([self._of_type(name, schema, depth) for name in names])

    def _of_type(self, name: Any, schema: dict[str, Any], depth: int) -> pa.DataType:
        match name:
            case "null":
                return pa.null()
            case "object":
                return self._object(schema, depth)
            case "array":
                items = schema.get("items", True)
                if isinstance(items, list) or "prefixItems" in schema:
                    return pa.string()
                return pa.list_(pa.field("element", self._below(items, depth)))
            case "string":
                is_binary = schema.get("contentEncoding") == "base64"
                return pa.binary() if is_binary else _STRINGS.get(str(schema.get("format")), pa.string())
            case None:
                return self._object(schema, depth) if "properties" in schema else pa.string()
        if not isinstance(name, str) or name not in _SIMPLE:
            raise ConfigurationError(f"the JSON Schema has a type {str(name)[:40]!r} that there is not")
        return _SIMPLE[name]

    def _object(self, schema: dict[str, Any], depth: int) -> pa.DataType:
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        if not isinstance(properties, dict):
            raise ConfigurationError("`properties` of a JSON Schema is an object")
        if properties:
            return pa.struct([(name, self._below(each, depth)) for name, each in properties.items()])
        return pa.map_(pa.string(), self._below(others, depth)) if isinstance(others, dict) else pa.string()

    def _all_of(self, schema: dict[str, Any], depth: int) -> pa.DataType:
        rest = {word: value for word, value in schema.items() if word != "allOf"}
        parts = _list(schema, "allOf") + ([rest] if {"type", "properties", "$ref"} & rest.keys() else [])
        kinds = [self.kind(each, depth + 1) for each in parts]
        structs = [each for each in kinds if types.is_struct(each)]
        if structs:
            return pa.struct({field.name: field for each in structs for field in each}.values())
        return self._one_of(kinds)

    def _one_of(self, kinds: list[pa.DataType]) -> pa.DataType:
        """The type of a value that has one of several."""
        found = set(kinds) - {pa.null()}
        if not found:
            return pa.null()
        if found == {pa.int64(), pa.float64()}:
            return pa.float64()
        return found.pop() if len(found) == 1 else pa.string()

    def _referred(self, reference: Any) -> Any:
        """RFC 6901, within this document."""
        place = self._document
        if not isinstance(reference, str) or reference[:1] != "#":
            raise ConfigurationError(f"the JSON Schema refers to {str(reference)[:80]!r}: put that schema into it")
        for step in unquote(reference[1:]).split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(place, list) and key.isdecimal() and int(key) < len(place):
                place = place[int(key)]
            elif isinstance(place, dict) and key in place:
                place = place[key]
            else:
                raise ConfigurationError(f"the JSON Schema refers to {reference[:80]!r}, which it does not have")
        return place


def _list(schema: dict[str, Any], word: str) -> list[Any]:
    found = schema[word]
    if not isinstance(found, list) or not found:
        raise ConfigurationError(f"{word!r} of a JSON Schema is a list of one or more")
    return found


def _type_of_values(schema: dict[str, Any]) -> Any:
    """Of a schema without `type`: what its constants are."""
    values = _list(schema, "enum") if "enum" in schema else [schema.get("const")] if "const" in schema else []
    names = {bool: "boolean", str: "string", int: "integer", float: "number", type(None): "null"}
    return sorted({names[type(each)] for each in values if type(each) in names}) or None
