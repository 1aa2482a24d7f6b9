"""Arrow schema of Kafka records, with the columns of Spark's `kafka` source, and the buffers that the decoder fills.

Columns:

    key, value     binary
    topic          string
    partition      int32
    offset         int64
    timestamp      timestamp in microseconds, UTC
    timestampType  int32    0 CreateTime, 1 LogAppendTime, -1 none
    headers        list<struct<key: string, value: binary>>

The column `headers` is present only on request, and is null if a record has no headers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tiered_stream.records.memory import allocate, first

HEADERS_TYPE = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
_FIELDS = [
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
    ("timestampType", pa.int32()),
]
SCHEMA = pa.schema(_FIELDS)
SCHEMA_WITH_HEADERS = pa.schema([*_FIELDS, ("headers", HEADERS_TYPE)])


def record_schema(include_headers: bool, columns: Sequence[str] | None = None) -> pa.Schema:
    """Return the schema of the Arrow batches that hold records: all columns, or only `columns`, in the given order.

    `headers` is a column only if `include_headers` is True. Types are the same as in Spark's `kafka` source.
    """
    whole = SCHEMA_WITH_HEADERS if include_headers else SCHEMA
    return whole if columns is None else pa.schema([whole.field(name) for name in columns])


def _bitmap(rows: int) -> np.ndarray[Any, Any]:
    return np.zeros((rows + 7) // 8, np.uint8)


def _ends(rows: int) -> np.ndarray[Any, Any]:
    ends = allocate(rows + 1, np.int32)
    ends[0] = 0
    return ends


@dataclass(frozen=True, slots=True)
class BytesBuffers:
    """Arrow buffers of a binary or string column, as writable arrays.

    `values` has the bytes of all values. `ends` begins with 0, and then has the position in `values` after each value.
    `bits` has the validity bits. `nulls` has one element, the number of nulls.

    `allocate` makes buffers for `rows` values with at most `size` bytes in total. Space that is never written takes no
    memory.
    """

    ends: np.ndarray[Any, Any]
    values: np.ndarray[Any, Any]
    bits: np.ndarray[Any, Any]
    nulls: np.ndarray[Any, Any]

    @classmethod
    def allocate(cls, rows: int, size: int) -> BytesBuffers:
        return cls(_ends(rows), allocate(size, np.uint8), _bitmap(rows), np.zeros(1, np.int64))

    def columns(self) -> tuple[Any, ...]:
        return self.ends, self.values, self.bits, self.nulls

    def array(self, rows: int, kind: pa.DataType) -> pa.Array:
        """Return the first `rows` byte strings as an Arrow array of type `kind` (binary or string)."""
        buffers = [*_validity_and_ends(self, rows), pa.py_buffer(first(self.values, self.ends[rows]))]
        return pa.Array.from_buffers(kind, rows, buffers, int(self.nulls[0]))


@dataclass(frozen=True, slots=True)
class HeaderBuffers:
    """Arrow buffers of the column `headers`, as writable arrays.

    `ends` begins with 0, and then has the number of headers up to each record. `bits` has the validity bits, and
    `nulls` the number of nulls. `allocate` makes buffers for `rows` records with at most `max_headers` headers in
    total. All header keys together have at most `size` bytes, and so have all header values together.
    """

    ends: np.ndarray[Any, Any]
    bits: np.ndarray[Any, Any]
    nulls: np.ndarray[Any, Any]
    keys: BytesBuffers
    values: BytesBuffers

    @classmethod
    def allocate(cls, rows: int, max_headers: int, size: int) -> HeaderBuffers:
        keys, values = BytesBuffers.allocate(max_headers, size), BytesBuffers.allocate(max_headers, size)
        return cls(_ends(rows), _bitmap(rows), np.zeros(1, np.int64), keys, values)

    def columns(self) -> tuple[Any, ...]:
        return self.ends, self.bits, self.nulls, self.keys.columns(), self.values.columns()

    def array(self, rows: int) -> pa.Array:
        count = int(self.ends[rows])
        keys = _valid_text(self.keys.array(count, pa.string()))
        struct_type = HEADERS_TYPE.value_type
        pairs = pa.StructArray.from_arrays([keys, self.values.array(count, pa.binary())], fields=list(struct_type))
        buffers = _validity_and_ends(self, rows)
        return pa.Array.from_buffers(HEADERS_TYPE, rows, buffers, int(self.nulls[0]), children=[pairs])


def _validity_and_ends(column: BytesBuffers | HeaderBuffers, rows: int) -> list[pa.Buffer | None]:
    return [pa.py_buffer(column.bits) if column.nulls[0] else None, pa.py_buffer(first(column.ends, rows + 1))]


def _valid_text(array: pa.Array) -> pa.Array:
    """Return header keys as an array of valid UTF-8. Malformed bytes become the character U+FFFD, as in Java."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        keys = array.cast(pa.binary()).to_pylist()
        return pa.array([None if key is None else key.decode(errors="replace") for key in keys], pa.string())
    return array


@dataclass(frozen=True, slots=True)
class RecordBuffers:
    """Arrow buffers of all columns of Kafka records, except topic and partition.

    `allocate` makes buffers for `rows` records that take `size` bytes uncompressed, of which keys take at most
    `key_size` bytes. Its argument `headers` is the maximum number of headers in all records together; -1 leaves headers
    out.
    """

    offsets: np.ndarray[Any, Any]
    timestamps: np.ndarray[Any, Any]
    timestamp_types: np.ndarray[Any, Any]
    keys: BytesBuffers
    values: BytesBuffers
    headers: HeaderBuffers

    @classmethod
    def allocate(cls, rows: int, size: int, key_size: int, headers: int) -> RecordBuffers:
        return cls(
            allocate(rows, np.int64),
            allocate(rows, np.int64),
            allocate(rows, np.int32),
            BytesBuffers.allocate(rows, key_size),
            BytesBuffers.allocate(rows, size),
            HeaderBuffers.allocate(rows, headers, size) if headers >= 0 else HeaderBuffers.allocate(0, 0, 0),
        )

    def columns(self) -> tuple[Any, ...]:
        fixed = self.offsets, self.timestamps, self.timestamp_types
        return *fixed, self.keys.columns(), self.values.columns(), self.headers.columns()

    def record_batches(
        self, topic: str, partition: int, rows: int, schema: pa.Schema, max_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the first `rows` records as Arrow batches of at most `max_rows` rows, with the columns of `schema`."""
        longest = min(rows, max_rows)
        repeated = {"topic": repeated_text(topic, longest), "partition": repeated_int32(partition, longest)}
        arrays = {name: self._array(name, rows) for name in schema.names if name not in repeated}
        for start in range(0, rows, max_rows):
            size = min(max_rows, rows - start)
            columns = [
                repeated[name].slice(0, size) if name in repeated else arrays[name].slice(start, size)
                for name in schema.names
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _array(self, name: str, rows: int) -> pa.Array:
        match name:
            case "key" | "value":
                return (self.keys if name == "key" else self.values).array(rows, pa.binary())
            case "headers":
                return self.headers.array(rows)
        numbers = {"offset": self.offsets, "timestamp": self.timestamps, "timestampType": self.timestamp_types}[name]
        return pa.Array.from_buffers(SCHEMA.field(name).type, rows, [None, pa.py_buffer(numbers)])


# The next functions make arrays from buffers, because pyarrow's functions that convert Python values import pandas,
# which takes half a second.


def repeated_text(text: str, rows: int) -> pa.Array:
    """Return an Arrow string array that repeats `text` in `rows` rows."""
    data = text.encode()
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(data))
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(data * rows)])


def repeated_int32(number: int, rows: int) -> pa.Array:
    """Return an Arrow int32 array that repeats `number` in `rows` rows."""
    return pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(np.full(rows, number, np.int32))])
