"""The row hash over Arrow's buffers, next to the same made of the xxhash library, row by row."""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tiered_stream.errors import CorruptDataError
from tiered_stream.records import hash_kernels
from tiered_stream.records.arrow import SCHEMA_WITH_HEADERS
from tiered_stream.records.row_hash import HASHED, row_hashes

Row = dict[str, Any]

BYTES = st.none() | st.binary(max_size=200)
LONGS = st.integers(-(2**63), 2**63 - 1)
HEADERS = st.none() | st.lists(st.fixed_dictionaries({"key": st.text(max_size=12), "value": BYTES}), max_size=4)
ROWS = st.lists(
    st.fixed_dictionaries({"offset": LONGS, "timestamp": LONGS, "key": BYTES, "value": BYTES, "headers": HEADERS}),
    min_size=1, max_size=30,
)  # fmt: skip


def batch(rows: list[Row]) -> pa.RecordBatch:
    columns = {name: [row.get(name) for row in rows] for name in SCHEMA_WITH_HEADERS.names}
    arrays = [pa.array(columns[field.name], field.type) for field in SCHEMA_WITH_HEADERS]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA_WITH_HEADERS)


def expected(row: Row, columns: Collection[str]) -> int:
    """The values one after the other, the hash before being the seed of the next."""
    values = [struct.pack("<q", row["offset"])]
    if "timestamp" in columns:
        values.append(struct.pack("<q", row["timestamp"]))
    for name in ("key", "value"):
        if name in columns:
            values += marked(row[name])
    if "headers" in columns:
        for header in row["headers"] or ():
            values += [header["key"].encode(), *marked(header["value"])]
    seed = 42
    for value in values:
        seed = xxhash.xxh64_intdigest(value, seed)
    return struct.unpack("<q", struct.pack("<Q", seed))[0]  # type: ignore[no-any-return]


def marked(value: bytes | None) -> list[bytes]:
    return [struct.pack("<i", value is None), *([] if value is None else [value])]


@given(ROWS, st.sets(st.sampled_from(HASHED)), st.integers(0, 29))
def test_any_rows_of_any_slice_are_hashed(rows: list[Row], columns: set[str], start: int) -> None:
    start = min(start, len(rows) - 1)
    hashes = row_hashes(batch(rows).slice(start), columns)
    assert hashes.tolist() == [expected(row, columns) for row in rows[start:]]


def test_bytes_of_every_length_around_the_tails_are_hashed() -> None:
    data = bytes(range(256)) * 2
    rows = [{"offset": n, "timestamp": 0, "key": data[:n], "value": data[n:], "headers": None} for n in range(300)]
    assert row_hashes(batch(rows), HASHED).tolist() == [expected(row, HASHED) for row in rows]


def test_bytes_in_the_key_and_in_the_value_are_not_the_same() -> None:
    one, other = (
        {"offset": 1, "timestamp": 0, "key": key, "value": value} for key, value in ((b"a", None), (None, b"a"))
    )
    first, second = row_hashes(batch([one, other]), HASHED).tolist()
    assert first != second


def test_no_headers_and_an_empty_list_of_them_are_the_same() -> None:
    rows = [{"offset": 1, "timestamp": 0, "headers": headers} for headers in (None, [])]
    assert len(set(row_hashes(batch(rows), HASHED).tolist())) == 1


@pytest.mark.parametrize("ends", [[0, 9, 4], [0, -1, 4], [3, 2, 4], [0, 2**31 - 1, 4]])
def test_ends_that_do_not_fit_are_refused(ends: list[int]) -> None:
    rows = batch([{"offset": n, "timestamp": 0, "key": b"", "value": b"ab"} for n in range(2)])
    broken = pa.Array.from_buffers(
        pa.binary(), 2, [None, pa.py_buffer(np.array(ends, np.int32)), pa.py_buffer(b"abcd")]
    )
    with pytest.raises(CorruptDataError, match=r"row [01] of an Arrow batch of 2 does not fit"):
        row_hashes(rows.set_column(1, rows.schema.field(1), broken), HASHED)


def test_headers_that_do_not_fit_are_refused() -> None:
    rows = batch([{"offset": n, "timestamp": 0, "headers": [{"key": "a", "value": b"b"}]} for n in range(2)])
    headers = rows["headers"]
    ends = pa.py_buffer(np.array([0, 9, 2], np.int32))
    broken = pa.Array.from_buffers(headers.type, 2, [None, ends], children=[headers.values])
    with pytest.raises(CorruptDataError, match="row 0 of an Arrow batch of 2 does not fit"):
        row_hashes(rows.set_column(7, rows.schema.field(7), broken), HASHED)


def test_the_kernels_are_compiled_once_whatever_the_buffers_are() -> None:
    bare = {"offset": 1, "timestamp": 0}
    for more in ({}, {"key": b"a"}, {"value": b"b", "headers": []}, {"headers": [{"key": "a", "value": None}]}):
        rows = batch([bare, {**bare, **more}, {**bare, "key": b"c"}])
        for columns in (HASHED, HASHED[:1]):
            row_hashes(rows, columns)
            row_hashes(rows.slice(1, 1), columns)
    assert len(hash_kernels.hash_rows.signatures) == 1


def test_fewer_results_than_rows_are_not_written_past() -> None:
    ends, nothing, numbers = np.zeros(0, np.int32), np.zeros(0, np.uint8), np.zeros(5, np.int64)
    for array in (ends, nothing, numbers):
        array.setflags(write=False)
    none = (ends, 0, nothing, nothing, 0)
    no_headers = ((ends, 0, ends, nothing, 0), none, none)
    hashes = np.zeros(3, np.int64)
    assert hash_kernels.hash_rows(numbers, numbers, none, none, no_headers, 0, hashes) == 3
    assert hash_kernels.hash_rows(numbers, numbers[:2], none, none, no_headers, 0, hashes) == 2
