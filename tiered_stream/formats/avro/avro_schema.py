"""Parser of Avro schemas (Avro specification 1.12, "Schema Declaration"), from JSON to a checked tree of types.

The tree has no cycles, and its size is limited: a named type that is used twice is one object in the tree, but counts
as two types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.json.json_text import schema_json
from tiered_stream.formats.rows.row_choices import AS_SPARK, AvroColumns, LargeDecimals
from tiered_stream.formats.sql.sql_reader import MAX_PRECISION

MAX_NODES, MAX_DEPTH = 10_000, 64
"""Limits of an Avro schema: number of types when each use of a named type counts, and levels of nesting."""
MAX_SCALE = 1000
"""Maximum scale of a decimal that becomes a text or a DOUBLE."""

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NUMBERS = {"int": ("date",), "long": tuple(f"{local}timestamp-{unit}" for local in ("", "local-")
                                           for unit in ("millis", "micros"))}  # fmt: skip
"""Logical types that Spark supports for the Avro types int and long.

Spark ignores other logical types of these two types, as the Avro specification requires.
"""
_NAMED_TIMES = {
    ("int", "io.debezium.time.Date"): "date",
    ("long", "io.debezium.time.Timestamp"): "timestamp-millis",
    ("long", "io.debezium.time.MicroTimestamp"): "timestamp-micros",
}
"""Logical type by the pair (Avro type, name that Debezium writes in place of a logical type).

A `NanoTimestamp` stays a number, because a TIMESTAMP has only microseconds.
"""
NO_DEFAULT = object()


class LargeScaleError(ConfigurationError):
    """Error for an Avro decimal whose scale exceeds the column's limit: 38 for DECIMAL, 1000 for texts and DOUBLE."""


@dataclass(frozen=True, slots=True)
class Decimal:
    """Logical type `decimal`: numbers of at most `precision` digits, `scale` of them after the decimal point.

    `column` is the type of the table's column. It is a text or a DOUBLE only if `precision` is more than 38.
    """

    precision: int
    scale: int
    column: LargeDecimals = LargeDecimals.DECIMAL


@dataclass(frozen=True, slots=True)
class Primitive:
    """Primitive Avro type. `kind` is one of `PRIMITIVES`, and `logical` is the logical type (None: it has none)."""

    kind: str
    logical: str | Decimal | None = None


NULL = Primitive("null")


@dataclass(frozen=True, slots=True)
class Named:
    """Record, enum or fixed type. `name` is its full name, and `aliases` are its earlier full names."""

    name: str
    aliases: tuple[str, ...]

    def is_called(self, writer: Named) -> bool:
        """Return whether the names allow values of the type `writer` to be read as this type.

        The last parts of both names must be equal, or this type must have the name of `writer` as an alias.
        """
        return _last(writer.name) == _last(self.name) or writer.name in self.aliases


@dataclass(frozen=True, slots=True)
class Fixed(Named):
    """Type of values that have `size` bytes. `logical` is the decimal type of the values (None: they are bytes)."""

    size: int
    logical: Decimal | None


@dataclass(frozen=True, slots=True)
class Enum(Named):
    """Type of values that are one of `symbols`. A reader takes `default` (None: an error) for any other symbol."""

    symbols: tuple[str, ...]
    default: str | None


@dataclass(frozen=True, slots=True)
class Field:
    """Field of a record. `default` is its default as parsed JSON, or NO_DEFAULT. `aliases` are its earlier names."""

    name: str
    aliases: tuple[str, ...]
    type: AvroType
    default: Any


@dataclass(frozen=True, slots=True)
class Record(Named):
    """Type of values that consist of `fields`, in the order in which the fields are written."""

    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Array:
    """Type of lists with any number of items, which have the type `items`."""

    items: AvroType


@dataclass(frozen=True, slots=True)
class Map:
    """Type of maps from strings to values of the type `items`."""

    items: AvroType


@dataclass(frozen=True, slots=True)
class Union:
    """Type of values that have any one of several types, the `branches`."""

    branches: tuple[AvroType, ...]

    @property
    def is_nullable(self) -> bool:
        return NULL in self.branches

    @property
    def values(self) -> tuple[AvroType, ...]:
        """Return the branches that are not the type null."""
        return tuple(branch for branch in self.branches if branch != NULL)


AvroType = Primitive | Fixed | Enum | Record | Array | Map | Union


def parse_avro_schema(text: str, referenced: Sequence[str] = (), columns: AvroColumns = AS_SPARK) -> AvroType:
    """Return the Avro schema with the JSON `text` as a checked tree of types.

    The schema may use named types of the schemas in `referenced`. Each of these may use named types of the schemas
    before it. `columns` states which columns some Avro types become.

    Raises:
        ConfigurationError: a text is not an Avro schema, or the schema is recursive or too large, or has a decimal that
            no column can hold.
    """
    parser = _Parser(columns)
    for schema in (*referenced, text):
        tree = parser.parse(schema_json(schema, "an Avro schema"), "", "the schema", 0)
    _check_size(tree)
    return tree


def _check_size(root: AvroType) -> None:
    left, waiting = MAX_NODES, [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        left -= 1
        if left < 0 or depth > MAX_DEPTH:
            raise ConfigurationError(
                f"an Avro schema has more than {MAX_NODES} types when written out, or more than {MAX_DEPTH} levels"
            )
        waiting += ((child, depth + 1) for child in children(node))


def children(node: AvroType) -> Iterator[AvroType]:
    """Yield the types directly within `node`: of a record's fields, of items, or of a union's branches."""
    match node:
        case Record():
            yield from (field.type for field in node.fields)
        case Array() | Map():
            yield node.items
        case Union():
            yield from node.branches


def field_sources(reader: Record, writer: Record) -> dict[str, str]:
    """Return the names of the writer's fields from which the reader's fields are read, by the reader's field names.

    A field of the reader is read from the writer's field with the same name, or otherwise from a writer's field whose
    name is an alias of the reader's field. Fields of the reader without a source are left out.
    """
    left = {field.name for field in writer.fields}
    sources = {field.name: field.name for field in reader.fields if field.name in left}
    left -= set(sources)
    for field in reader.fields:
        alias = next((name for name in field.aliases if name in left), None)
        if field.name not in sources and alias is not None:
            left.remove(alias)
            sources[field.name] = alias
    return sources


class _Parser:
    """Parser of several schemas, each of which may use the named types of the schemas before it.

    Its methods take `where`, which describes a type's position in the schema for error messages.
    """

    def __init__(self, columns: AvroColumns) -> None:
        self._large = columns.large_decimals
        self._has_named_times = columns.has_named_times
        self._names: dict[str, AvroType | None] = {}

    def parse(self, schema: Any, namespace: str, where: str, depth: int) -> AvroType:
        if depth > MAX_DEPTH:
            raise ConfigurationError(f"an Avro schema has more than {MAX_DEPTH} levels")
        match schema:
            case str():
                return Primitive(schema) if schema in PRIMITIVES else self._known(schema, namespace, where)
            case list():
                return self._union(schema, namespace, where, depth)
            case dict():
                return self._definition(schema, namespace, where, depth)
        raise _no_type(schema, where)

    def _definition(self, definition: dict[str, Any], namespace: str, where: str, depth: int) -> AvroType:
        match definition:
            case {"type": "record" | "error"}:
                return self._record(definition, namespace, where, depth)
            case {"type": "enum"}:
                return self._enum(definition, namespace, where)
            case {"type": "fixed"}:
                return self._fixed(definition, namespace, where)
            case {"type": "array", "items": items}:
                return Array(self.parse(items, namespace, f"{where}, items", depth + 1))
            case {"type": "map", "values": values}:
                return Map(self.parse(values, namespace, f"{where}, values", depth + 1))
            case {"type": str(kind)} if kind in PRIMITIVES:
                logical = definition.get("logicalType")
                if self._has_named_times:
                    logical = _NAMED_TIMES.get((kind, str(definition.get("connect.name"))), logical)
                known = logical if logical in NUMBERS.get(kind, ()) else None
                return Primitive(kind, self._decimal(definition, None, where) if kind == "bytes" else known)
            case {"type": str() | list() | dict() as inner} if inner not in ("array", "map"):
                return self.parse(inner, namespace, where, depth + 1)
        raise _no_type(definition, where)

    def _known(self, name: str, namespace: str, where: str) -> AvroType:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        full = full if full in self._names else name
        if full not in self._names:
            raise ConfigurationError(f"{where}: there is no Avro type {name[:100]!r}")
        known = self._names[full]
        if known is None:
            raise ConfigurationError(f"{where}: the Avro type {full} holds itself; recursive types have no columns")
        return known

    def _union(self, schemas: list[Any], namespace: str, where: str, depth: int) -> Union:
        branches = tuple(self.parse(schema, namespace, f"{where}, branch {at}", depth + 1)
                         for at, schema in enumerate(schemas))  # fmt: skip
        kinds = [branch.name if isinstance(branch, Named) else _kind(branch) for branch in branches]
        if not branches or "Union" in kinds or len({*kinds}) < len(kinds):
            raise ConfigurationError(f"{where}: a union is empty, or has a union or the same type twice in it: {kinds}")
        return Union(branches)

    def _name(self, definition: dict[str, Any], namespace: str, where: str) -> tuple[str, tuple[str, ...], str]:
        """Register the name of a definition; return its full name, its full aliases, and the namespace for its fields.

        Raises:
            ConfigurationError: the name or an alias is invalid, or the name is already defined.
        """
        name, aliases = definition.get("name"), definition.get("aliases", [])
        namespace = namespace if definition.get("namespace") is None else definition["namespace"]
        if not isinstance(namespace, str):
            raise ConfigurationError(f"{where}: {str(namespace)[:100]!r} is no namespace of an Avro type")
        if not isinstance(name, str) or not _is_name(_last(name)):
            within = f" in the namespace {namespace[:100]!r}" if namespace else ""
            raise ConfigurationError(f"{where}: {str(name)[:100]!r} is no name of an Avro type{within}")
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        inside = full.rpartition(".")[0]
        if full in self._names or full in PRIMITIVES:
            raise ConfigurationError(f"{where}: the Avro type {full} is defined twice")
        self._names[full] = None
        if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
            raise ConfigurationError(f"{where}: the aliases of {full} are no list of names")
        return full, tuple(alias if "." in alias or not inside else f"{inside}.{alias}" for alias in aliases), inside

    def _record(self, definition: dict[str, Any], namespace: str, where: str, depth: int) -> Record:
        name, aliases, inside = self._name(definition, namespace, where)
        fields = definition.get("fields")
        if not isinstance(fields, list):
            raise ConfigurationError(f"{where}: the record {name} has no list of fields")
        parsed = tuple(self._field(field, inside, name, depth) for field in fields)
        if len({field.name for field in parsed}) < len(parsed):
            raise ConfigurationError(f"{where}: the record {name} has a field twice")
        record = self._names[name] = Record(name, aliases, parsed)
        return record

    def _field(self, definition: Any, namespace: str, record: str, depth: int) -> Field:
        match definition:
            case {"name": str(name), "type": kind} if _is_name(name):
                aliases = definition.get("aliases", [])
                if isinstance(aliases, list) and all(isinstance(alias, str) for alias in aliases):
                    read = self.parse(kind, namespace, f"{record}.{name}", depth + 1)
                    return Field(name, tuple(aliases), read, definition.get("default", NO_DEFAULT))
        raise ConfigurationError(f"the record {record}: this is no field: {str(definition)[:100]}")

    def _enum(self, definition: dict[str, Any], namespace: str, where: str) -> Enum:
        name, aliases, _ = self._name(definition, namespace, where)
        symbols, default = definition.get("symbols"), definition.get("default")
        if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols) or (
            len({*symbols}) < len(symbols) or (default is not None and default not in symbols)
        ):  # fmt: skip
            raise ConfigurationError(
                f"{where}: the enum {name} has no list of different symbols, its default among them"
            )
        enum = self._names[name] = Enum(name, aliases, tuple(symbols), default)
        return enum

    def _fixed(self, definition: dict[str, Any], namespace: str, where: str) -> Fixed:
        name, aliases, _ = self._name(definition, namespace, where)
        size = definition.get("size")
        if type(size) is not int or not 0 <= size < 2**31:
            raise ConfigurationError(f"{where}: {size!r} is no size of the fixed type {name}")
        fixed = self._names[name] = Fixed(name, aliases, size, self._decimal(definition, size, where))
        return fixed

    def _decimal(self, definition: dict[str, Any], size: int | None, where: str) -> Decimal | None:
        """Return the decimal type of a definition, or None if its values are read as bytes.

        `size` is the number of bytes of a fixed type; None: the type is bytes. Avro reads values of an invalid decimal
        as bytes (`LogicalTypes.fromSchemaIgnoreInvalid`). Kafka Connect writes 64 for an unknown precision.

        Raises:
            LargeScaleError: the scale is too large for the type of the column.
        """
        precision, scale = definition.get("precision"), definition.get("scale", 0)
        if definition.get("logicalType") != "decimal" or type(precision) is not int or type(scale) is not int:
            return None
        if not 0 <= scale <= precision or precision == 0:
            return None
        # No fixed type of fewer than 17 bytes holds 39 digits. A larger power would only take time.
        if size is not None and size < 17 and 10 ** min(precision, MAX_PRECISION + 1) > 256**size // 2:
            return None
        if precision <= MAX_PRECISION:
            return Decimal(precision, scale)
        if self._large is LargeDecimals.BINARY:
            return None
        most = MAX_PRECISION if self._large is LargeDecimals.DECIMAL else MAX_SCALE
        if scale > most:
            raise LargeScaleError(
                f"{where}: an Avro decimal with {scale} digits after the point; {self._large.name} has at most {most}"
            )
        return Decimal(MAX_PRECISION if self._large is LargeDecimals.DECIMAL else precision, scale, self._large)


def _no_type(schema: object, where: str) -> ConfigurationError:
    return ConfigurationError(f"{where}: this is no Avro type: {str(schema)[:100]}")


def _kind(node: AvroType) -> str:
    return node.kind if isinstance(node, Primitive) else type(node).__name__


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _is_name(name: str) -> bool:
    """Return whether `name`, which has no namespace, is allowed for a type or a field.

    As in other Avro readers, hyphens are allowed.
    """
    return name.replace("-", "_").isidentifier()
