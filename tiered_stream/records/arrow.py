"""The Arrow form of Kafka records: Spark's schema for the `kafka` source, and the buffers that the kernels fill.

Columns: key and value binary, topic string, partition int32, offset int64, timestamp in microseconds UTC, timestampType
int32 (0 CreateTime, 1 LogAppendTime, -1 none), and on request headers list<struct<key: string, value: binary>>, null
where a record has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tiered_stream.records.memory import allocate

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


def record_schema(include_headers: bool) -> pa.Schema:
    """The schema of every `pyarrow.RecordBatch` that is yielded; Spark compares it to the letter."""
    return SCHEMA_WITH_HEADERS if include_headers else SCHEMA


def _bitmap(rows: int) -> np.ndarray[Any, Any]:
    return np.zeros((rows + 7) // 8, np.uint8)


def _ends(rows: int) -> np.ndarray[Any, Any]:
    ends = allocate(rows + 1, np.int32)
    ends[0] = 0
    return ends


@dataclass(frozen=True, slots=True)
class BytesBuffers:
    """Memory for `rows` byte strings of together at most `size` bytes; only what is written to takes memory."""

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
        """The first `rows` as an Arrow array of binary or string, without a copy."""
        buffers = [*_validity_and_ends(self, rows), pa.py_buffer(self.values[: self.ends[rows]])]
        return pa.Array.from_buffers(kind, rows, buffers, int(self.nulls[0]))


@dataclass(frozen=True, slots=True)
class HeaderBuffers:
    """Memory for the headers of `rows` records that take at most `size` bytes."""

    ends: np.ndarray[Any, Any]
    bits: np.ndarray[Any, Any]
    nulls: np.ndarray[Any, Any]
    keys: BytesBuffers
    values: BytesBuffers

    @classmethod
    def allocate(cls, rows: int, size: int) -> HeaderBuffers:
        most = size // 2
        keys, values = BytesBuffers.allocate(most, size), BytesBuffers.allocate(most, size)
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
    return [pa.py_buffer(column.bits) if column.nulls[0] else None, pa.py_buffer(column.ends[: rows + 1])]


def _valid_text(array: pa.Array) -> pa.Array:
    """Header keys as UTF-8; malformed ones as Java's decoder gives them, with replacement characters."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([key.decode(errors="replace") for key in array.cast(pa.binary()).to_pylist()], pa.string())
    return array


@dataclass(frozen=True, slots=True)
class RecordBuffers:
    """Memory for `rows` records whose batches take `size` bytes uncompressed."""

    offsets: np.ndarray[Any, Any]
    timestamps: np.ndarray[Any, Any]
    timestamp_types: np.ndarray[Any, Any]
    keys: BytesBuffers
    values: BytesBuffers
    headers: HeaderBuffers

    @classmethod
    def allocate(cls, rows: int, size: int, include_headers: bool) -> RecordBuffers:
        return cls(
            allocate(rows, np.int64),
            allocate(rows, np.int64),
            allocate(rows, np.int32),
            BytesBuffers.allocate(rows, size),
            BytesBuffers.allocate(rows, size),
            HeaderBuffers.allocate(rows, size) if include_headers else HeaderBuffers.allocate(0, 0),
        )

    def columns(self) -> tuple[Any, ...]:
        fixed = self.offsets, self.timestamps, self.timestamp_types
        return *fixed, self.keys.columns(), self.values.columns(), self.headers.columns()

    def record_batches(
        self, topic: str, partition: int, rows: int, include_headers: bool, most: int
    ) -> Iterator[pa.RecordBatch]:
        """The first `rows` records, at most `most` in one batch."""
        columns = [
            self.keys.array(rows, pa.binary()),
            self.values.array(rows, pa.binary()),
            pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(self.offsets)]),
            pa.Array.from_buffers(_FIELDS[5][1], rows, [None, pa.py_buffer(self.timestamps)]),
            pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(self.timestamp_types)]),
            *([self.headers.array(rows)] if include_headers else ()),
        ]
        schema = record_schema(include_headers)
        topics, partitions = repeated_text(topic, min(rows, most)), repeated_int32(partition, min(rows, most))
        for start in range(0, rows, most):
            key, value, *others = (column.slice(start, most) for column in columns)
            same = topics.slice(0, len(key)), partitions.slice(0, len(key))
            yield pa.RecordBatch.from_arrays([key, value, *same, *others], schema=schema)


# From buffers: pyarrow's own ways to make an array of Python values import pandas, which takes half a second.


def repeated_text(text: str, rows: int) -> pa.Array:
    """`rows` times the same text."""
    data = text.encode()
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(data))
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(data * rows)])


def repeated_int32(number: int, rows: int) -> pa.Array:
    """`rows` times the same number."""
    return pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(np.full(rows, number, np.int32))])
