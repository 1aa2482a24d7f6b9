"""Start of a streaming query: its checkpoint, trigger and name, names of its source and sink, and no idle limit.

The idle limit is Spark's time limit for idle Python workers (`IDLE_LIMIT`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tiered_stream.delta.catalog.java_errors import JAVA_ERRORS, is_stopped
from tiered_stream.delta.checkpoint.checkpoint_folder import CheckpointFolder
from tiered_stream.delta.checkpoint.spark_checkpoint import SparkCheckpoint
from tiered_stream.errors import ConfigurationError, TableError
from tiered_stream.options import remote_options
from tiered_stream.spark.session import boolean, copied_session, is_connect
from tiered_stream.spark.stream_reader import has_read_limits

# Removal of Spark's time limit for idle Python workers, which would kill tasks of the direct lane while they write.
#
# Spark counts a Python worker as idle while the worker sends no bytes (Spark: `BasePythonRunner.ReaderInputStream`). A
# task of the direct lane writes files, and sends its rows only at its end. A Python source cannot show in another way
# that it is alive, because each byte that it sends is part of a row. So queries of the direct lane run without the
# limit.

IDLE_LIMIT = "spark.sql.execution.pyspark.udf.idleTimeoutSeconds"
_NO_LIMIT = "0"
_starting = Lock()


@contextmanager
def started_without_idle_limit(spark: SparkSession) -> Iterator[None]:
    """Remove the session's time limit for idle Python workers during the `with` block, in which a query is started.

    A streaming query copies the session when it starts, so the query has no limit. The session gets its limit back at
    the end of the block. If the session's settings do not let Spark kill idle workers, the session is not changed.
    """
    if not _kills_idle(spark):
        yield
        return
    with _starting:  # without the lock, one start could restore the value that another start has set
        previous = spark._jsparkSession.sessionState().conf().getAllConfs().get(IDLE_LIMIT)
        spark.conf.set(IDLE_LIMIT, _NO_LIMIT)
        try:
            yield
        finally:
            if previous.isDefined():
                spark.conf.set(IDLE_LIMIT, previous.get())
            else:
                spark.conf.unset(IDLE_LIMIT)


def without_idle_limit(spark: SparkSession) -> SparkSession:
    """Return a copy of the session without the time limit for idle Python workers, for use by a batch query.

    If the session's settings do not let Spark kill idle workers, the session itself is returned.
    """
    if not _kills_idle(spark):
        return spark
    return copied_session(spark, {IDLE_LIMIT: _NO_LIMIT})


def _kills_idle(spark: SparkSession) -> bool:
    """Return whether Spark kills idle Python workers; false for Spark 4.0, which never does and lacks the setting."""
    conf: Any = spark._jsparkSession.sessionState().conf()
    try:
        return bool(conf.pythonUDFWorkerKillOnIdleTimeout()) and conf.pythonUDFWorkerIdleTimeoutSeconds() > 0
    except Py4JError:
        return False


AVAILABLE_NOW = "availableNow"
_BEGUN_TWICE = ("ConcurrentModificationException", "FileAlreadyExistsException")
"""Java's errors if two runs write the first file of a checkpoint at the same time (Spark: `StreamMetadata.write`)."""
_STOPPED = "py4j.protocol.Py4JJavaError: An error occurred while calling Spark: java.lang.InterruptedException"
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@dataclass(frozen=True, slots=True)
class QueryRun:
    """Checkpoint, trigger, name and limits with which a streaming query is started.

    `checkpoint` is the checkpoint location. `trigger` is `AVAILABLE_NOW`, or an interval such as `10 seconds`. `name`
    is None if the query has no name.
    """

    checkpoint: str
    trigger: str = AVAILABLE_NOW
    name: str | None = None
    transaction_id: str | None = None
    """Id that Delta's application transactions get in place of the query's id; None: they get the query's id.

    A run that has an end, such as a replay, sets this id, because the query's id changes with a new checkpoint.
    """
    replace_where: str | None = None
    """SQL condition on the table's rows that the run removes, in the commit that adds its own rows; None: no rows.

    A run with a condition is one micro-batch, which Spark's Delta sink writes.
    """
    replaced_records: str | None = None
    """SQL condition on Kafka's columns for the records whose rows `replace_where` removes.

    Older dead letters of these records (records that did not become rows) are removed, too. None: none are removed.
    """
    tasks: int | None = None
    """Maximum number of tasks that read at once; None: as many as Spark runs."""
    keeps_table: bool = False
    """True if a table without rows keeps its columns, because a query that runs already writes to it.

    Otherwise, a table that a failed run has created gets the columns of this run.
    """

    def transaction(self, batch: DataFrame) -> str:
        """Return the query id for Delta's application transaction of the micro-batch `batch`.

        The caller must be in the thread that runs the micro-batch, such as in a function for `foreachBatch`.
        """
        return self.transaction_id or query_id_of(batch)

    def read(self, spark: SparkSession, source: str, options: Mapping[str, str]) -> DataFrame:
        """Return a streaming DataFrame of the data source `source`, which at most `tasks` tasks read at once.

        If the session requires names of sources (`spark.sql.streaming.queryEvolution.enableSourceEvolution`), the
        source gets its name from the checkpoint. The name is `NAME` if the checkpoint has no name yet, or with Spark
        Connect. Without this requirement, the checkpoint is not read.

        Raises:
            ConfigurationError: the checkpoint has several named sources.
            TableError: the checkpoint cannot be reached.
            CorruptDataError, UnsupportedDataError: a file in the checkpoint cannot be read.
        """
        ends = {remote_options.AVAILABLE_NOW.name: "true"} if self._must_be_stopped(spark) else {}
        reader = spark.readStream.format(source).options(**{**options, **ends})
        if boolean(spark.conf.get(_NAMES_SOURCES, None), default=False):
            reader = reader.name(NAME if is_connect(spark) else _source_name(spark, self.checkpoint))
        rows = reader.load()
        return rows.coalesce(self.tasks) if self.tasks else rows

    def start(self, spark: SparkSession, writer: DataStreamWriter, table: str | None = None) -> StreamingQuery:
        """Start the query of `writer` with the run's checkpoint, trigger and name.

        If `table` is given, the query writes to the table of this name in Spark's catalog.

        Raises:
            TableError: another run begins with the same new checkpoint at the same moment.
        """
        must_be_stopped = self._must_be_stopped(spark)
        trigger: dict[str, Any] = {"processingTime": self.trigger} if self.goes_on else {"availableNow": True}
        if must_be_stopped:  # micro-batches without a pause, until the query is stopped
            trigger = {"processingTime": "0 seconds"}
        named = with_named_sink(writer.queryName(self.name) if self.name else writer)
        try:
            configured = named.option("checkpointLocation", self.checkpoint).trigger(**trigger)
            query = configured.start() if table is None else configured.toTable(table)
        except JAVA_ERRORS as error:
            if not any(sign in str(error) for sign in _BEGUN_TWICE):
                raise
            raise TableError(
                f"another run has begun with the new checkpoint {self.checkpoint} at this moment, and a checkpoint is "
                "for one query: wait for the end of that run, or stop it, before you start this one again"
            ) from error
        if must_be_stopped:
            threading.Thread(target=_stop_at_end, args=(query,), name="end of a run", daemon=True).start()
        return query

    def _must_be_stopped(self, spark: SparkSession) -> bool:
        """Return whether the trigger is `availableNow`, but Spark would read all records in one micro-batch.

        The query then gets another trigger, and `_stop_at_end` stops it.
        """
        return not self.goes_on and not has_read_limits(spark)

    @property
    def goes_on(self) -> bool:
        """True if the query waits for new records without end; false if it ends after the available records."""
        return self.trigger != AVAILABLE_NOW

    def started_interpreted(self, spark: SparkSession, writer: DataStreamWriter) -> StreamingQuery:
        """Start the query of `writer`, without Spark's code generation and without the time limit for idle workers.

        This method is for a query that gives Spark only few rows, because compiling code takes 0.6 s in a new JVM.

        Raises:
            TableError: another run begins with the same new checkpoint at the same moment.
        """
        with started_without_idle_limit(spark):
            query = self.start(spark, writer)
        with suppress(Py4JError, TypeError):  # no public interface of Spark, and the query also works without it
            java: Any = query._jsq
            conf = java.streamingQuery().sparkSessionForStream().conf()  # the query's own copy of the session
            for name, value in _INTERPRETED.items():
                conf.set(name, value)
        return query


def _stop_at_end(query: StreamingQuery) -> None:
    """Stop the query as soon as all records that were available at its start are committed."""
    with suppress(PySparkException, Py4JError):  # the query has failed, and whoever waits for it gets the error
        query.processAllAvailable()
        query.stop()


def by_micro_batch(rows: DataFrame, write: Callable[[DataFrame, int], None]) -> DataStreamWriter:
    """Return a writer that calls `write` with each micro-batch of `rows` and its batch id.

    If `write` fails because the query is being stopped, Spark gets a short error that it recognizes. Spark looks for
    Java's InterruptedException in the error's text (`StreamExecution.PROXY_ERROR`). A cancelled job's text does not
    have it, and a text as long as Java's stack trace overflows the stack of Spark's regular expression.
    """

    def stoppable(batch: DataFrame, batch_id: int) -> None:
        try:
            write(batch, batch_id)
        except JAVA_ERRORS as error:
            if is_stopped(error):
                raise RuntimeError(_STOPPED) from None
            raise

    return rows.writeStream.foreachBatch(stoppable)


def query_id_of(batch: DataFrame) -> str:
    """Return the id of the streaming query that runs the micro-batch `batch`.

    The caller must be in the thread that runs the micro-batch, such as in a function for `foreachBatch`.
    """
    query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    assert query_id
    return query_id


# Names of a query's source and sink, for sessions that require them (`spark.sql.streaming.queryEvolution.*`).
#
# Spark finds a named source's offsets in the checkpoint by the source's name. A source with a different name starts
# again from the beginning, without an error. So a source of this package takes the name that is in the checkpoint.

NAME = "tiered_stream"
_NAMES_SOURCES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


def with_named_sink(writer: DataStreamWriter) -> DataStreamWriter:
    """Name the writer's sink `NAME` and return the writer; Spark uses the name only if the session requires names.

    Spark Connect has no way to name a sink. If the session requires a name there, Spark refuses the query.
    """
    private: Any = writer  # Python's DataStreamWriter has no name() in Spark 4.2.
    if hasattr(private, "_jwrite"):
        with suppress(Py4JError):  # If Spark needs the name, Spark itself raises an error.
            private._jwrite = private._jwrite.name(NAME)
    return writer


def _source_name(spark: SparkSession, checkpoint: str) -> str:
    reader = SparkCheckpoint(CheckpointFolder(spark, checkpoint))
    last = reader.last_planned()
    ends = None if last is None else reader.ends(last)
    if ends is None or not ends.has_ids:
        return NAME
    if len(ends.by_source) != 1:
        raise ConfigurationError(
            f"the checkpoint {checkpoint} has offsets of the sources {', '.join(sorted(ends.by_source))}, and this "
            "query reads one: name another checkpoint"
        )
    return next(iter(ends.by_source))
