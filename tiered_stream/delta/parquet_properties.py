"""What the table's Parquet files are like inside. Each choice was measured at 100-byte and at JSON values, one core.

Snappy costs 60 ns a record; zstd costs 110 ns more, for files of about half the size. Keys, values and headers hardly
repeat: no dictionary, and no minima and maxima, which Delta has no use for. The topic is handed over as a dictionary of
one: 20 ns less. Offsets and timestamps grow evenly: as differences they take next to nothing, and no more time. Payload
that does not get smaller, as it is compressed or encrypted already, is stored as it is: 60 ns less, and less to read.
Small records are taken 16,384 at once, not 1,024: 10 ns less.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import NativeFile

_TOPIC_TYPE = pa.dictionary(pa.int32(), pa.string())
_CHOICES: dict[str, Any] = {
    "use_dictionary": ["topic", "partition", "timestampType"],
    "column_encoding": {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
    "write_statistics": ["partition", "offset", "timestamp"],
    # Arrow's own schema would say that the topic is a dictionary; to readers it is a string.
    "store_schema": False,
}
_PAYLOAD = ("key", "value")
_HEADER_LEAVES = ("headers.list.element.key", "headers.list.element.value")
_SAMPLE_PLACES, _PLACE_ROWS, _PLACE_BYTES, _SMALLEST_SAMPLE = 32, 32, 2 << 10, 1 << 10
_WORTH_IT = 0.95
_PAGE_BYTES, _FEWEST_AT_ONCE, _MOST_AT_ONCE = 1 << 20, 64, 16_384
_SUFFIXES = {"zstd": ".zstd.parquet", "snappy": ".snappy.parquet", "none": ".parquet"}


def file_suffix(compression: str) -> str:
    """The end of a file's name, as Spark has it."""
    return _SUFFIXES[compression]


def file_schema(records: pa.Schema) -> pa.Schema:
    """The schema of what `with_topic_once` gives."""
    at = records.get_field_index("topic")
    return records.set(at, pa.field("topic", _TOPIC_TYPE))


def with_topic_once(batch: pa.RecordBatch, topic: str, schema: pa.Schema) -> pa.RecordBatch:
    """The batch, whose rows are all of `topic`, that column as a dictionary."""
    indices = pa.array(np.zeros(batch.num_rows, np.int32))
    column = pa.DictionaryArray.from_arrays(indices, pa.array([topic]))
    columns = [column if name == "topic" else batch.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def open_parquet(sink: NativeFile, first: pa.RecordBatch, compression: str) -> pq.ParquetWriter:
    """A writer whose row groups are what is given to it at once; `first` tells what the records are like."""
    by_column = dict.fromkeys(_leaves(first.schema), compression)
    by_column |= {name: "none" for name in _PAYLOAD if not _gets_smaller(first.column(name), compression)}
    levels = {name: 1 for name, codec in by_column.items() if codec == "zstd"}
    return pq.ParquetWriter(
        sink, first.schema, compression=by_column, compression_level=levels or None,
        write_batch_size=_rows_at_once(first), **_CHOICES,
    )  # fmt: skip


def _leaves(schema: pa.Schema) -> list[str]:
    """Parquet's names of the columns."""
    flat = [name for name in schema.names if name != "headers"]
    return [*flat, *(_HEADER_LEAVES if len(flat) < len(schema.names) else ())]


def _rows_at_once(first: pa.RecordBatch) -> int:
    """Rows that the writer takes before it looks whether a page is full: about a page of them."""
    rows = _PAGE_BYTES * int(first.num_rows) // max(1, int(first.nbytes))
    return min(max(_FEWEST_AT_ONCE, rows), _MOST_AT_ONCE)


def _gets_smaller(column: pa.Array, compression: str) -> bool:
    sample = _sample(column)
    if compression == "none" or len(sample) < _SMALLEST_SAMPLE:
        return True
    return len(pa.compress(sample, codec=compression, asbytes=True)) < _WORTH_IT * len(sample)


def _sample(column: pa.Array) -> bytes:
    """Bytes from all over the column: a topic's first records are often unlike the others."""
    step = max(1, -(-len(column) // _SAMPLE_PLACES))
    places = (column.slice(at, min(step, _PLACE_ROWS)).to_pylist() for at in range(0, len(column), step))
    return b"".join(b"".join(filter(None, rows))[:_PLACE_BYTES] for rows in places)
