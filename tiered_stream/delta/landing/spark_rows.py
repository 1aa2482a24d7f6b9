"""Conversion of records in a Spark DataFrame to rows and dead letters, in Spark's Python workers.

A dead letter is a record that cannot become a row. The Spark lane uses the same decoder as the direct lane, in which
tasks write the table's files. So both lanes give the same result for any bytes. Spark's own functions are not used:
`from_avro` turns a malformed value into a row of nulls, or fails the query. A few bytes can make `from_json` compute
for hours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from tiered_stream.delta.schema.row_schema import spark_columns
from tiered_stream.delta.schema.sql_types import arrow_schema
from tiered_stream.delta.settings.row_settings import advising
from tiered_stream.delta.write.waiting_rows import day_dates
from tiered_stream.errors import TableError
from tiered_stream.extras import check_installed
from tiered_stream.formats.columns.conform import conform
from tiered_stream.formats.row_decoder import DecodedRows, RowDecoder
from tiered_stream.formats.rows.kafka_columns import table_columns
from tiered_stream.formats.rows.row_format import DEAD_LETTER_SCHEMA, RowFormat
from tiered_stream.records.arrow import SCHEMA_WITH_HEADERS

Batches = Iterator[pa.RecordBatch]
RECORD_KEYS = ("topic", "partition", "offset")
_ROW, _DEAD = "row", "dead"


def classify_records(
    records: DataFrame, row_formats: Mapping[str, RowFormat], columns: StructType, day_column: str | None
) -> DataFrame:
    """Decode Kafka records to rows and dead letters (records that cannot become rows); return both in one DataFrame.

    The result has the struct columns `row` and `dead`, of which one is null in each row. `row` has the table's columns.
    `dead` has the columns of a dead letter, of which `target`, `query` and `batch` are not set yet.

    Args:
        records: Kafka records, with the column `headers` if a row format or the dead letters need headers.
        row_formats: row formats by topic; '' stands for all other topics.
        columns: columns of the table.
        day_column: column for the UTC day of a record's timestamp; None: the table has no such column.

    Raises:
        ConfigurationError: pandas is not installed.
    """
    check_installed("pandas", "a typed table in the Spark lane")
    schema = StructType().add(_ROW, columns).add(_DEAD, spark_columns(DEAD_LETTER_SCHEMA, None))
    return records.mapInArrow(_classifier(row_formats, day_column, arrow_schema(schema)), schema)


def good_rows(classified: DataFrame) -> DataFrame:
    """Return the table's rows from `classified`, the result of `classify_records`, without the dead letters."""
    return classified.where(f"{_ROW} IS NOT NULL").select(f"{_ROW}.*")


def dead_letters(classified: DataFrame, target: str, query: str, batch: int) -> DataFrame:
    """Return the dead letters from `classified`, the result of `classify_records`, without the table's rows.

    The columns `target`, `query` and `batch` of all dead letters are set to the arguments: the key of the table that
    the records were meant for, the query id, and the batch id.
    """
    rows = classified.where(f"{_DEAD} IS NOT NULL").select(f"{_DEAD}.*")
    labels = {"target": sql.lit(target), "query": sql.lit(query), "batch": sql.lit(batch).cast("bigint")}
    return rows.withColumns(labels)


def _classifier(
    row_formats: Mapping[str, RowFormat], day_column: str | None, schema: pa.Schema
) -> Callable[[Batches], Batches]:
    row_kind, dead_kind = (schema.field(name).type for name in (_ROW, _DEAD))

    def classify(batches: Batches) -> Batches:
        for _, decoded in decoded_batches(row_formats, batches):
            rows = as_struct(with_day(decoded.rows, day_column), row_kind)
            yield pa.RecordBatch.from_arrays([rows, pa.nulls(len(rows), dead_kind)], schema=schema)
            if decoded.dead is not None:
                dead = as_struct(decoded.dead, dead_kind)
                yield pa.RecordBatch.from_arrays([pa.nulls(len(dead), row_kind), dead], schema=schema)

    return classify


def as_struct(batch: pa.RecordBatch, kind: pa.StructType) -> pa.StructArray:
    """Return the batch as an array of the struct type `kind`; fields that the batch lacks are null.

    The batch may lack fields, because topics that share a table may have different columns.

    Raises:
        TableError: the type of a column of the batch does not fit the type of its field in `kind`.
    """
    struct, misfit = conform(pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema)), kind)
    if misfit is not None and misfit.true_count:
        raise TableError(
            f"rows are {pa.struct(list(batch.schema))}, but the table's rows {kind}: topics that share a table need "
            "types that go together. Land them in tables of their own"
        )
    return struct


def with_day(rows: pa.RecordBatch, day_column: str | None) -> pa.RecordBatch:
    """Return decoded rows without hidden columns, followed by the column `day_column` (UTC day) if it is not None."""
    columns = rows.select(table_columns(rows.schema).names)
    return columns.append_column(day_column, day_dates(rows)) if day_column else columns


def decoded_batches(
    row_formats: Mapping[str, RowFormat], batches: Batches
) -> Iterator[tuple[pa.RecordBatch, DecodedRows]]:
    """Decode Spark's batches of Kafka records; yield pairs of some records and the rows and dead letters made of them.

    A dead letter is a record that cannot become a row. The records of a pair are of one partition, in offset order, and
    have all columns that they have in `batches`. One of Spark's batches can give several pairs. `row_formats` are row
    formats by topic; '' stands for all other topics.
    """
    decoders: dict[str, RowDecoder] = {}
    for batch in batches:
        # Timestamps from Spark have the session's time zone, so records are cast to the record decoder's types.
        kafka = pa.schema([column for column in SCHEMA_WITH_HEADERS if column.name in batch.schema.names])
        ordered = batch.take(pc.sort_indices(batch, [(name, "ascending") for name in RECORD_KEYS]))
        for records in _by_offset(ordered):
            topic = records.column("topic")[0].as_py()
            known = topic if topic in row_formats else ""
            if known not in decoders:
                decoders[known] = RowDecoder(row_formats[known])
            start = 0
            with advising():
                for part, rows in decoders[known].decode_parts(records.select(kafka.names).cast(kafka)):
                    yield records.slice(start, part.num_rows), rows
                    start += part.num_rows


def _by_offset(records: pa.RecordBatch) -> Batches:
    """Split records, which are sorted by topic, partition and offset, into batches of one partition.

    The offsets in a batch grow strictly: if an offset occurs twice, a new batch begins.
    """
    columns = [records.column(name) for name in RECORD_KEYS]
    topics = columns[0].dictionary_encode().indices.to_numpy()
    numbers, offsets = columns[1].to_numpy(), columns[2].to_numpy()
    new = (np.diff(topics) != 0) | (np.diff(numbers) != 0) | (np.diff(offsets) == 0)
    ends = [*(np.flatnonzero(new) + 1).tolist(), records.num_rows]
    for start, end in zip([0, *ends], ends, strict=False):
        if end > start:
            yield records.slice(start, end - start)
