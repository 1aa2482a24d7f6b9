"""Parser of Avro schemas (Avro specification 1.12, "Schema Declaration"), from JSON to a checked tree of types.

The tree has no cycles, and its size is limited: a named type that is used twice is one object, but counts twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from tiered_stream.errors import ConfigurationError

MOST_TEXT, MOST_NODES, MOST_DEPTH = 4 << 20, 10_000, 64
"""Limits of a schema: characters of its text, number of types in it, and levels of nesting."""

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NUMBERS = {"int": ("date",), "long": tuple(f"{local}timestamp-{unit}" for local in ("", "local-")
                                           for unit in ("millis", "micros"))}  # fmt: skip
"""Logical types of numbers that Spark knows, by Avro type.

Spark ignores all others, as the Avro specification requires.
"""
NO_DEFAULT = object()


@dataclass(frozen=True, slots=True)
class Decimal:
    """Logical type `decimal`."""

    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class Primitive:
    """One of the types in `PRIMITIVES`, perhaps with a logical type."""

    kind: str
    logical: str | Decimal | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """Common part of records, enums and fixed types: the full name, and the full names that the type had before."""

    name: str
    aliases: tuple[str, ...]

    def is_called(self, written: Named) -> bool:
        """Return whether values of the type `written` may be read as this type.

        The last parts of both names must be equal, or this type must have the name of `written` as an alias.
        """
        return _last(written.name) == _last(self.name) or written.name in self.aliases


@dataclass(frozen=True, slots=True)
class Fixed(Named):
    """Type of values that have `size` bytes."""

    size: int
    logical: Decimal | None


@dataclass(frozen=True, slots=True)
class Enum(Named):
    """Type of values that are one of `symbols`. `default` stands for symbols that a reader does not know."""

    symbols: tuple[str, ...]
    default: str | None


@dataclass(frozen=True, slots=True)
class Field:
    """Field of a record. `default` is JSON, or NO_DEFAULT."""

    name: str
    aliases: tuple[str, ...]
    type: AvroType
    default: Any


@dataclass(frozen=True, slots=True)
class Record(Named):
    """Type of values that have fields, in the order in which they are written."""

    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Array:
    """Type of lists with any number of items."""

    items: AvroType


@dataclass(frozen=True, slots=True)
class Map:
    """Type of maps whose keys are strings."""

    values: AvroType


@dataclass(frozen=True, slots=True)
class Union:
    """Type of values that belong to one of several branches."""

    branches: tuple[AvroType, ...]

    @property
    def is_nullable(self) -> bool:
        return Primitive("null") in self.branches

    @property
    def values(self) -> tuple[AvroType, ...]:
        """Return the branches that are not null."""
        return tuple(each for each in self.branches if each != Primitive("null"))


AvroType = Primitive | Fixed | Enum | Record | Array | Map | Union


def parse_avro_schema(text: str, referenced: Sequence[str] = ()) -> AvroType:
    """Return the tree of a schema, which may use the named types of the schemas in `referenced`.

    Raises:
        ConfigurationError: a text is not an Avro schema, or the schema is recursive or too large.
    """
    parser = _Parser()
    for each in (*referenced, text):
        found = parser.parse(_json(each), "", "the schema", 0)
    _check_size(found)
    return found


def _json(text: str) -> Any:
    if len(text) > MOST_TEXT:
        raise ConfigurationError(f"an Avro schema of {len(text)} characters; no more than {MOST_TEXT} are read")
    try:
        return orjson.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"an Avro schema is no JSON: {error}") from error


def _check_size(root: AvroType) -> None:
    left, waiting = MOST_NODES, [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        left -= 1
        if left < 0 or depth > MOST_DEPTH:
            raise ConfigurationError(
                f"an Avro schema has more than {MOST_NODES} types when written out, or more than {MOST_DEPTH} levels"
            )
        waiting += ((child, depth + 1) for child in children(node))


def children(node: AvroType) -> Iterator[AvroType]:
    """Yield the types directly below a type."""
    match node:
        case Record():
            yield from (field.type for field in node.fields)
        case Array():
            yield node.items
        case Map():
            yield node.values
        case Union():
            yield from node.branches


def field_sources(wanted: Record, written: Record) -> dict[str, str]:
    """Return the writer's field from which each of the reader's fields is read, by the reader's field name.

    A reader's field is read from the field with its name, else from a field that has one of its aliases as name.
    """
    left = {field.name for field in written.fields}
    sources = {field.name: field.name for field in wanted.fields if field.name in left}
    left -= set(sources)
    for field in wanted.fields:
        alias = next((each for each in field.aliases if each in left), None)
        if field.name not in sources and alias is not None:
            left.remove(alias)
            sources[field.name] = alias
    return sources


class _Parser:
    """Parser of one schema after the other, which knows the named types of earlier schemas. `where` is for errors."""

    def __init__(self) -> None:
        self._names: dict[str, AvroType | None] = {}

    def parse(self, found: Any, namespace: str, where: str, depth: int) -> AvroType:
        if depth > MOST_DEPTH:
            raise ConfigurationError(f"an Avro schema has more than {MOST_DEPTH} levels")
        match found:
            case str():
                return Primitive(found) if found in PRIMITIVES else self._known(found, namespace, where)
            case list():
                return self._union(found, namespace, where, depth)
            case dict():
                return self._definition(found, namespace, where, depth)
        raise _no_type(found, where)

    def _definition(self, found: dict[str, Any], namespace: str, where: str, depth: int) -> AvroType:
        match found:
            case {"type": "record" | "error"}:
                return self._record(found, namespace, where, depth)
            case {"type": "enum"}:
                return self._enum(found, namespace, where)
            case {"type": "fixed"}:
                return self._fixed(found, namespace, where)
            case {"type": "array", "items": items}:
                return Array(self.parse(items, namespace, f"{where}, items", depth + 1))
            case {"type": "map", "values": values}:
                return Map(self.parse(values, namespace, f"{where}, values", depth + 1))
            case {"type": str(kind)} if kind in PRIMITIVES:
                return Primitive(kind, _logical(kind, found))
            case {"type": str() | list() | dict() as inner} if inner not in ("array", "map"):
                return self.parse(inner, namespace, where, depth + 1)
        raise _no_type(found, where)

    def _known(self, name: str, namespace: str, where: str) -> AvroType:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        full = full if full in self._names else name
        if full not in self._names:
            raise ConfigurationError(f"{where}: there is no Avro type {name[:100]!r}")
        known = self._names[full]
        if known is None:
            raise ConfigurationError(f"{where}: the Avro type {full} holds itself; recursive types have no columns")
        return known

    def _union(self, found: list[Any], namespace: str, where: str, depth: int) -> Union:
        branches = tuple(self.parse(each, namespace, f"{where}, branch {at}", depth + 1)
                         for at, each in enumerate(found))  # fmt: skip
        kinds = [each.name if isinstance(each, Named) else _kind(each) for each in branches]
        if not branches or "Union" in kinds or len({*kinds}) < len(kinds):
            raise ConfigurationError(f"{where}: a union is empty, or has a union or the same type twice in it: {kinds}")
        return Union(branches)

    def _name(self, found: dict[str, Any], namespace: str, where: str) -> tuple[str, tuple[str, ...], str]:
        """Return a definition's full name, its aliases, and the namespace within the definition."""
        name, own, aliases = found.get("name"), found.get("namespace"), found.get("aliases", [])
        own = namespace if own is None else own
        if not isinstance(own, str):
            raise ConfigurationError(f"{where}: {str(own)[:100]!r} is no namespace of an Avro type")
        if not isinstance(name, str) or not _is_name(_last(name)):
            within = f" in the namespace {own[:100]!r}" if own else ""
            raise ConfigurationError(f"{where}: {str(name)[:100]!r} is no name of an Avro type{within}")
        full = name if "." in name or not own else f"{own}.{name}"
        inside = full.rpartition(".")[0]
        if full in self._names or full in PRIMITIVES:
            raise ConfigurationError(f"{where}: the Avro type {full} is defined twice")
        self._names[full] = None
        if not isinstance(aliases, list) or not all(isinstance(each, str) for each in aliases):
            raise ConfigurationError(f"{where}: the aliases of {full} are no list of names")
        return full, tuple(each if "." in each or not inside else f"{inside}.{each}" for each in aliases), inside

    def _record(self, found: dict[str, Any], namespace: str, where: str, depth: int) -> Record:
        name, aliases, inside = self._name(found, namespace, where)
        listed = found.get("fields")
        if not isinstance(listed, list):
            raise ConfigurationError(f"{where}: the record {name} has no list of fields")
        fields = tuple(self._field(each, inside, name, depth) for each in listed)
        if len({field.name for field in fields}) < len(fields):
            raise ConfigurationError(f"{where}: the record {name} has a field twice")
        record = self._names[name] = Record(name, aliases, fields)
        return record

    def _field(self, found: Any, namespace: str, record: str, depth: int) -> Field:
        match found:
            case {"name": str(name), "type": kind} if _is_name(name):
                aliases = found.get("aliases", [])
                if isinstance(aliases, list) and all(isinstance(each, str) for each in aliases):
                    read = self.parse(kind, namespace, f"{record}.{name}", depth + 1)
                    return Field(name, tuple(aliases), read, found.get("default", NO_DEFAULT))
        raise ConfigurationError(f"the record {record}: this is no field: {str(found)[:100]}")

    def _enum(self, found: dict[str, Any], namespace: str, where: str) -> Enum:
        name, aliases, _ = self._name(found, namespace, where)
        symbols, default = found.get("symbols"), found.get("default")
        if not isinstance(symbols, list) or not all(isinstance(each, str) for each in symbols) or (
            len({*symbols}) < len(symbols) or (default is not None and default not in symbols)
        ):  # fmt: skip
            raise ConfigurationError(
                f"{where}: the enum {name} has no list of different symbols, its default among them"
            )
        enum = self._names[name] = Enum(name, aliases, tuple(symbols), default)
        return enum

    def _fixed(self, found: dict[str, Any], namespace: str, where: str) -> Fixed:
        name, aliases, _ = self._name(found, namespace, where)
        size = found.get("size")
        if type(size) is not int or not 0 <= size < 2**31:
            raise ConfigurationError(f"{where}: {size!r} is no size of the fixed type {name}")
        fixed = self._names[name] = Fixed(name, aliases, size, _decimal(found, size))
        return fixed


def _no_type(found: object, where: str) -> ConfigurationError:
    return ConfigurationError(f"{where}: this is no Avro type: {str(found)[:100]}")


def _kind(node: AvroType) -> str:
    return node.kind if isinstance(node, Primitive) else type(node).__name__


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _is_name(name: str) -> bool:
    """Return whether a type or a field may have the name. Hyphens are allowed, as in other readers.

    Namespaces are not checked, as in other readers.
    """
    return name.replace("-", "_").isidentifier()


def _logical(kind: str, found: dict[str, Any]) -> str | Decimal | None:
    logical = found.get("logicalType")
    if kind == "bytes":
        return _decimal(found, None)
    return logical if logical in NUMBERS.get(kind, ()) else None


def _decimal(found: dict[str, Any], size: int | None) -> Decimal | None:
    """Return the decimal type of a definition, or None if the definition is not a valid decimal.

    Avro reads values of an invalid decimal as bytes (`LogicalTypes.fromSchemaIgnoreInvalid`).
    """
    precision, scale = found.get("precision"), found.get("scale", 0)
    if found.get("logicalType") != "decimal" or type(precision) is not int or type(scale) is not int:
        return None
    if (
        not 0 <= scale <= precision
        or precision == 0
        or (size is not None and size < 17 and 10**precision > 256**size // 2)
    ):
        return None
    if precision > 38:
        raise ConfigurationError(f"an Avro decimal of {precision} digits; Spark has at most 38")
    return Decimal(precision, scale)
