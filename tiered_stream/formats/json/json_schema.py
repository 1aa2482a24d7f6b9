"""Conversion of a JSON Schema (draft 7, 2019-09 or 2020-12) to the struct type of its documents.

Every field may be null, as in Spark's `from_json`. A value that may have several types becomes a string: its JSON text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote, urljoin

import orjson
import pyarrow as pa
from pyarrow import types

from tiered_stream.errors import ConfigurationError

_STRINGS = {"date-time": pa.timestamp("us", tz="UTC"), "date": pa.date32()}
_SIMPLE = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
_MAX_TEXT, _MAX_TYPES, _MAX_NESTING = 4 << 20, 10_000, 64
"""Limits of a schema: characters of its text, number of types when written out, and levels of nesting."""
_NOT_FOLLOWED = ("$dynamicRef", "$recursiveRef")


def json_schema_kind(text: bytes | str, references: Mapping[str, str] | None = None) -> pa.StructType:
    """Return the struct type for documents of the JSON Schema `text`.

    `references` has the texts of other schemas, by the names by which `text` refers to them.

    Raises:
        ConfigurationError: `text` is not a JSON Schema of objects, refers to a missing schema, refers to itself in a
            cycle, or is too large. The message names the location.
    """
    document = _parsed(text)
    kind = _Reader(document, references or {}).kind(document, _Location(document))
    if not types.is_struct(kind):
        raise ConfigurationError(f"the JSON Schema is one of {kind}; records are objects with properties")
    return kind


def json_schema_title(text: str) -> str:
    """Return the schema's title, which Confluent's clients use as the record's name, or '' if there is none.

    Raises ConfigurationError if the text is not JSON.
    """
    document = _parsed(text)
    title = document.get("title") if isinstance(document, dict) else None
    return title if isinstance(title, str) else ""


def _parsed(text: bytes | str) -> Any:
    if len(text) > _MAX_TEXT:
        raise ConfigurationError(f"a JSON Schema of {len(text)} characters; no more than {_MAX_TEXT} are read")
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ConfigurationError(f"the JSON Schema is no JSON: {error}") from error


@dataclass(frozen=True, slots=True)
class _Location:
    """Location of a subschema: the document that contains it, the path of its property, and its level of nesting."""

    document: Any
    path: str = ""
    depth: int = 0

    def below(self, name: str = "") -> _Location:
        return replace(self, path=f"{self.path}.{name}".lstrip(".") if name else self.path, depth=self.depth + 1)

    def error(self, what: str) -> ConfigurationError:
        at = f", property {self.path[:100]}" if self.path else ""
        return ConfigurationError(f"the JSON Schema{at}: {what}")


class _Reader:
    def __init__(self, document: Any, references: Mapping[str, str]) -> None:
        self._left = _MAX_TYPES
        base = _id_of(document)
        named = {name: _parsed(text) for name, text in references.items()}
        own = {_id_of(schema): schema for schema in (*named.values(), document)}
        self._documents = {**own, **{_joined(base, name): schema for name, schema in named.items()}, **named}

    def _count(self, location: _Location) -> None:
        self._left -= 1
        if location.depth > _MAX_NESTING:
            raise location.error(
                f"it goes deeper than {_MAX_NESTING} levels, or refers to itself; no table has such types"
            )
        if self._left < 0:
            raise ConfigurationError(f"the JSON Schema has more than {_MAX_TYPES} types when written out")

    def kind(self, schema: Any, location: _Location) -> pa.DataType:
        self._count(location)
        if not isinstance(schema, dict):
            if isinstance(schema, bool):
                return pa.string()
            raise location.error(f"a schema is an object, not {str(schema)[:40]!r}")
        for word in _NOT_FOLLOWED:
            if word in schema:
                raise location.error(f"{word} is not followed: write {str(schema[word])[:80]!r} as a $ref")
        if "$ref" in schema:
            return self._referenced_kind(schema["$ref"], location)
        if "allOf" in schema:
            return self._combined_kind(schema, location)
        for word in ("anyOf", "oneOf"):
            if word in schema:
                kinds = [self.kind(option, location.below()) for option in _list(schema, word, location)]
                return self._common_kind(kinds)
        return self._kind_of_types(schema, location)

    def _member_kind(self, schema: Any, location: _Location) -> pa.DataType:
        kind = self.kind(schema, location)
        return pa.string() if types.is_null(kind) else kind

    def _kind_of_types(self, schema: dict[str, Any], location: _Location) -> pa.DataType:
        named = schema["type"] if "type" in schema else _type_of_values(schema, location)
        names = named if isinstance(named, list) else [named]
        return self._common_kind([self._kind_of_type(name, schema, location) for name in names])

    def _kind_of_type(self, name: Any, schema: dict[str, Any], location: _Location) -> pa.DataType:
        match name:
            case "null":
                return pa.null()
            case "object":
                return self._object(schema, location)
            case "array":
                items = schema.get("items", True)
                if isinstance(items, list) or "prefixItems" in schema:
                    return pa.string()
                return pa.list_(pa.field("element", self._member_kind(items, location.below("items"))))
            case "string":
                is_binary = schema.get("contentEncoding") == "base64"
                return pa.binary() if is_binary else _STRINGS.get(str(schema.get("format")), pa.string())
            case None:
                return self._object(schema, location) if "properties" in schema else pa.string()
        if not isinstance(name, str) or name not in _SIMPLE:
            raise location.error(f"there is no type {str(name)[:40]!r}")
        return _SIMPLE[name]

    def _object(self, schema: dict[str, Any], location: _Location) -> pa.DataType:
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        if not isinstance(properties, dict):
            raise location.error("`properties` is an object")
        if properties:
            fields = [(name, self._member_kind(member, location.below(name))) for name, member in properties.items()]
            return pa.struct(fields)
        if not isinstance(others, dict):
            return pa.string()
        return pa.map_(pa.string(), self._member_kind(others, location.below("additionalProperties")))

    def _combined_kind(self, schema: dict[str, Any], location: _Location) -> pa.DataType:
        rest = {word: value for word, value in schema.items() if word != "allOf"}
        parts = _list(schema, "allOf", location) + ([rest] if {"type", "properties", "$ref"} & rest.keys() else [])
        kinds = [self.kind(part, location.below()) for part in parts]
        structs = [kind for kind in kinds if types.is_struct(kind)]
        if structs:
            return pa.struct({field.name: field for struct in structs for field in struct}.values())
        return self._common_kind(kinds)

    def _common_kind(self, kinds: list[pa.DataType]) -> pa.DataType:
        """Return the type of a column for values that have any of the types `kinds`.

        Null types do not count; if there are no other types, the result is null. Integer and number become double. Any
        other different types become a string.
        """
        different = set(kinds) - {pa.null()}
        if not different:
            return pa.null()
        if different == {pa.int64(), pa.float64()}:
            return pa.float64()
        return different.pop() if len(different) == 1 else pa.string()

    def _referenced_kind(self, reference: Any, location: _Location) -> pa.DataType:
        """Return the type of the schema to which `reference`, the value of a `$ref`, points.

        `reference` is the name of a document, `#`, and a JSON pointer (RFC 6901). Without a name, the pointer is into
        the document of `location`.
        """
        if not isinstance(reference, str):
            raise location.error(f"$ref is {str(reference)[:80]!r}, and not a string")
        name, _, pointer = reference.partition("#")
        document = self._document(name, location) if name else location.document
        steps = unquote(pointer).split("/")
        if steps[0]:
            raise location.error(
                f"it refers to the anchor {reference[:80]!r}, which is not followed: write it as a path"
            )
        schema = document
        for step in steps[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(schema, list) and key.isdecimal() and int(key) < len(schema):
                schema = schema[int(key)]
            elif isinstance(schema, dict) and key in schema:
                schema = schema[key]
            else:
                raise location.error(f"it refers to {reference[:80]!r}, which it does not have")
        return self.kind(schema, replace(location.below(), document=document))

    def _document(self, name: str, location: _Location) -> Any:
        for address in (name, _joined(_id_of(location.document), name)):
            if address in self._documents:
                return self._documents[address]
        raise location.error(f"it refers to {name[:80]!r}: put that schema into it, or list it among its references")


def _id_of(document: Any) -> str:
    """Return the `$id` by which other schemas refer to a document, without a fragment; '': there is no `$id`."""
    address = document.get("$id", "") if isinstance(document, dict) else ""
    return address.partition("#")[0] if isinstance(address, str) else ""


def _joined(base: str, name: str) -> str:
    try:
        return urljoin(base, name)
    except ValueError:  # `base` or `name` is not an address
        return name


def _list(schema: dict[str, Any], word: str, location: _Location) -> list[Any]:
    items = schema[word]
    if not isinstance(items, list) or not items:
        raise location.error(f"{word!r} is a list of one or more")
    return items


def _type_of_values(schema: dict[str, Any], location: _Location) -> Any:
    """Return the JSON Schema types of the values in a schema's `enum` or `const`, as a sorted list of names.

    Objects and arrays are ignored. Returns None if there are no other values.
    """
    values = _list(schema, "enum", location) if "enum" in schema else [schema.get("const")] if "const" in schema else []
    names = {bool: "boolean", str: "string", int: "integer", float: "number", type(None): "null"}
    return sorted({names[type(value)] for value in values if type(value) in names}) or None
