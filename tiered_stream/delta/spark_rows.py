"""Records that Spark holds, to rows and dead letters: by the direct lane's decoder, in Spark's Python workers.

So both lanes make the same of any bytes. Spark's own functions would not: `from_avro` makes a row of nulls of what is
malformed, or fails the query, and `from_json` computes for hours what a few bytes ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from tiered_stream.delta.days import day_dates
from tiered_stream.delta.row_schema import arrow_schema, spark_columns
from tiered_stream.errors import TableError
from tiered_stream.formats.conform import conform
from tiered_stream.formats.row_decoder import DecodedRows, RowDecoder, table_view
from tiered_stream.formats.row_format import DEAD_LETTER_SCHEMA, RowFormat
from tiered_stream.records.arrow import SCHEMA_WITH_HEADERS

Batches = Iterator[pa.RecordBatch]
RECORD_KEYS = ("topic", "partition", "offset")
_ROW, _DEAD = "row", "dead"


def classified(
    records: DataFrame, hows: Mapping[str, RowFormat], columns: StructType, day_column: str | None
) -> DataFrame:
    """What becomes of each record: two structs, of which one is null, a row of `columns` and a dead letter.

    `hows` are by topic; one of '' is for all others. Records have headers, where they are wanted.
    """
    made = StructType().add(_ROW, columns).add(_DEAD, spark_columns(DEAD_LETTER_SCHEMA, None))
    return records.mapInArrow(_to_sides(hows, day_column, arrow_schema(made)), made)


def good_rows(found: DataFrame) -> DataFrame:
    """The rows among `classified` records, in the table's columns."""
    return found.where(f"{_ROW} IS NOT NULL").select(f"{_ROW}.*")


def dead_letters(found: DataFrame, target: str, query: str, batch: int) -> DataFrame:
    """The dead letters among `classified` records, with the table and the batch that they belong to."""
    letters = found.where(f"{_DEAD} IS NOT NULL").select(f"{_DEAD}.*")
    labels = {"target": sql.lit(target), "query": sql.lit(query), "batch": sql.lit(batch).cast("bigint")}
    return letters.withColumns(labels)


def _to_sides(hows: Mapping[str, RowFormat], day_column: str | None, schema: pa.Schema) -> Callable[[Batches], Batches]:
    row_kind, dead_kind = (schema.field(name).type for name in (_ROW, _DEAD))

    def sides(batches: Batches) -> Batches:
        for _, found in decoded_batches(hows, batches):
            rows = _as_struct(with_day(found.rows, day_column), row_kind)
            yield pa.RecordBatch.from_arrays([rows, pa.nulls(len(rows), dead_kind)], schema=schema)
            if found.dead is not None:
                dead = _as_struct(found.dead, dead_kind)
                yield pa.RecordBatch.from_arrays([pa.nulls(len(dead), row_kind), dead], schema=schema)

    return sides


def _as_struct(batch: pa.RecordBatch, kind: pa.StructType) -> pa.StructArray:
    """What `kind` has more is null: topics that share a table may have different columns."""
    made, misfit = conform(pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema)), kind)
    if misfit is not None and misfit.true_count:
        raise TableError(
            f"rows are {pa.struct(list(batch.schema))}, but those of the table {kind}: topics that share a table need "
            "types that go together. Land them in tables of their own"
        )
    return made


def with_day(rows: pa.RecordBatch, day_column: str | None) -> pa.RecordBatch:
    """The table's columns of decoded rows, that of the day last."""
    made = table_view(rows)
    return made.append_column(day_column, day_dates(rows)) if day_column else made


def decoded_batches(hows: Mapping[str, RowFormat], batches: Batches) -> Iterator[tuple[pa.RecordBatch, DecodedRows]]:
    """Spark's batches of any records, with all their columns, and what becomes of the records.

    Records of one partition at a time in offset order, each offset once. `hows` as in `classified`.
    """
    decoders: dict[str, RowDecoder] = {}
    for batch in batches:
        ordered = batch.take(pc.sort_indices(batch, [(name, "ascending") for name in RECORD_KEYS]))
        for records in _by_offset(ordered):
            topic = records.column("topic")[0].as_py()
            known = topic if topic in hows else ""
            if known not in decoders:
                decoders[known] = RowDecoder(hows[known])
            yield records, decoders[known].decode(_as_kafka_has_them(records))


def _as_kafka_has_them(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Kafka's columns, with the types that they have here: Spark's have the session's time zone."""
    names = [name for name in SCHEMA_WITH_HEADERS.names if name in batch.schema.names]
    return batch.select(names).cast(pa.schema([SCHEMA_WITH_HEADERS.field(name) for name in names]))


def _by_offset(records: pa.RecordBatch) -> Batches:
    """Runs of records, sorted by key, whose offsets grow in one partition."""
    columns = [records.column(name) for name in RECORD_KEYS]
    topics = columns[0].dictionary_encode().indices.to_numpy()
    numbers, offsets = columns[1].to_numpy(), columns[2].to_numpy()
    new = (np.diff(topics) != 0) | (np.diff(numbers) != 0) | (np.diff(offsets) == 0)
    ends = [*(np.flatnonzero(new) + 1).tolist(), records.num_rows]
    for start, end in zip([0, *ends], ends, strict=False):
        if end > start:
            yield records.slice(start, end - start)
