"""64-bit hashes of rows, computed from an Arrow batch, or by a Spark SQL expression that returns the same hashes.

A row's hash is `xxhash64` over its offset and then the columns in `HASHED`, in this order. `xxhash64` skips nulls, so a
key with a null value would have the same hash as a null key with a value of the same bytes. To prevent this, a null
mark (1 for null, otherwise 0) is hashed before each key and value. Null headers and an empty list of headers have the
same hash, because they are the same in Kafka.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa

from tiered_stream.errors import CorruptDataError
from tiered_stream.records.arrow import HEADERS_TYPE
from tiered_stream.records.memory import read_only

_SQL = {
    "timestamp": "timestamp",
    "key": "key IS NULL, key",
    "value": "value IS NULL, value",
    "headers": "transform(headers, header -> struct(header.key, header.value IS NULL, header.value))",
}
HASHED = tuple(_SQL)

BUCKET_BITS = 16
BUCKET = 1 << BUCKET_BITS
"""Number of offsets in a bucket. `bucket_sums` adds up the row hashes of each bucket. A bucket starts at a multiple of
this number.
"""

_NO_BYTES = read_only(np.zeros(0, np.uint8))
_NO_ENDS = read_only(np.zeros(0, np.int32))
_NOTHING = (_NO_ENDS, 0, _NO_BYTES, _NO_BYTES, 0)
_NO_HEADERS = ((_NO_ENDS, 0, _NO_ENDS, _NO_BYTES, 0), _NOTHING, _NOTHING)

Numbers = np.ndarray[Any, np.dtype[np.int64]]

BATCH_ROWS = 131_072
"""Maximum number of rows in an Arrow batch that is read only to be hashed."""


def row_hash_sql(columns: Collection[str]) -> str:
    """Return the Spark SQL expression that hashes a row's offset and then the columns that are in `columns`.

    The expression gives the same hashes as `row_hashes`. All `columns` must be in `HASHED`.
    """
    return f"xxhash64({', '.join(('offset', *(_SQL[name] for name in HASHED if name in columns)))})"


def row_hashes(rows: pa.RecordBatch, columns: Collection[str]) -> Numbers:
    """Return the hash of each row over its offset and then `columns`, in the order of `HASHED`.

    All `columns` must be in `HASHED`. `rows` has the columns of `records.arrow.record_schema`.

    Raises:
        CorruptDataError: a column's buffers do not hold all its rows.
    """
    # Imported here, because numba takes half a second to import, and Spark's driver needs only the expression.
    from tiered_stream.records.hash_kernels import hash_rows

    assert set(columns) <= set(HASHED)
    hashes: Numbers = np.empty(rows.num_rows, np.int64)
    column_bits = sum(1 << HASHED.index(column) for column in columns)
    headers = _headers(rows["headers"]) if "headers" in columns else _NO_HEADERS
    hashed = hash_rows(
        numbers(rows["offset"]), numbers(rows["timestamp"]), _bytes(rows["key"]), _bytes(rows["value"]), headers,
        column_bits, hashes,
    )  # fmt: skip
    if hashed != rows.num_rows:
        where = f"row {hashed} of an Arrow batch of {rows.num_rows}"
        raise CorruptDataError(f"{where} does not fit into the batch's buffers")
    return hashes


def bucket_sums(offsets: Numbers, hashes: Numbers) -> tuple[Numbers, ...]:
    """Return the sums of row hashes in buckets of offsets, as four arrays with one entry for each bucket that has rows.

    The arrays have the bucket's number, its number of rows, the sum of the upper 32 bits of the rows' hashes, and the
    sum of the lower 32 bits. `offsets` and `hashes` have one entry for each row, and `offsets` must be ascending.
    """
    if not len(offsets):
        return offsets, offsets, offsets, offsets
    buckets = offsets >> BUCKET_BITS
    firsts = np.flatnonzero(np.diff(buckets, prepend=buckets[0] - 1))
    high = (hashes.view(np.uint64) >> np.uint64(32)).view(np.int64)
    counts = np.diff(firsts, append=len(buckets))
    return buckets[firsts], counts, np.add.reduceat(high, firsts), np.add.reduceat(hashes & 0xFFFFFFFF, firsts)


def numbers(column: pa.Array) -> Numbers:
    """Return a column of 64-bit numbers or timestamps, without nulls, as a read-only array over the column's memory."""
    assert column.type.bit_width == 64
    assert not column.null_count
    return read_only(np.frombuffer(column.buffers()[1], np.int64))[column.offset : column.offset + len(column)]


def _buffer(column: pa.Array, index: int, kind: type[np.generic]) -> np.ndarray[Any, Any]:
    buffer = column.buffers()[index]
    return read_only(np.zeros(0, kind) if buffer is None or not buffer.size else np.frombuffer(buffer, kind))


def _bytes(column: pa.Array) -> tuple[Any, ...]:
    """Return a binary or string column for the kernels, as (ends, first row, bytes, validity bits, first bit)."""
    assert pa.types.is_binary(column.type) or pa.types.is_string(column.type)
    bits = _buffer(column, 0, np.uint8) if column.null_count else _NO_BYTES
    return _buffer(column, 1, np.int32), column.offset, _buffer(column, 2, np.uint8), bits, column.offset


def _headers(column: pa.Array) -> tuple[Any, ...]:
    assert column.type == HEADERS_TYPE
    assert not column.values.null_count
    keys, values = _bytes(column.values.field(0)), _bytes(column.values.field(1))
    bits = _buffer(column, 0, np.uint8) if column.null_count else _NO_BYTES
    # The kernel checks that the ends of lists do not exceed this array's length, which is the number of headers.
    header_slots = keys[0][keys[1] + 1 :]
    return (_buffer(column, 1, np.int32), column.offset, header_slots, bits, column.offset), keys, values
