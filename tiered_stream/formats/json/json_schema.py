"""Conversion of a JSON Schema (draft 7, 2019-09 or 2020-12) to the struct type of its documents.

Every field may be null, as in Spark's `from_json`. A value that may have several types becomes a string: its JSON text.
`Shape` has the facts that a schema states of a value's type, and functions combine the facts of several schemas.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from typing import Any
from urllib.parse import unquote, urljoin

import pyarrow as pa
from pyarrow import types

from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.columns.conform import list_of
from tiered_stream.formats.json.json_text import schema_json

SIMPLE = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
NAMES = ("null", "object", "array", "string", *SIMPLE)
"""Names of the types that JSON Schema has."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Facts about the values that a schema allows. Without arguments, a value may be anything."""

    names: frozenset[str] | None = None
    """Names of the JSON Schema types that the values may have; None: any type."""
    text: pa.DataType | None = None
    """Arrow type of the column for values that are strings, such as a timestamp; None: string."""
    fields: dict[str, Shape] = field(default_factory=dict)
    """Shapes of the properties of values that are objects, by the property's name."""
    others: Shape | None = None
    """Shape of the values of all other properties (`additionalProperties`); None: they have no schema."""
    items: Shape | None = None
    """Shape of the items of values that are arrays; None: items have no schema."""
    is_tuple: bool = False
    """True if the items of arrays have different schemas by their position."""
    is_union: bool = False
    """True if alternatives in the schema, such as `anyOf`, need columns of different types."""
    is_partial: bool = False
    """True if only some alternatives in the schema describe the value, so that others allow any value."""

    @property
    def is_settled(self) -> bool:
        """Return whether the column's type is certain, so that alternatives in another shape cannot make it text.

        The type is certain if only simple types, or properties, are declared, and if `is_union` is False.
        """
        simple = self.names is not None and not self.names & {"object", "array"}
        return not self.is_union and (simple or bool(self.fields))


ANY = Shape()
_NULL = frozenset(["null"])
_Join = Callable[[Shape, Shape], Shape]


def both(first: Shape, second: Shape) -> Shape:
    """Return the shape of values that must fit both shapes (`allOf`, or `$ref` next to other keywords)."""
    return _merged(first, second, _common_names(first.names, second.names), both)


def filled(declared: Shape, alternatives: Shape) -> Shape:
    """Return the shape `declared`, with attributes of `alternatives` where `declared` does not state them.

    Alternatives, such as `anyOf`, never change a declared type, because an alternative need not hold for all values.
    """
    if alternatives.is_partial and not declared.fields:
        return declared
    names = alternatives.names if declared.names is None else declared.names
    return _merged(declared, alternatives, names, filled)


def any_of(options: Sequence[Shape]) -> Shape:
    """Return the shape of values that fit at least one shape in `options`, which must not be empty."""
    described = [option for option in options if option.names != _NULL]
    if not described:
        return options[0]
    is_any = any(option.names is None and not option.fields for option in options)
    names = frozenset().union(*(option.names or {"object"} for option in options))
    texts = {option.text for option in described}
    properties = dict.fromkeys(name for option in described for name in option.fields)
    others = [option.others for option in described if option.others is not None]
    items = [option.items for option in described if option.items is not None]
    return Shape(
        None if is_any else names,
        texts.pop() if len(texts) == 1 else None,
        {name: _field(name, described) for name in properties},
        any_of(others) if others else None,
        any_of(items) if items else None,
        is_tuple=any(option.is_tuple for option in described),
        is_union=any(option.is_union for option in described) or _single({*map(kind_of, described)}) is None,
    )


def _field(name: str, options: Sequence[Shape]) -> Shape:
    described = [option.fields[name] for option in options if name in option.fields]
    return replace(any_of(described), is_partial=len(described) < len(options))


def _common_names(first: frozenset[str] | None, second: frozenset[str] | None) -> frozenset[str] | None:
    if first is None or second is None:
        return second if first is None else first
    wide = [names | {"integer"} if "number" in names else names for names in (first, second)]
    common = wide[0] & wide[1]
    return common - {"integer"} if "number" in common else common or first | second


def _merged(first: Shape, second: Shape, names: frozenset[str] | None, join: _Join) -> Shape:
    """Return the shape that joins `first` and `second`. Its attribute `names` is the argument `names`.

    The function `join` joins the two shapes that a property has in `first` and `second`, and likewise for items.
    """
    texts = [shape.text for shape in (first, second) if shape.text is not None]
    new = {name: shape for name, shape in second.fields.items() if name not in first.fields}
    known = {name: join(shape, second.fields.get(name, ANY)) for name, shape in first.fields.items()}
    return Shape(
        names,
        texts[0] if len(set(texts)) == 1 or (texts and join is filled) else None,
        known | {name: replace(shape, is_partial=False) for name, shape in new.items()},
        _either(first.others, second.others, join),
        _either(first.items, second.items, join),
        is_tuple=first.is_tuple or second.is_tuple,
        is_union=(first.is_union and not second.is_settled) or (second.is_union and not first.is_settled),
    )


def _either(first: Shape | None, second: Shape | None, join: _Join) -> Shape | None:
    return reduce(join, [shape for shape in (first, second) if shape is not None] or [ANY]) if first or second else None


def kind_of(shape: Shape) -> pa.DataType:
    """Return the Arrow type of the column for values of the shape `shape`.

    Values that may be integer or number become double. Values that may have other combinations of types become string,
    as JSON text. If all values are null, the type is string, too.
    """
    if shape.is_union:
        return pa.string()
    names = frozenset(["object" if shape.fields else "any"]) if shape.names is None else shape.names
    kind = _single({_kind_of_name(name, shape) for name in names - _NULL})
    return pa.string() if kind is None else kind


def _single(kinds: set[pa.DataType]) -> pa.DataType | None:
    """Return the type of a column for values of all types in `kinds`, or None if only JSON text can hold them all."""
    if kinds == {pa.int64(), pa.float64()}:
        return pa.float64()
    return None if len(kinds) > 1 else next(iter(kinds), pa.string())


def unions_of(shape: Shape, path: str = "") -> Iterator[str]:
    """Yield the paths of columns in `shape` that are text because their values may have several types.

    `path` is the path of the column of `shape` itself.
    """
    kind = kind_of(shape)
    if pa.types.is_struct(kind):
        for name, each in shape.fields.items():
            yield from unions_of(each, f"{path}.{name}".lstrip("."))
    elif pa.types.is_map(kind) and shape.others is not None:
        yield from unions_of(shape.others, f"{path}[]")
    elif pa.types.is_list(kind) and shape.items is not None:
        yield from unions_of(shape.items, f"{path}[]")
    elif kind == pa.string() and (shape.is_union or len((shape.names or _NULL) - _NULL) > 1):
        yield path


def _kind_of_name(name: str, shape: Shape) -> pa.DataType:
    if name == "object" and shape.fields:
        return pa.struct([(name, kind_of(each)) for name, each in shape.fields.items()])
    if name == "object" and shape.others is not None:
        return pa.map_(pa.string(), kind_of(shape.others))
    if name == "array" and not shape.is_tuple:
        return list_of(kind_of(shape.items or ANY))
    if name == "string" and shape.text is not None:
        return shape.text
    return SIMPLE.get(name, pa.string())


log = logging.getLogger(__name__)

_STRINGS = {"date-time": pa.timestamp("us", tz="UTC"), "date": pa.date32()}
_NAMES_OF_VALUES = {bool: "boolean", str: "string", int: "integer", float: "number", type(None): "null"}
_MAX_TYPES, _MAX_NESTING = 10_000, 64
"""Limits of a JSON Schema: number of subschemas when each `$ref` is written out, and levels of nesting."""
_NOT_FOLLOWED = ("$dynamicRef", "$recursiveRef")


def json_schema_kind(text: bytes | str, references: Mapping[str, str] | None = None) -> pa.StructType:
    """Return the Arrow struct type for documents of the JSON Schema `text`.

    `references` has the texts of other schemas, by the names by which `text` refers to them.

    Raises:
        ConfigurationError: `text` is not a JSON Schema of objects, refers to a missing schema, refers to itself in a
            cycle, or is too large. The message names the location.
    """
    return kind_of(_root_shape(text, references or {}))


def json_schema_columns(text: bytes | str, references: Mapping[str, str] | None = None) -> pa.Schema:
    """Return the columns for documents of the JSON Schema `text`, as `json_schema_kind` does, and with the same errors.

    Log which columns are text because their values may have several types.
    """
    shape = _root_shape(text, references or {})
    _log_unions(tuple(unions_of(shape)))
    return pa.schema(list(kind_of(shape)))


def _root_shape(text: bytes | str, references: Mapping[str, str]) -> Shape:
    document = schema_json(text, "a JSON Schema")
    shape = _Reader(document, references).shape(document, _Location(document))
    if shape.is_union:
        raise ConfigurationError(
            "the JSON Schema has alternatives (anyOf, oneOf) that need different columns: write the properties of all "
            "alternatives into `properties`"
        )
    if not types.is_struct(kind := kind_of(shape)):
        raise ConfigurationError(f"the JSON Schema is one of {kind}; records are objects with properties")
    return shape


@cache
def _log_unions(paths: tuple[str, ...]) -> None:
    for path in paths:
        log.info("Column `%s` is STRING: its JSON Schema allows values that need different types", path)


def json_schema_title(text: str) -> str:
    """Return the title of the JSON Schema `text`, which Confluent's clients use as the record's name, or ''.

    Raises:
        ConfigurationError: the text is not JSON.
    """
    document = schema_json(text, "a JSON Schema")
    title = document.get("title") if isinstance(document, dict) else None
    return title if isinstance(title, str) else ""


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
        named = {name: schema_json(text, "a JSON Schema") for name, text in references.items()}
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

    def shape(self, schema: Any, location: _Location) -> Shape:
        """Return the shape of the values that fit the subschema `schema`, which is at `location`.

        Raises:
            ConfigurationError: the subschema is invalid, too deep or too large, or has an unsupported reference.
        """
        self._count(location)
        if not isinstance(schema, dict):
            if isinstance(schema, bool):
                return ANY
            raise location.error(f"a schema is an object, not {str(schema)[:40]!r}")
        for word in _NOT_FOLLOWED:
            if word in schema:
                raise location.error(f"{word} is not followed: write {str(schema[word])[:80]!r} as a $ref")
        parts = [] if "$ref" not in schema else [self._referenced(schema["$ref"], location)]
        if parts and _ignores_siblings(location.document):
            return parts[0]
        parts += [self.shape(part, location.below()) for part in _list(schema, "allOf", location)]
        declared = reduce(both, parts, self._own_shape(schema, location))
        for options in _alternatives(schema, location):
            declared = filled(declared, any_of([self.shape(option, location.below()) for option in options]))
        return declared

    def _own_shape(self, schema: dict[str, Any], location: _Location) -> Shape:
        properties, others, items = (schema.get(word) for word in ("properties", "additionalProperties", "items"))
        if not isinstance(properties, dict | None):
            raise location.error("`properties` is an object")
        is_binary = schema.get("contentEncoding") == "base64"
        is_tuple = isinstance(items, list) or "prefixItems" in schema
        below = location.below
        return Shape(
            _names(schema, location),
            pa.binary() if is_binary else _STRINGS.get(str(schema.get("format"))),
            {name: self.shape(member, below(name)) for name, member in (properties or {}).items()},
            self.shape(others, below("additionalProperties")) if isinstance(others, dict) else None,
            None if is_tuple or items is None else self.shape(items, below("items")),
            is_tuple,
        )

    def _referenced(self, reference: Any, location: _Location) -> Shape:
        """Return the shape of the subschema to which `reference`, the value of a `$ref` at `location`, points.

        `reference` is the name of a document, `#`, and a JSON pointer (RFC 6901). Without a name, the pointer is into
        the document of `location`.

        Raises:
            ConfigurationError: the document or the subschema does not exist, or the reference is an anchor.
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
        return self.shape(schema, replace(location.below(), document=document))

    def _document(self, name: str, location: _Location) -> Any:
        for address in (name, _joined(_id_of(location.document), name)):
            if address in self._documents:
                return self._documents[address]
        raise location.error(f"it refers to {name[:80]!r}: put that schema into it, or list it among its references")


def _id_of(document: Any) -> str:
    """Return the `$id` of a JSON Schema document without its fragment, or '' if the document has no `$id`.

    Other schemas refer to the document by its `$id`.
    """
    address = document.get("$id", "") if isinstance(document, dict) else ""
    return address.partition("#")[0] if isinstance(address, str) else ""


def _joined(base: str, name: str) -> str:
    try:
        return urljoin(base, name)
    except ValueError:  # `base` or `name` is not an address
        return name


def _list(schema: dict[str, Any], word: str, location: _Location) -> list[Any]:
    """Return the list that is the value of the keyword `word` in `schema`; [] if the schema lacks the keyword.

    Raises:
        ConfigurationError: the value is not a list, or is empty.
    """
    items = schema.get(word, [])
    if not isinstance(items, list) or (word in schema and not items):
        raise location.error(f"{word!r} is a list of one or more")
    return items


def _names(schema: dict[str, Any], location: _Location) -> frozenset[str] | None:
    """Return the names of the types that `schema` allows, or None if it allows any type.

    The keyword `type` names them. Without this keyword, they are the types of the values in `enum` or `const`. An
    object or array in `enum` or `const` means any type.

    Raises:
        ConfigurationError: a type does not exist, or `enum` is not a list.
    """
    if "type" not in schema:
        values = _list(schema, "enum", location) or ([schema["const"]] if "const" in schema else [])
        names = {_NAMES_OF_VALUES.get(type(value), "") for value in values}
        return None if "" in names or not names else frozenset(names)
    given = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    for name in given:
        if name not in NAMES:
            raise location.error(f"there is no type {str(name)[:40]!r}")
    return frozenset(given) or None


def _alternatives(schema: dict[str, Any], location: _Location) -> Iterator[list[Any]]:
    """Yield the lists of alternative subschemas in `schema`. A value need not fit all subschemas of a list.

    The lists are from `anyOf` and `oneOf`, from `then` with `else`, and from `dependentSchemas` or `dependencies`.
    """
    for word in ("anyOf", "oneOf"):
        if options := _list(schema, word, location):
            yield options
    if "then" in schema or "else" in schema:
        yield [schema.get("then", True), schema.get("else", True)]
    for word in ("dependentSchemas", "dependencies"):
        if isinstance(dependents := schema.get(word), dict):
            yield from ([each, True] for each in dependents.values() if isinstance(each, dict))


def _ignores_siblings(document: Any) -> bool:
    """Return whether the JSON Schema document states draft 7 or older, in which keywords next to `$ref` are ignored."""
    draft = document.get("$schema") if isinstance(document, dict) else None
    return isinstance(draft, str) and re.search(r"draft-0[0-7]\b", draft) is not None
