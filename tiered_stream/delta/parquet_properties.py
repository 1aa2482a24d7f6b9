"""What the table's Parquet files are like inside. Each choice was measured at 100-byte and at JSON values, one core.

Snappy costs 60 ns a record; zstd costs 110 ns more, for files of about half the size. Keys, values and headers hardly
repeat: no dictionary, and no minima and maxima, which Delta has no use for. The topic is handed over as a dictionary of
one: 20 ns less. Offsets and timestamps grow evenly: as differences they take next to nothing, and no more time. Payload
that does not get smaller, as it is compressed or encrypted already, is stored as it is: 60 ns less, and less to read.
Small records are taken 16,384 at once, not 1,024: 10 ns less. A page is put together twice: one of 256 KiB stays in a
core's cache and in memory that is there already, where one of 1 MiB takes 10 ns more a record of 100 bytes, and twice
the time a record of 1 KiB. What is decoded of values repeats more often than not.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import NativeFile
from pyspark.version import __version__

from tiered_stream.formats.kafka_columns import OFFSET, TIMESTAMP, TOPIC, find_column, table_columns
from tiered_stream.records.arrow import repeated_int32, repeated_text

SPARK_VERSION_KEY = "org.apache.spark.version"
"""In the footer: dates and times are of the Gregorian calendar, also before 1582 (Spark: `DataSourceUtils`).

Without the key the reading session decides (`spark.sql.parquet.datetimeRebaseModeInRead`): it may refuse dates before
1582 and timestamps before 1900, or shift them. `org.apache.spark.legacyDateTime` and `org.apache.spark.timeZone` are
keys of files with the older calendar, and are not written."""
_SPARK_VERSION = ".".join(__version__.split(".")[:3])
_TOPIC_TYPE = pa.dictionary(pa.int32(), pa.string())
_GROWING = (OFFSET, TIMESTAMP)
_SAMPLE_PLACES, _PLACE_ROWS, _PLACE_BYTES, _SMALLEST_SAMPLE = 32, 32, 2 << 10, 1 << 10
_WORTH_IT = 0.95
_PAGE_BYTES, _FEWEST_AT_ONCE, _MOST_AT_ONCE = 256 << 10, 64, 16_384
_SUFFIXES = {"zstd": ".zstd.parquet", "snappy": ".snappy.parquet", "none": ".parquet"}


def file_suffix(compression: str) -> str:
    """The end of a file's name, as Spark has it."""
    return _SUFFIXES[compression]


def file_schema(rows: pa.Schema) -> pa.Schema:
    """The schema of what `with_topic_once` gives: the table's columns."""
    at, shown = find_column(rows, TOPIC), table_columns(rows)
    return shown if at < 0 else shown.set(at, shown.field(at).with_type(_TOPIC_TYPE))


def with_topic_once(batch: pa.RecordBatch, topic: str, schema: pa.Schema) -> pa.RecordBatch:
    """The batch, whose rows are all of `topic`, that column as a dictionary, without hidden columns."""
    columns = batch.columns[: len(schema)]
    for at in (number for number, field in enumerate(schema) if field.type == _TOPIC_TYPE):
        columns[at] = pa.DictionaryArray.from_arrays(repeated_int32(0, batch.num_rows), repeated_text(topic, 1))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def open_parquet(sink: NativeFile, first: pa.RecordBatch, compression: str) -> pq.ParquetWriter:
    """A writer whose row groups are what is given to it at once; `first` tells what the records are like."""
    leaves = {name: kind for field in first.schema for name, kind in _leaves(field.name, field.type)}
    payload = [each.name for each in first.schema if pa.types.is_binary(each.type)]
    by_column = dict.fromkeys(leaves, compression)
    by_column |= {name: "none" for name in payload if not _gets_smaller(first.column(name), compression)}
    levels = {name: 1 for name, codec in by_column.items() if codec == "zstd"}
    places = [find_column(first.schema, name) for name in _GROWING]
    growing = [first.schema.names[at] for at in places if at >= 0 and _grows(first.schema.field(at).type)]
    writer = pq.ParquetWriter(
        sink, first.schema, compression=by_column, compression_level=levels or None,
        write_batch_size=_rows_at_once(first), data_page_size=_PAGE_BYTES,
        use_dictionary=[name for name, kind in leaves.items() if _repeats(name, kind) and name not in growing],
        column_encoding=dict.fromkeys(growing, "DELTA_BINARY_PACKED") or None,
        write_statistics=[name for name, kind in leaves.items() if _has_bounds(name, kind)],
        # Arrow's own schema would say that the topic is a dictionary; to readers it is a string.
        store_schema=False,
    )  # fmt: skip
    writer.add_key_value_metadata({SPARK_VERSION_KEY: _SPARK_VERSION})
    return writer


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Parquet's names of a column's leaves (Parquet: "Nested Types"), and their types."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    else:
        yield path, kind


def _repeats(name: str, kind: pa.DataType) -> bool:
    return not (pa.types.is_binary(kind) or pa.types.is_boolean(kind) or name.startswith("headers."))


def _grows(kind: pa.DataType) -> bool:
    return bool(pa.types.is_int64(kind) or pa.types.is_timestamp(kind))


def _has_bounds(name: str, kind: pa.DataType) -> bool:
    # pyarrow's bounds pass over NaN, which is above all numbers for Spark and DuckDB: they would skip its rows.
    without = pa.types.is_binary(kind) or pa.types.is_dictionary(kind) or pa.types.is_floating(kind)
    return not (without or name.startswith("headers."))


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
