"""Queries of the direct lane for many tables; planning opens none of the tables, because there may be thousands.

In the direct lane, tasks write the files of the tables, and the driver commits the files.
"""

from __future__ import annotations

import logging
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import orjson
from py4j.clientserver import ClientServer
from py4j.protocol import Py4JJavaError
from pyspark import inheritable_thread_target
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tiered_stream.delta.catalog import address as addresses
from tiered_stream.delta.catalog.java_errors import JAVA_ERRORS, first_line, is_stopped, own_error, spark_errors
from tiered_stream.delta.checkpoint.checkpoint_folder import CheckpointFolder
from tiered_stream.delta.checkpoint.query_run import without_idle_limit
from tiered_stream.delta.checkpoint.query_tables import Landed, QueryTablesLog
from tiered_stream.delta.checkpoint.spark_checkpoint import SparkCheckpoint
from tiered_stream.delta.commit.commit_attempts import TableCommits, on_gap
from tiered_stream.delta.commit.commit_library import lock_for_creation, with_access
from tiered_stream.delta.commit.dead_letters import DeadLetterTable, remove_unfinished
from tiered_stream.delta.commit.many_tables import ManyTables, Work
from tiered_stream.delta.commit.open_table import OpenTable, open_or_create
from tiered_stream.delta.commit.query_commits import OneTable, QueryCommits
from tiered_stream.delta.landing.data_files_source import SOURCE
from tiered_stream.delta.requirements.lane import Lane
from tiered_stream.delta.requirements.session_requirements import CREATED_WELL, new_table_properties
from tiered_stream.delta.schema.routing import Route, Routing, TaskSettings, name_parts, quoted_name
from tiered_stream.delta.schema.row_plan import plan_rows
from tiered_stream.delta.schema.row_schema import check_by_spark, time_zone
from tiered_stream.delta.settings.ingest_settings import TOPIC, TableSpec, TableStorage
from tiered_stream.delta.settings.query_settings import QuerySettings
from tiered_stream.delta.write.data_files import DataFile, data_files
from tiered_stream.delta.write.file_systems import normal_path
from tiered_stream.errors import ConfigurationError, DataLossError, TableError, TieredStreamError
from tiered_stream.formats.rows.row_format import RowFormat
from tiered_stream.model import PartitionRanges
from tiered_stream.options.offset_ranges import batch_options
from tiered_stream.spark.session import boolean

log = logging.getLogger(__name__)

_ONE_QUERY_PER_TOPIC = (
    f"to land each topic by a query of its own, in whichever lane, put {TOPIC} into ingest.checkpointLocation too, and "
    "name topics in subscribe"
)


def is_by_topic(query: QuerySettings, table: str) -> bool:
    """Return whether the query with these settings and `ingest.table` (`table`) is planned as a query for many tables.

    The result is true if `table` has `{topic}` in it, if `ingest.route` or a setting for a single topic
    (`ingest.topic.*`) is set, or if `ingest.onTableError` is `park`.
    """
    return TOPIC in table or query.spec.parks or bool(query.routes or query.topics)


def plan_routing(spark: SparkSession, query: QuerySettings, table: str, lane: str) -> Routing:
    """Return the routing of a query for many tables, by which each topic gets its table; no table is opened.

    `table` is the table of topics for which no other setting names a table. `lane` is the user's choice: `direct`,
    `spark` or `auto`.

    Raises:
        ConfigurationError: a setting is wrong, `lane` is `spark`, or tasks cannot write to the tables' folders.
        TableError: Spark cannot reach the catalog.
        SchemaRegistryError: the schema registry does not return a schema.
    """
    if lane == Lane.SPARK.value:
        raise ConfigurationError(f"one query for many tables needs the direct lane: {_ONE_QUERY_PER_TOPIC}")
    routes = tuple(_route(spark, pattern, name) for pattern, name in _tables(query, table))
    storage = {route.table: _storage(spark, route, query.spec) for route in routes}
    if len(set(storage.values())) > 1:
        raise ConfigurationError(
            f"the tables {' and '.join(storage)} are reached in different ways (fs.s3a.bucket.*): tasks of one query "
            "know one. Land them by queries of their own"
        )
    spec = replace(query.spec, storage=next(iter(storage.values())))
    rows, folders = plan_formats(spark, query)
    routing = Routing(spec, routes, query.topics, rows, folders)
    # Resolved now, so that wrong schemas raise here, and so that tasks do not ask the registry again.
    resolved = {topic: found for topic in query.topics if (found := routing.target(topic).row_format)}
    return replace(routing, rows=rows | resolved)


def _tables(query: QuerySettings, table: str) -> list[tuple[str, str]]:
    """Return pairs of a topic pattern and a table; a topic goes to the table of the first pattern that matches it.

    Tables of single topics come first. The routes of `ingest.route` follow, and last comes `table` for all other
    topics.
    """
    return [*((re.escape(topic), own) for topic, own in query.tables.items()), *query.routes, (".*", table)]


def lands_in(spark: SparkSession, query: QuerySettings, table: str, other: str) -> bool:
    """Return whether a query with these settings and `ingest.table` (`table`) may write to the table `other`.

    The tables are compared by their folders. In a folder's name, `{topic}` stands for any topic.

    Raises:
        ConfigurationError: a folder cannot be derived from a table's name.
        TableError: Spark cannot reach the catalog.
    """
    named = {name for _, name in _tables(query, table)}
    folders = (re.escape(table_folder(spark, name).rstrip("/")).replace(re.escape(TOPIC), "[^/]+") for name in named)
    return any(re.fullmatch(pattern, table_folder(spark, other).rstrip("/")) for pattern in folders)


def plan_formats(spark: SparkSession, query: QuerySettings) -> tuple[dict[str, RowFormat], dict[str, str]]:
    """Return two mappings for `Routing`: row formats by topic, and URIs of the folders of tables for dead letters.

    The row format under '' is for all topics without settings of their own. The second mapping is by table name.

    Raises:
        ConfigurationError: a schema is wrong, or a folder cannot be derived from a table's name.
        TableError: Spark cannot reach the catalog.
        SchemaRegistryError: the schema registry does not return a schema.
    """
    rows: dict[str, RowFormat] = {}
    folders: dict[str, str] = {}
    for topic, spec in {"": query.spec, **query.topics}.items():
        rows[topic] = plan_rows(spec, query.include_headers, time_zone(spark))
        check_by_spark(spark, rows[topic])
        if spec.rows.dead_letter_table not in folders:
            folders |= dead_letter_folder(spark, spec.rows.dead_letter_table)
    return rows, folders


def dead_letter_folder(spark: SparkSession, table: str | None) -> dict[str, str]:
    """Return a mapping from `table`, the value of `ingest.deadLetterTable`, to the URI of this table's folder.

    The mapping is empty if `table` is None.

    Raises:
        ConfigurationError: the folder cannot be derived from the table's name.
        TableError: Spark cannot reach the catalog.
    """
    return {} if table is None else {table: _route(spark, "", table).folder}


def table_folder(spark: SparkSession, table: str) -> str:
    """Return the URI of a table's folder, or of the folder in which the table would be created.

    If `table` has `{topic}` in it, the URI has `{topic}` in it, too.

    Raises:
        ConfigurationError: the folder cannot be derived from the table's name.
        TableError: Spark cannot reach the catalog.
    """
    uri = None if TOPIC in table else addresses.find_address(spark, table).uri
    return uri or _route(spark, "", table).folder


def _route(spark: SparkSession, pattern: str, table: str) -> Route:
    if "/" in table:
        # The path is resolved once for all topics, because a topic's characters have no special meaning in a URI.
        mark = uuid4().hex
        uri = addresses.table_uri(spark, table.replace(TOPIC, mark)).replace(mark, TOPIC)
        if TOPIC in urlsplit(uri).netloc:
            raise ConfigurationError(f"the table {table}: {TOPIC} stands for a bucket, which tables of a query share")
        return Route(pattern, table, uri)
    *parts, name = name_parts(table)
    database = quoted_name(parts)
    if TOPIC in database:
        raise ConfigurationError(f"the table {table}: {TOPIC} stands in the database's name; it may in the table's own")
    with spark_errors(table, "placed"):
        location = spark.catalog.getDatabase(database or spark.catalog.currentDatabase()).locationUri
        any_case = not boolean(spark.conf.get("spark.sql.caseSensitive", None), default=False)
    if not location:
        raise ConfigurationError(f"the table {table}: its database has no location. Name the tables by a path")
    if any_case:
        mark = uuid4().hex
        name = name.replace(TOPIC, mark).lower().replace(mark, TOPIC)
    return Route(pattern, table, f"{addresses.table_uri(spark, location).rstrip('/')}/{name}", any_case)


def _storage(spark: SparkSession, route: Route, spec: TableSpec) -> TableStorage:
    reached, unreachable = with_access(spark, replace(spec, uri=route.folder))
    if unreachable:
        raise ConfigurationError(
            f"the direct lane cannot write to {route.table}: {unreachable}. One query for many tables has no other: "
            f"{_ONE_QUERY_PER_TOPIC}"
        )
    return reached.storage


@dataclass(frozen=True)
class TopicTables:
    """Object that opens the tables of a query for commits on the driver; several threads may use it.

    `checkpoint` is the query's checkpoint location. `fail_on_data_loss` is the value of the option `failOnDataLoss`.
    `keeps_tables` is true if tables without rows keep their columns (`QueryRun.keeps_table`).
    """

    spark: SparkSession
    checkpoint: str
    fail_on_data_loss: bool
    keeps_tables: bool = False

    def commits_of(
        self, options: Mapping[str, str], settings: TaskSettings, opened: OpenTable | None
    ) -> tuple[dict[str, str], QueryCommits]:
        """Return the options for the source whose tasks write files, and the object that commits these files.

        The rows that parked tables lack are committed first. An earlier run parked a table if it could not write the
        table, and continued without it. If the checkpoint has no query id, there was no earlier run.

        Args:
            options: options of the source that reads the records.
            settings: settings for the tasks of the query.
            opened: the query's only table; None: the query has many tables.

        Raises:
            TieredStreamError: the checkpoint cannot be read, a table for dead letters cannot be opened, or a parked
                table still cannot be written.
        """
        routing = settings.routing
        if opened is not None:
            one = OneTable(routing, opened.spec, self.commits(opened), self.open_dead_letters)
            return settings.added_to(options), one
        folder = CheckpointFolder(self.spark, self.checkpoint)
        parked = ParkedRows(self.spark, options, settings)
        log, in_thread = QueryTablesLog(folder), _in_thread_of(self.spark)
        tables = ManyTables(routing, self.open, self.open_dead_letters, log, parked, in_thread)
        query_id = SparkCheckpoint(folder).query_id()
        if query_id:
            tables.begin(query_id)
        return parked.settings.added_to(options), tables

    def open(self, spec: TableSpec, landed: Landed) -> TableCommits:
        """Open the table `spec` for commits, and create it if it is missing.

        `landed` is the newest batch of the query that the table must have.

        Raises:
            ConfigurationError: the table does not fit the rows.
            TableError: the table cannot be reached or created, or it cannot get files that tasks write.
        """
        known = self._find(spec)
        address = replace(known, uri=spec.key)
        create = partial(_create, self.spark, spec)
        checked = spec.row_format is not None
        opened = open_or_create(self.spark, address, spec, create, checked=checked, keeps_table=self.keeps_tables)
        if isinstance(opened, str):
            raise TableError(
                f"the direct lane cannot write to it: {opened}. Leave its topics out of this query, by "
                "subscribe or subscribePattern, and land them by one of their own in the Spark lane"
            )
        if known.uri is None:
            addresses.register_table(self.spark, address)
        return self.commits(opened, landed, rules_by_file=checked)

    def commits(self, opened: OpenTable, landed: Landed | None = None, *, rules_by_file: bool = False) -> TableCommits:
        """Return an object that commits the query's batches to the table `opened`.

        `landed` and `rules_by_file` are the same as in `TableCommits`.
        """
        gap = on_gap(self.spark, self.checkpoint, opened.spec.name, fail=self.fail_on_data_loss)
        return TableCommits(opened, gap, landed, fail_on_data_loss=self.fail_on_data_loss, rules_by_file=rules_by_file)

    def open_dead_letters(self, spec: TableSpec) -> DeadLetterTable:
        """Open `spec`, a table for dead letters (records that cannot become rows), and create it if it is missing.

        It is no error if the table lacks earlier batches, because only batches with dead letters are committed to it.

        Raises:
            ConfigurationError: the table does not have the columns of dead letters.
            TableError: the table cannot be reached or created, or it cannot get files that tasks write.
        """
        opened = partial(self.open, spec, Landed())
        return DeadLetterTable(opened, partial(remove_unfinished, self.spark, spec), opened())

    def _find(self, spec: TableSpec) -> addresses.TableAddress:
        """Return the table's address, whose URI is None if the catalog does not have the table's name yet.

        Raises:
            ConfigurationError: the name belongs to something other than a Delta table.
            TableError: the catalog has the table in another folder than `spec.key`, or cannot be reached.
        """
        if "/" in spec.name:
            return addresses.TableAddress(normal_path(spec.name), None, spec.key)
        address = addresses.find_address(self.spark, spec.name)
        if address.uri not in (None, spec.key):
            raise TableError(
                f"its folder is {address.uri}, and not {spec.key}, where its database has it: name it in "
                "ingest.route by its folder's path"
            )
        return address


def _create(spark: SparkSession, spec: TableSpec, address: addresses.TableAddress) -> None:
    """Create the table with deltalake, because delta-spark refuses a folder into which tasks have written already.

    Afterwards, delta-spark sets the properties and the clustering columns that deltalake cannot give to a new table.

    Raises:
        TableError: the table cannot be created or changed.
    """
    from tiered_stream.delta.commit.deltalake_commit import create_table

    properties = new_table_properties(spark, spec)
    known = {name: value for name, value in properties.items() if name in CREATED_WELL}
    create_table(spec, spec.schema, known, lock_for_creation(spark, spec))
    # delta-spark sets the properties that deltalake cannot give to a new table.
    added = {name: value for name, value in properties.items() if name not in CREATED_WELL}
    if added:
        addresses.set_properties(spark, address, added)
    if spec.cluster_by:
        addresses.cluster_table(spark, address, spec.cluster_by)


def _in_thread_of(spark: SparkSession) -> Callable[[Work], Work]:
    """Return a function that wraps a function for another thread; its Spark jobs then belong to the caller's query."""
    # Without pinned threads, a Python thread has no JVM thread of its own, whose properties could be set.
    if not isinstance(spark.sparkContext._gateway, ClientServer):
        return lambda work: work
    return lambda work: inheritable_thread_target(spark)(work)


# Reader of rows for parked tables, which are tables that could not be written.
#
# While a table is parked, tasks of the streaming query do not write its rows. When the table is caught up, a batch
# query reads these rows again. `ParkedRows` implements `many_tables.ParkedRowsReader`.

_MAX_NAMED = 5


class ParkedRows:
    """Reader of rows for the parked tables of one query, with a temporary file that has the keys of these tables.

    A parked table is one that could not be written, and without which the streaming query continues. The source's
    planner runs in its own process on the driver's machine, and reads the keys from the file. The file is deleted
    together with this object.
    """

    def __init__(self, spark: SparkSession, options: Mapping[str, str], settings: TaskSettings) -> None:
        """`options` are for the source that reads the records, and `settings` are for the tasks of the query."""
        self._spark = spark
        self._options = options
        folder = tempfile.mkdtemp(prefix="tiered-stream-parked-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._file = Path(folder, "tables.json")
        self.settings = replace(settings, parked_file=str(self._file))
        """Settings for the tasks of the query, with the path of the file that has the keys of parked tables."""
        self.report_parked(())

    def report_parked(self, parked: Sequence[str]) -> None:
        self._file.parent.mkdir(exist_ok=True)  # a cleanup of temporary files may have deleted the folder
        written = self._file.with_suffix(".new")
        written.write_bytes(orjson.dumps(list(parked)))
        written.replace(self._file)

    def files(self, key: str, ranges: PartitionRanges, query_id: str, batch_id: int) -> list[DataFile]:
        settings = replace(self.settings, parked_file="", only=key, transaction=(query_id, batch_id))
        options = settings.added_to(batch_options(self._options, ranges))
        try:
            rows = without_idle_limit(self._spark).read.format(SOURCE).options(**options).load()
            return data_files(rows.collect())
        except (Py4JJavaError, PySparkException) as error:
            if isinstance(error, JAVA_ERRORS) and is_stopped(error):
                raise
            raise _reading_error(error, ranges) from error


def _reading_error(error: Py4JJavaError | PySparkException, ranges: PartitionRanges) -> TieredStreamError:
    """Return the error for a failed read of the offset ranges; `error` is the exception that Spark raised.

    The result is a DataLossError if the planner or a task raised a DataLossError, else a TableError.
    """
    named = sorted(ranges.items())[:_MAX_NAMED]
    described = ", ".join(f"{partition} from {offsets.start} to {offsets.end}" for partition, offsets in named)
    name, why = own_error(str(error))
    kind = DataLossError if DataLossError.__name__ in name else TableError
    return kind(f"its rows ({described}) cannot be read again: {why if name else first_line(error)}")
