"""What the table's Parquet files are like inside. Each choice was measured at 100-byte and at JSON values, one core.

Snappy costs 60 ns a record; zstd costs 110 ns more, for files of about half the size. Keys, values and headers hardly
repeat: no dictionary, and no minima and maxima, which Delta has no use for. The topic is handed over as a dictionary of
one: 20 ns less. Offsets and timestamps grow evenly: as differences they take next to nothing, and no more time.
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


def open_parquet(sink: NativeFile, schema: pa.Schema, compression: str) -> pq.ParquetWriter:
    """A writer whose row groups are what is given to it at once."""
    level = 1 if compression == "zstd" else None
    return pq.ParquetWriter(sink, schema, compression=compression, compression_level=level, **_CHOICES)
