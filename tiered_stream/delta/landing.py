"""`land`: a streaming query that brings topics into a Delta table, by the lane that the table allows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from tiered_stream.delta.address import TableAddress, find_address, make_by_spark, table_location
from tiered_stream.delta.committer import Committer, choose_committer
from tiered_stream.delta.data_files import data_files, observed
from tiered_stream.delta.data_files_source import SOURCE, FilesDataSource
from tiered_stream.delta.days import spark_day
from tiered_stream.delta.ingest_settings import (
    COMMIT,
    COMMIT_BY_SPARK,
    TableFiles,
    TableStorage,
    as_options,
    check_names,
    source_options,
    table_files,
    table_properties,
    table_storage,
)
from tiered_stream.delta.lane import Lane, TableDescription, check_fit, left_out, table_schema, why_not_direct
from tiered_stream.delta.s3a import find_storage, session_settings
from tiered_stream.errors import ConfigurationError, TableAccessError, TableError
from tiered_stream.options.given import GivenOptions
from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.source import register

if TYPE_CHECKING:
    from tiered_stream.delta.commit import TableCommits

log = logging.getLogger(__name__)

AVAILABLE_NOW = "availableNow"
_ASKED = "it was asked for"
LANES = ("auto", *(each.value for each in Lane))


def land(
    spark: SparkSession,
    *,
    options: Mapping[str, str],
    table: str,
    checkpoint: str,
    trigger: str = AVAILABLE_NOW,
    lane: str = "auto",
    name: str | None = None,
) -> StreamingQuery:
    """Start a query that lands topics in a Delta table, every record once; the table is made when it is missing.

    Args:
        options: those of `format("tiered_stream")`, and `ingest.*` settings for the table.
        table: a path (it has a slash in it), or a name in the catalog.
        checkpoint: the query's checkpoint location; either lane goes on from where the other left it.
        trigger: `availableNow`, or an interval such as `10 seconds`.
        lane: `direct`, `spark`, or `auto`: direct where the table allows it; the log says which, and why.
        name: the query's name.

    Raises:
        ConfigurationError: an option is wrong, the table does not fit, or it does not allow the lane that was asked.
        TableError: the table cannot be reached or made.
    """
    return plan_landing(
        spark, options=options, table=table, checkpoint=checkpoint, trigger=trigger, lane=lane, name=name
    ).start()


@dataclass(frozen=True)
class BoundedRun:
    """What sets a run that has an end apart from a query that goes on.

    `transaction_id` is the application transaction's in place of the query's, which a new checkpoint would change.
    """

    transaction_id: str
    replace_where: str | None = None
    """Rows to take out in the same commit; the run is then one micro-batch in the Spark lane."""
    tasks: int | None = None
    """The most tasks at once; None: as many as Spark runs."""

    def limited(self, rows: DataFrame) -> DataFrame:
        """In as many partitions as tasks may run at once."""
        return rows.coalesce(self.tasks) if self.tasks else rows


@dataclass(frozen=True, slots=True)
class _Suitability:
    """Whether a table suits the direct lane."""

    table: TableDescription | None
    """What deltalake knows of it; what it does not know is left to Spark."""
    why_not: str | None
    """What keeps it from the direct lane."""
    committer: Committer | None = None


@dataclass(frozen=True)
class Landing:
    """A query that is ready to start."""

    spark: SparkSession
    settings: Mapping[str, str]
    address: TableAddress
    files: TableFiles
    schema: StructType
    checkpoint: str
    trigger: str
    name: str | None
    bounded: BoundedRun | None
    found: _Suitability

    @property
    def lane(self) -> Lane:
        return Lane.SPARK if self.found.why_not else Lane.DIRECT

    @property
    def reason(self) -> str:
        """Why the lane is the one it is, who commits, and what becomes of columns that are not written."""
        table, why_not, committer = self.found.table, self.found.why_not, self.found.committer
        said = [why_not or "nothing in the table forbids it"]
        if committer and not why_not:
            said.append(f"{committer.by} commits ({committer.reason})")
        names = left_out(table, self.schema) if table else ()
        if names:
            said.append(f"NULL in {', '.join(names)}, which records do not have")
        return "; ".join(said)

    def start(self) -> StreamingQuery:
        """Start it."""
        # Who leaves the choice to us should see it where nobody has set logging up, if it is the slower lane.
        level = logging.WARNING if self.lane is Lane.SPARK and self.reason != _ASKED else logging.INFO
        log.log(level, "%s: the %s lane: %s", self.address, self.lane.value, self.reason)
        return self._start_direct() if self.lane is Lane.DIRECT else self._start_spark()

    def _start_direct(self) -> StreamingQuery:
        self.spark.dataSource.register(FilesDataSource)
        tasks = (self.bounded and self.bounded.tasks) or self.spark.sparkContext.defaultParallelism
        options = as_options(self.settings, replace(self.files, tasks=tasks))
        rows = self.spark.readStream.format(SOURCE).options(**options).load()
        commits, bounded = self._commits(), self.bounded

        def commit(batch: DataFrame, batch_id: int) -> None:
            of_query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
            query_id = bounded.transaction_id if bounded else of_query
            assert query_id
            if commits.is_committed(query_id, batch_id):
                log.info("%s: batch %d is in the table already", self.address, batch_id)
                return
            commits.commit(query_id, batch_id, data_files(batch.collect()))

        rows = bounded.limited(rows) if bounded else rows
        return self._with_settings(observed(rows).writeStream.foreachBatch(commit)).start()

    def _commits(self) -> TableCommits:
        from tiered_stream.delta.commit import LandingTable, TableCommits, on_gap

        table, committer = self.found.table, self.found.committer
        assert table is not None
        assert committer is not None
        planned = LandingTable(self.files, self.schema, table.table_id, committer.why_not_direct)
        parsed = parse_options(source_options(self.settings), streaming=True)
        gap = on_gap(self.spark, self.checkpoint, str(self.address), fail=parsed.fail_on_data_loss)
        return TableCommits(committer.open(self.spark, self.address, self.files), planned, gap)

    def _start_spark(self) -> StreamingQuery:
        register(self.spark)
        records = self.spark.readStream.format("tiered_stream").options(**source_options(self.settings)).load()
        day = self.files.day_column
        if day:
            records = records.withColumn(day, sql.expr(spark_day()))
        if self.bounded:
            return self._start_bounded(self.bounded, records)
        writer = self._with_settings(records.writeStream.format("delta").outputMode("append"))
        if day:
            writer = writer.partitionBy(day)
        return writer.start(self.address.path) if self.address.path else writer.toTable(str(self.address))

    def _start_bounded(self, bounded: BoundedRun, records: DataFrame) -> StreamingQuery:
        location = table_location(self.spark, self.address)

        def write(batch: DataFrame, batch_id: int) -> None:
            # Delta leaves out a batch whose transaction the table has.
            writer = batch.write.format("delta").option("txnAppId", bounded.transaction_id)
            writer = writer.option("txnVersion", batch_id).mode("append")
            if bounded.replace_where is not None:
                writer = writer.mode("overwrite").option("replaceWhere", bounded.replace_where)
            writer.save(location)

        return self._with_settings(bounded.limited(records).writeStream.foreachBatch(write)).start()

    def _with_settings(self, writer: DataStreamWriter) -> DataStreamWriter:
        trigger: dict[str, Any] = (
            {"availableNow": True} if self.trigger == AVAILABLE_NOW else {"processingTime": self.trigger}
        )
        named = writer.queryName(self.name) if self.name else writer
        return named.option("checkpointLocation", self.checkpoint).trigger(**trigger)


def check_settings(options: Mapping[str, str], lane: str) -> Options:
    """What can be said without Spark and the table; the source's own options.

    Raises:
        ConfigurationError: a setting is missing, unknown or malformed.
    """
    if lane not in LANES:
        raise ConfigurationError(f"the lane is {lane!r}; it may be {', '.join(LANES)}")
    check_names(options)
    parsed = parse_options(source_options(options), streaming=True)
    table_files(options)
    GivenOptions(options).read(COMMIT)
    return parsed


def plan_landing(
    spark: SparkSession,
    *,
    options: Mapping[str, str],
    table: str,
    checkpoint: str,
    trigger: str = AVAILABLE_NOW,
    lane: str = "auto",
    name: str | None = None,
    bounded: BoundedRun | None = None,
) -> Landing:
    """Choose the lane, and make the table when it is missing; arguments and errors as `land`."""
    parsed = check_settings(options, lane)
    replaces = bounded is not None and bounded.replace_where is not None
    if replaces and lane == "direct":
        raise ConfigurationError(
            "the direct lane only appends: rows are replaced in the Spark lane. Use lane auto or spark."
        )
    files = table_files(options)
    schema = table_schema(parsed.include_headers, files.day_column)
    make = partial(make_by_spark, spark, schema=schema, day_column=files.day_column, given=table_properties(options))
    address = find_address(spark, table)
    if address.uri is None:
        make(address)
        address = find_address(spark, table)
    storage, unreachable = _storage(spark, address.uri or "", options)
    files = replace(files, uri=address.uri or "", storage=storage)
    if lane == "spark" or unreachable:
        found = _Suitability(None, _ASKED if lane == "spark" else unreachable)
    elif replaces:
        found = _Suitability(None, "the direct lane only appends, and rows are to be replaced")
    else:
        found = _look(spark, address, options, files, schema, make)
    if lane == "direct" and found.why_not:
        raise ConfigurationError(f"the direct lane cannot write to {address}: {found.why_not}. Use lane auto or spark.")
    if found.table is None:
        make(address)
        found = replace(found, table=None if unreachable else _description(files))
    return Landing(spark, options, address, files, schema, checkpoint, trigger, name, bounded, found)


def _storage(spark: SparkSession, uri: str, settings: Mapping[str, str]) -> tuple[TableStorage, str | None]:
    """How the tasks reach the table, and why they cannot, if they cannot; errors as `find_storage`."""
    parts = urlsplit(uri)
    if parts.scheme == "s3":
        return find_storage(settings, session_settings(spark, parts.netloc))
    return table_storage(settings), None if parts.scheme == "file" else f"{uri} is neither a local folder nor in S3"


def _description(files: TableFiles) -> TableDescription | None:
    """What deltalake knows of a table in the Spark lane, if it can open it."""
    if find_spec("deltalake") is None:
        return None
    from tiered_stream.delta.deltalake_commit import describe, open_table

    with suppress(TableError):
        table = open_table(files)
        return describe(table) if table else None
    return None


def _look(
    spark: SparkSession,
    address: TableAddress,
    settings: Mapping[str, str],
    files: TableFiles,
    schema: StructType,
    make: Callable[[TableAddress], None],
) -> _Suitability:
    """Open the table, or make it, and see what it allows.

    Raises:
        ConfigurationError: the table does not fit, or nobody can commit as it is asked for.
        TableAccessError: its store refuses, or does not answer.
    """
    if find_spec("deltalake") is None:
        return _Suitability(None, "the package deltalake is not installed (pip install 'tiered-stream[delta]')")
    from tiered_stream.delta.deltalake_commit import describe, make_table, open_table

    properties = table_properties(settings)
    try:
        table = open_table(files)
        found = describe(table) if table else TableDescription((), configuration=properties)
        committer = choose_committer(spark, GivenOptions(settings).read(COMMIT), files, found)
        if table is None:
            if committer.by == COMMIT_BY_SPARK:
                # With the checksum from which Delta's commits go on: without one the first reads the table's state.
                make(address)
                table = open_table(files)
                if table is None:
                    raise TableAccessError(
                        f"Spark has made the table {address}, but tasks do not find it at {files.uri}"
                    )
            else:
                table = make_table(files, schema, properties)
            found = describe(table)
    except TableAccessError:
        raise  # Spark would be refused too, or would find another table
    except TableError as error:
        return _Suitability(None, str(error))
    check_fit(files.uri, found, schema, files.day_column)
    return _Suitability(found, why_not_direct(found, files.day_column) or committer.why_not_direct(found), committer)
