"""Decoder of Avro values (datums without a header) to the column that Spark's `from_avro` would return.

A kernel is a function that numba compiles. It reads values of the writer's schema as values of the reader's schema, by
a program (Avro specification 1.12, "Schema Resolution"). A program is a table of operations, in the order of the bytes
that they read. Each operation writes to a node: the column, or a column nested in it. The node is -1 if the reader's
schema lacks the field. After the fields of a record come the defaults of fields that the writer's schema lacks. Columns
are filled independently of each other, so the order of the reader's fields does not matter.

`AvroProgram`, not the kernel, finds a writer's type that cannot be read as the reader's type. In a branch of a union,
this is an error of the values that have this branch. Elsewhere, it is an error of the whole schema.

The two types must have the same logical type, with three exceptions. Timestamps may have different units, which are
converted. Decimals of one scale may have different precisions; a value with too many digits is an error of the value.
If only one of the two types has a logical type, numbers and bytes are read unchanged.

Kernels read decimals of more than 38 digits as bytes, which `large_decimals.py` converts to texts or DOUBLE.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.avro import avro_kernels as kernels
from tiered_stream.formats.avro import avro_schema as avro
from tiered_stream.formats.avro.avro_types import arrow_type, single_type
from tiered_stream.formats.avro.large_decimals import with_large_decimals
from tiered_stream.formats.columns.column_builder import ColumnBuilder
from tiered_stream.formats.columns.column_kernels import key_hash_table
from tiered_stream.formats.columns.decoded import REASON_SIZE, ByteSlices, Decoded, SlicesDecoder
from tiered_stream.formats.rows.row_choices import LargeDecimals
from tiered_stream.records.flexible_versions import uvarint

_MAX_OPERATIONS = 100_000
"""Maximum number of operations that are generated for one pair of Avro schemas.

Operations that are discarded later count, too, because a branch of a union may be tried many times.
"""

_SIMPLE = {"null": kernels.NULL, "boolean": kernels.BOOL, "float": kernels.FLOAT, "double": kernels.DOUBLE}
_POWERS = np.array([divmod(10**digits, 1 << 64) for digits in range(39)], np.uint64)
"""Powers of ten from 1 to 10**38, each as its upper and lower 64 bits."""


class _MismatchError(Exception):
    """Error of a writer's type whose values cannot be read as the reader's type."""


class AvroProgram:
    """Program by which a kernel reads Avro values of one schema, the writer's, into columns of the reader's schema.

    `operations` has a row for each operation, and `paths` has the path of the field that the operation reads.
    `mismatches` has an error text for each branch of a union that cannot be read.
    """

    def __init__(self, writer: avro.AvroType, reader: avro.AvroType, builder: ColumnBuilder) -> None:
        """Compile the program that reads values of the schema `writer` into the columns of `builder`.

        The columns of `builder` must have the type of the schema `reader` (`arrow_type` with `as_read`).

        Raises:
            ConfigurationError: values of `writer` cannot be read as values of `reader`, or the program is too long.
        """
        self.operations: list[list[int]] = []
        self.paths: list[str] = []
        self.table: list[int] = []
        self.texts = bytearray()
        self.mismatches: list[str] = []
        self._left = _MAX_OPERATIONS
        self._builder = builder
        try:
            self.read(writer, reader, 0, "")
        except _MismatchError as error:
            raise ConfigurationError(f"values of the writer's schema cannot be read as the reader's: {error}") from None
        self.emit(kernels.DONE, -1, "")

    def kernel_arguments(self) -> tuple[np.ndarray[Any, Any], ...]:
        """Return the program as arrays for the kernel: (operations, table, texts, powers of ten).

        The table has numbers that operations of unions and enums refer to. The texts are the bytes of enums' symbols
        and of defaults.
        """
        texts = np.frombuffer(bytes(self.texts) or b"\0", np.uint8)
        return np.array(self.operations, np.int64), np.array(self.table or [0], np.int64), texts, _POWERS

    def reason(self, error: int) -> str:
        """Return a text with the reason why a value could not be decoded, and with the path of the field that failed.

        `error` is the kernel's error code plus 256 times the index of the operation that failed.
        """
        operation, error = divmod(error, 256)
        path = self.paths[operation] or "the value"
        if error == kernels.MISMATCH:
            return f"{path}: {self.mismatches[self.operations[operation][kernels.A]]}"
        return f"{path}: {kernels.ERROR_TEXTS[error]}"

    def emit(self, operation: int, node: int, path: str, a: int = 0, b: int = 0, c: int = -1) -> list[int]:
        self._left -= 1
        if self._left < 0:
            raise ConfigurationError(f"to read an Avro schema takes more than {_MAX_OPERATIONS} operations")
        row = [operation, node, a, b, c]
        self.operations.append(row)
        self.paths.append(path)
        return row

    def read(self, writer: avro.AvroType, reader: avro.AvroType, node: int, path: str) -> None:
        """Add the operations that read a value of the type `writer` as the type `reader` into the column `node`.

        `node` is the index of a column or nested column in the builder; with -1, the value is skipped. `path` is the
        path of the value's field, for error texts.

        Raises:
            _MismatchError: no value of `writer` can be read as `reader`.
            ConfigurationError: the program becomes too long.
        """
        match writer, reader:
            case avro.Union(), _:
                self._writer_union(writer, reader, node, path)
            case _, avro.Union():
                self._reader_union(writer, reader, node, path)
            case avro.Primitive(), avro.Primitive():
                self._primitive(writer, reader, node, path)
            case avro.Fixed(), avro.Fixed() if reader.is_called(writer) and (
                writer.size == reader.size or _is_number_of(writer, reader)
            ):
                _check_logical(writer, reader, path)
                self._bytes(reader, writer.size, node, path)
            case avro.Enum(), avro.Enum() if reader.is_called(writer):
                self._enum(writer, reader, node, path)
            case avro.Record(), avro.Record():
                self._record(writer, reader, node, path)
            case avro.Array(), avro.Array():
                (item,) = self._children(node, 1)
                start = self.emit(kernels.LIST, node, path, b=_takes_bytes(writer.items))
                self.read(writer.items, reader.items, item, f"{path}[]")
                self._end_list(start, path)
            case avro.Map(), avro.Map():
                self._map(writer, reader, node, path)
            case _:
                raise _mismatch(writer, reader, path)

    def _children(self, node: int, count: int) -> list[int]:
        return self._builder.children[node] if node >= 0 else [-1] * count

    def _end_list(self, start: list[int], path: str) -> None:
        self.emit(kernels.NEXT, -1, path)
        start[kernels.A] = len(self.operations)

    def _map(self, writer: avro.Map, reader: avro.Map, node: int, path: str) -> None:
        (entries,) = self._children(node, 1)
        key, value = self._children(entries, 2)
        start = self.emit(kernels.LIST, node, path, b=1, c=key)
        self.emit(kernels.STRUCT, entries, path)
        self.emit(kernels.BYTES, key, f"{path}, a key", a=1)
        self.read(writer.items, reader.items, value, f"{path}[]")
        self._end_list(start, path)

    def _writer_union(self, writer: avro.Union, reader: avro.AvroType, node: int, path: str) -> None:
        at, count = len(self.table), len(writer.branches)
        self.emit(kernels.UNION, -1, path, a=at, b=count)
        self.table += [0] * count
        ends = []
        for index, branch in enumerate(writer.branches):
            self.table[at + index] = start = len(self.operations)
            try:
                self.read(branch, reader, node, path)
            except _MismatchError as error:
                del self.operations[start:], self.paths[start:]
                self.emit(kernels.FAIL, -1, path, a=len(self.mismatches))
                self.mismatches.append(str(error))
            ends.append(self.emit(kernels.JUMP, -1, path))
        for end in ends:
            end[kernels.A] = len(self.operations)

    def _reader_union(self, writer: avro.AvroType, reader: avro.Union, node: int, path: str) -> None:
        if writer == avro.NULL and reader.is_nullable:
            self.emit(kernels.NULL, node, path)
            return
        one = single_type(reader)
        if one is not None:
            self.read(writer, one, node, path)
            return
        members = self._children(node, len(reader.values))
        self.emit(kernels.STRUCT, node, path)
        start = len(self.operations)
        for chosen in _candidates(writer, reader.values):
            with suppress(_MismatchError):
                self.read(writer, reader.values[chosen], members[chosen], path)
                for other in (*members[:chosen], *members[chosen + 1 :]):
                    self.emit(kernels.NULL, other, path)
                return
            del self.operations[start:], self.paths[start:]
        raise _mismatch(writer, reader, path)

    def _primitive(self, writer: avro.Primitive, reader: avro.Primitive, node: int, path: str) -> None:
        _check_logical(writer, reader, path)
        match writer.kind, reader.kind:
            case ("int", "int" | "long") | ("long", "long"):
                self.emit(kernels.LONG, node, path, a=writer.kind == "int", b=_factor(writer, reader))
            case "int" | "long", "float" | "double":
                self.emit(kernels.NUMBER, node, path, a=writer.kind == "int", b=reader.kind == "float")
            case ("float", "float" | "double") | ("double", "double") | ("boolean", "boolean") | ("null", "null"):
                self.emit(_SIMPLE[writer.kind], node, path)
            case "bytes" | "string", "bytes" | "string":
                self._bytes(reader, -1, node, path)
            case _:
                raise _mismatch(writer, reader, path)

    def _bytes(self, reader: avro.Primitive | avro.Fixed, size: int, node: int, path: str) -> None:
        """Add the operation that reads bytes, a text or a decimal of `size` bytes; -1: the length is written first."""
        decimal = reader.logical if isinstance(reader.logical, avro.Decimal) else None
        if decimal is not None and decimal.column is LargeDecimals.DECIMAL:
            self.emit(kernels.DECIMAL, node, path, a=decimal.precision, b=size)
        elif size >= 0:
            self.emit(kernels.FIXED, node, path, a=size, b=decimal is not None)
        else:
            self.emit(kernels.BYTES, node, path, a=reader == avro.Primitive("string"), b=decimal is not None)

    def _enum(self, writer: avro.Enum, reader: avro.Enum, node: int, path: str) -> None:
        """Add the operation that reads an enum, and add the writer's symbols to the program's table.

        For each symbol, the table gets the position and the length of the symbol's text in the program's texts. A
        symbol that the reader's schema lacks becomes the reader's default or, without a default, the pair (-1, 0).
        """
        self.emit(kernels.ENUM, node, path, a=len(self.table), b=len(writer.symbols))
        for symbol in writer.symbols:
            known = symbol if symbol in reader.symbols else reader.default
            self.table += (-1, 0) if known is None else self._text(known.encode())

    def _text(self, content: bytes) -> tuple[int, int]:
        at = len(self.texts)
        self.texts += content
        return at, len(content)

    def _record(self, writer: avro.Record, reader: avro.Record, node: int, path: str) -> None:
        self.emit(kernels.STRUCT, node, path)
        names = [field.name for field in reader.fields]
        nodes = dict(zip(names, self._children(node, len(names)), strict=True))
        sources = avro.field_sources(reader, writer)
        targets = {sources[field.name]: field for field in reader.fields if field.name in sources}
        for field in writer.fields:
            target = targets.get(field.name)
            kind, below = (target.type, nodes[target.name]) if target else (field.type, -1)
            self.read(field.type, kind, below, f"{path}.{field.name}" if path else field.name)
        for field in reader.fields:
            if field.name not in sources:
                self._default(field, nodes[field.name], f"{path}.{field.name}" if path else field.name)

    def _default(self, field: avro.Field, node: int, path: str) -> None:
        """Add the operations that write the default of `field`, which the writer's schema lacks, to the node `node`.

        Raises:
            _MismatchError: the field has no default, or its default does not have the field's type.
        """
        if field.default is avro.NO_DEFAULT:
            raise _MismatchError(f"{path}: the writer has no such field, and it has no default")
        if node >= 0:
            self.emit(kernels.DEFAULT, -1, path, *self._text(_encoded(field.type, _default(field), path)))
            self.read(field.type, field.type, node, path)
            self.emit(kernels.RESUME, -1, path)


def _default(field: avro.Field) -> Any:
    """Return the default of a field, or NO_DEFAULT. For a float or a double, a text such as `NaN` becomes a number.

    (Avro: `Schema.parseField`.)
    """
    if field.type in (avro.Primitive("float"), avro.Primitive("double")) and isinstance(field.default, str):
        with suppress(ValueError):
            return float(field.default)
    return field.default


def _encoded(kind: avro.AvroType, value: Any, path: str) -> bytes:
    """Return the default `value`, which is parsed JSON, as the bytes of an Avro value of the type `kind`.

    `path` is the path of the field, for error texts. (Avro specification, "Complex Types, Records".)

    Raises:
        _MismatchError: `value` does not have the type `kind`.
    """
    match kind, value:
        case avro.Union(), _:
            # The default belongs to the first branch whose type it has. Since Avro 1.12, this can be any branch.
            for number, branch in enumerate(kind.branches):
                with suppress(_MismatchError):
                    return _varint(number) + _encoded(branch, value, path)
        case avro.Array(), list():
            return _block([_encoded(kind.items, item, path) for item in value])
        case avro.Map(), dict():
            return _block([_sized(key.encode()) + _encoded(kind.items, item, path) for key, item in value.items()])
        case avro.Record(), dict():
            items = [(field.type, value.get(field.name, _default(field))) for field in kind.fields]
            if all(item is not avro.NO_DEFAULT for _, item in items):
                return b"".join(_encoded(field_type, item, path) for field_type, item in items)
        case avro.Primitive() | avro.Enum() | avro.Fixed(), _:
            if (content := _encoded_simple(kind, value)) is not None:
                return content
    raise _MismatchError(f"{path}: {str(value)[:40]!r} is no default of its type")


def _encoded_simple(kind: avro.Primitive | avro.Enum | avro.Fixed, value: Any) -> bytes | None:
    """Return the default `value` as the bytes of an Avro value of the type `kind`, or None if it has another type.

    `value` is parsed JSON, and `kind` is a type without nested types.
    """
    match kind, value:
        case avro.Primitive("null"), None:
            return b""
        case avro.Primitive("boolean"), bool():
            return bytes((value,))
        case avro.Primitive("int" | "long"), int() if not isinstance(value, bool):
            bound = 1 << (31 if kind.kind == "int" else 63)
            return _varint(value) if -bound <= value * _factor(kind, kind) < bound else None
        case avro.Primitive("float" | "double"), int() | float() if not isinstance(value, bool):
            return np.array(value, "<f4" if kind.kind == "float" else "<f8").tobytes()
        case avro.Primitive("string"), str():
            return _sized(value.encode())
        case avro.Enum(), str() if value in kind.symbols:
            return _varint(kind.symbols.index(value))
        case ((avro.Primitive("bytes") | avro.Fixed()), str()) if all(ord(character) < 256 for character in value):
            return _encoded_bytes(kind, value.encode("latin-1"))
    return None


def _encoded_bytes(kind: avro.Primitive | avro.Fixed, content: bytes) -> bytes | None:
    limit = 10 ** min(kind.logical.precision, 1000) if isinstance(kind.logical, avro.Decimal) else None
    if limit is not None and abs(int.from_bytes(content, signed=True)) >= limit:
        return None
    if isinstance(kind, avro.Primitive):
        return _sized(content)
    return content if len(content) == kind.size else None


def _varint(number: int) -> bytes:
    return uvarint((number << 1) ^ (number >> 63))


def _sized(content: bytes) -> bytes:
    return _varint(len(content)) + content


def _block(items: list[bytes]) -> bytes:
    return b"".join((_varint(len(items)), *items, b"\0")) if items else b"\0"


def _candidates(writer: avro.AvroType, branches: Sequence[avro.AvroType]) -> list[int]:
    """Return the order in which the branches of the reader's union are tried for a value of the type `writer`.

    The result has indexes of `branches`. If a branch has the full name of `writer` as its name or as an alias, the
    result has only this branch. Otherwise, it has all branches. The first ones have the primitive type of `writer`, or
    are records, enums or fixed types like `writer`, with the same last part of the name. (Avro: `Schema.applyAliases`,
    `Resolver.ReaderUnion.firstMatchingBranch`.)
    """

    def distance(at: int) -> int:
        match writer, branches[at]:
            case avro.Named(), avro.Named() as branch if type(branch) is type(writer):
                return 0 if writer.name in (branch.name, *branch.aliases) else 1 if branch.is_called(writer) else 2
            case avro.Primitive(), avro.Primitive(kind):
                return 1 if kind == writer.kind else 2
        return 1 if type(branches[at]) is type(writer) else 2

    ordered = sorted(range(len(branches)), key=distance)
    return ordered[:1] if ordered and distance(ordered[0]) == 0 else ordered


def _factor(writer: avro.Primitive, reader: avro.Primitive) -> int:
    """Return the factor by which a number of the type `writer` is multiplied to get the number in the column.

    The factor is 1000 for a timestamp in milliseconds, because columns have microseconds. Otherwise it is 1.
    """
    return 1000 if reader.logical is not None and str(writer.logical or reader.logical).endswith("millis") else 1


def _is_number_of(writer: avro.Primitive | avro.Fixed, reader: avro.Primitive | avro.Fixed) -> bool:
    """Return whether both types are decimals of the same scale, so that a number has the same bytes in both types."""
    one, other = writer.logical, reader.logical
    return isinstance(one, avro.Decimal) and isinstance(other, avro.Decimal) and one.scale == other.scale


def _check_logical(writer: avro.Primitive | avro.Fixed, reader: avro.Primitive | avro.Fixed, path: str) -> None:
    one, other = writer.logical, reader.logical
    if one is None or other is None or one == other or _is_number_of(writer, reader):
        return
    if isinstance(one, str) and isinstance(other, str) and one.split("-")[:-1] == other.split("-")[:-1]:
        return
    raise _mismatch(writer, reader, path)


def _takes_bytes(node: avro.AvroType) -> bool:
    """Return whether each value of the type `node` takes at least one byte."""
    match node:
        case avro.Primitive("null"):
            return False
        case avro.Fixed():
            return node.size > 0
        case avro.Record():
            return any(_takes_bytes(field.type) for field in node.fields)
    return True


def _mismatch(writer: avro.AvroType, reader: avro.AvroType, path: str) -> _MismatchError:
    return _MismatchError(f"{path or 'the value'}: {_text(writer)} is written, which cannot be read as {_text(reader)}")


def _text(node: avro.AvroType) -> str:
    match node:
        case avro.Primitive():
            return node.kind if node.logical is None else f"{node.kind} ({node.logical})"
        case avro.Fixed() | avro.Enum() | avro.Record():
            return f"{type(node).__name__.lower()} {node.name[:60]}"
    return type(node).__name__.lower()


class AvroDecoder(SlicesDecoder):
    """Decoder of Avro values of the schema `writer`, to a column with the type of the schema `reader`.

    Raises:
        ConfigurationError: values of `writer` cannot be read as values of `reader`.
        UnsupportedDataError: no column can have the type of `reader`.
    """

    def __init__(self, writer: avro.AvroType, reader: avro.AvroType) -> None:
        self.kind = arrow_type(reader)
        self._reader = reader
        self._builder = ColumnBuilder(arrow_type(reader, as_read=True))
        self._program = AvroProgram(writer, reader, self._builder)
        self._arguments = self._program.kernel_arguments()
        self._room = (
            np.zeros((avro.MAX_DEPTH + 2, kernels.STACK_COLUMNS), np.int64),
            key_hash_table(self._builder.has_maps),
        )

    def read(self, slices: ByteSlices) -> Decoded:
        column, errors, reasons = self._builder.decoded(slices, kernels.decode_values, self._arguments, self._room)
        for row in np.flatnonzero(errors).tolist():
            reasons[row] = self._program.reason(int(errors[row]))[:REASON_SIZE]
        if column.type != self.kind:
            column = with_large_decimals(column, self._reader, reasons)
        return Decoded(column, reasons)


def compile_kernels() -> None:
    """Compile the kernels of the Avro decoder, or load them from the cache. `tiered-stream warm` calls this."""
    AvroDecoder(avro.Primitive("int"), avro.Primitive("int")).decode(pa.scalar([b"\2"], pa.list_(pa.binary())).values)
