"""Spark source that is planned like the source `tiered_stream`, but returns rows of a table of the latest state.

Each task reads one split (offsets of one partition), decodes its records as the ingest job does, and returns the last
row of each key. Different tasks may return rows of the same key, so the caller must still find the last of these rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from tiered_stream.delta.schema.routing import Routing, TaskSettings
from tiered_stream.delta.schema.row_schema import shared_columns, spark_columns
from tiered_stream.delta.schema.sql_types import arrow_schema
from tiered_stream.delta.settings.ingest_settings import source_options
from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.verification.sums_source import SplitsReader

if TYPE_CHECKING:
    import pyarrow as pa

    from tiered_stream.delta.write.waiting_rows import DayRows
    from tiered_stream.model import Split

SOURCE = "tiered_stream_latest_rows"
_BATCH_ROWS = 65_536
_READY_BYTES = 16 << 20
"""Bytes of finished rows in memory above which a task sends these rows to the JVM."""


class LatestRowsDataSource(DataSource):
    """Spark data source that decodes topics' records to rows of their table; only `latest_comparison` uses it.

    The columns are the table's columns that are decoded from records, and then `latest_rows.STAGED`: partition, offset,
    and whether the record deletes the row of its key.
    """

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> StructType:
        return latest_schema(TaskSettings.of(self.options).routing)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(source_options(self.options), streaming=False)
        return SplitsReader(options, partial(latest_rows, routing=TaskSettings.of(self.options).routing))


def latest_schema(routing: Routing) -> StructType:
    """Return the columns of `LatestRowsDataSource` for the table and the topics in `routing`, which has one table."""
    # Imported late, because the import loads NumPy, which a driver does not need.
    from tiered_stream.delta.write.latest_rows import STAGED

    return StructType([*shared_columns(routing.rows.values(), None), *spark_columns(STAGED, None)])


def latest_rows(split: Split, options: Options, routing: Routing) -> Iterator[pa.RecordBatch]:
    """Read a split (offsets of one partition), and yield the last row of each key with the columns of `latest_schema`.

    At the end, send the read counters to the addresses in `options`. Records that would become dead letters have no
    row. A key may have several rows, of which the last counts.

    Raises:
        TieredStreamError: the split cannot be read, or a record does not decode and `ingest.onDecodeError` is `fail`.
    """
    from tiered_stream.delta.write.latest_rows import LatestRows
    from tiered_stream.delta.write.task_writer import TableRows
    from tiered_stream.observe.read_metrics import send
    from tiered_stream.read.split_reader import SplitReader

    reader, rows, partition = SplitReader(split, options, _BATCH_ROWS), TableRows(routing), split.topic_partition
    schema = arrow_schema(latest_schema(routing))
    files = routing.target(partition.topic)
    last = LatestRows(files.keys, files.order_by)
    for batch in reader.batches():
        for decoded in rows.apply(partition, batch):
            if decoded.dead_letters_for is None:
                last.add(partition, decoded.rows)
                yield from _with_columns(last.overflow(_READY_BYTES), schema)
    yield from _with_columns(last.take(), schema)
    send(reader.metrics, options.report_addresses)


def _with_columns(rows: list[DayRows], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows with the columns of `schema`. Columns that the rows of a topic lack are filled with nulls."""
    import pyarrow as pa

    from tiered_stream.delta.landing.spark_rows import as_struct

    for day in rows:
        for _, batch in day.batches:
            columns = as_struct(batch, pa.struct(list(schema))).flatten()
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
