"""Encodings, compression and page sizes of the table's Parquet files.

Each choice was measured on one core, with 100-byte values and with JSON values. Times are for each record.

- Snappy takes 60 ns. zstd takes 110 ns more, and its files have about half the size.
- Keys, values and headers rarely repeat, so they get no dictionary. They get no minima and maxima, because Delta does
  not use them for such columns.
- The topic is passed to Parquet as a dictionary with one entry, which saves 20 ns.
- Offsets and timestamps grow evenly, so they are stored as differences (`DELTA_BINARY_PACKED`). This takes almost no
  space, and no more time.
- Payload that compression does not make smaller (because it is compressed or encrypted already) is stored
  uncompressed, which saves 60 ns and makes reads cheaper.
- Small records are encoded 16,384 at once instead of 1,024, which saves 10 ns.
- The writer assembles each page twice. A page of 256 KiB stays in the core's cache and in memory that is already
  allocated. A page of 1 MiB takes 10 ns more with records of 100 bytes, and twice the time with records of 1 KiB.
- Columns that are decoded from values usually repeat, so they get a dictionary.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import NativeFile

from tiered_stream.delta.settings.ingest_settings import GZIP, SNAPPY, UNCOMPRESSED, ZSTD
from tiered_stream.formats.rows.kafka_columns import OFFSET, TIMESTAMP, TOPIC, find_column, table_columns
from tiered_stream.records.arrow import repeated_int32, repeated_text

SPARK_VERSION_KEY = "org.apache.spark.version"
"""Key in a file's footer by which Spark reads dates and times before 1582 as Gregorian too (Spark: `DataSourceUtils`).

Without this key, the session that reads the file decides (`spark.sql.parquet.datetimeRebaseModeInRead`): it may refuse
dates before 1582 and timestamps before 1900, or shift them. The keys `org.apache.spark.legacyDateTime` and
`org.apache.spark.timeZone` are not written, because they mark files that use the older calendar."""
_TOPIC_TYPE = pa.dictionary(pa.int32(), pa.string())
_GROWING = (OFFSET, TIMESTAMP)
_SAMPLE_PLACES, _PLACE_ROWS, _PLACE_BYTES, _MIN_SAMPLE_BYTES = 32, 32, 2 << 10, 1 << 10
_MAX_COMPRESSED_SHARE = 0.95
_PAGE_BYTES, _MIN_WRITE_ROWS, _MAX_WRITE_ROWS = 256 << 10, 64, 16_384
FILE_SUFFIXES = {
    ZSTD: ".zstd.parquet", SNAPPY: ".snappy.parquet", GZIP: ".gz.parquet", UNCOMPRESSED: ".parquet"
}  # fmt: skip
"""Ends of data files' names, by the value of `ingest.compression`."""


def file_schema(rows: pa.Schema) -> pa.Schema:
    """Return the schema of a table's Parquet file, for batches from `with_topic_dictionary`.

    The result has the columns of `rows` except hidden columns, which are not written to the table. The topic column, if
    there is one, is a dictionary.
    """
    index, columns = find_column(rows, TOPIC), table_columns(rows)
    return columns if index < 0 else columns.set(index, columns.field(index).with_type(_TOPIC_TYPE))


def with_topic_dictionary(batch: pa.RecordBatch, topic: str, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with its topic column as a dictionary of one entry, and without hidden columns.

    Hidden columns are not written to the table. All rows of the batch must be from `topic`. `schema` is the result of
    `file_schema` for the batch's schema.
    """
    columns, index = batch.columns[: len(schema)], find_column(batch.schema, TOPIC)
    if index >= 0:
        columns[index] = pa.DictionaryArray.from_arrays(repeated_int32(0, batch.num_rows), repeated_text(topic, 1))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def open_parquet(
    sink: NativeFile, first: pa.RecordBatch, compression: str, *, for_spark: bool = True
) -> pq.ParquetWriter:
    """Return a Parquet writer that writes to `sink`.

    `first` is the first batch of the rows to write: its types and values decide about encodings, compression and page
    sizes. A binary column whose sample in `first` does not become smaller by `compression` is stored uncompressed.
    If `for_spark` is true, the file's footer names a version of Spark, and has no Arrow schema.
    """
    leaves = {name: kind for field in first.schema for name, kind in _leaves(field.name, field.type)}
    payload = [column.name for column in first.schema if pa.types.is_binary(column.type)]
    by_column = dict.fromkeys(leaves, compression)
    by_column |= {name: "none" for name in payload if not _gets_smaller(first.column(name), compression)}
    levels = {name: 1 for name, codec in by_column.items() if codec == "zstd"}
    indexes = [find_column(first.schema, name) for name in _GROWING]
    fields = [first.schema.field(index) for index in indexes if index >= 0]
    growing = [field.name for field in fields if pa.types.is_int64(field.type) or pa.types.is_timestamp(field.type)]
    # The writer checks if a page is full after about a page's rows.
    rows_of_page = _PAGE_BYTES * int(first.num_rows) // max(1, int(first.nbytes))
    writer = pq.ParquetWriter(
        sink, first.schema, compression=by_column, compression_level=levels or None,
        write_batch_size=min(max(_MIN_WRITE_ROWS, rows_of_page), _MAX_WRITE_ROWS), data_page_size=_PAGE_BYTES,
        use_dictionary=[name for name, kind in leaves.items() if _repeats(name, kind) and name not in growing],
        column_encoding=dict.fromkeys(growing, "DELTA_BINARY_PACKED") or None,
        write_statistics=[name for name, kind in leaves.items() if _has_bounds(name, kind)],
        # A stored Arrow schema would show readers the topic as a dictionary instead of a string.
        store_schema=not for_spark,
    )  # fmt: skip
    if for_spark:
        from pyspark.version import __version__  # late, because `tiered-stream export` needs no Spark

        writer.add_key_value_metadata({SPARK_VERSION_KEY: ".".join(__version__.split(".")[:3])})
    return writer


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the Parquet path and the Arrow type of each leaf of a column (Parquet: "Nested Types").

    `path` is the Parquet path of the column or of a part of it, whose type is `kind`.
    """
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


def _has_bounds(name: str, kind: pa.DataType) -> bool:
    # pyarrow's bounds ignore NaN, but Spark and DuckDB sort NaN above all numbers: they would skip rows with NaN.
    without = pa.types.is_binary(kind) or pa.types.is_dictionary(kind) or pa.types.is_floating(kind)
    return not (without or name.startswith("headers."))


def _gets_smaller(column: pa.Array, compression: str) -> bool:
    sample = _sample(column)
    if compression == "none" or len(sample) < _MIN_SAMPLE_BYTES:
        return True
    return len(pa.compress(sample, codec=compression, asbytes=True)) < _MAX_COMPRESSED_SHARE * len(sample)


def _sample(column: pa.Array) -> bytes:
    """Return a sample of the column's values, joined to at most 64 KiB.

    The sample has values from up to 32 positions in the column. Values from its beginning alone would mislead, because
    a topic's first records often differ from later records.
    """
    step = max(1, -(-len(column) // _SAMPLE_PLACES))
    indexes = (column.slice(index, min(step, _PLACE_ROWS)).to_pylist() for index in range(0, len(column), step))
    return b"".join(b"".join(filter(None, rows))[:_PLACE_BYTES] for rows in indexes)
