"""Commits by the session's own delta-spark, through py4j, in the same way as every other query of the session.

So commits use the log store that the user has configured (Delta: `LogStore`). Delta's hooks run after each commit: they
write checkpoints, clean up the log, and compact files.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson
from py4j.java_gateway import JavaPackage
from pyspark.sql import DataFrame, SparkSession

from tiered_stream.delta.catalog.address import TableAddress, find_address, known_scheme, table_uri
from tiered_stream.delta.catalog.java_errors import JAVA_ERRORS, first_line, is_stopped, java_classes
from tiered_stream.delta.catalog.session_checks import EXTENSION
from tiered_stream.delta.commit.transaction import BatchCommit, TableState, UncertainCommitError
from tiered_stream.delta.requirements.lane import TableDescription
from tiered_stream.delta.requirements.session_requirements import OUTPUT_TIMESTAMPS, SESSION_TRANSACTION
from tiered_stream.delta.write.data_files import log_path
from tiered_stream.errors import TableError
from tiered_stream.spark.session import activate, copied_session, is_connect

ALL_ROWS = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    OUTPUT_TIMESTAMPS: "TIMESTAMP_MICROS",
}
"""Settings of a session that reads rows to write them again.

A file that cannot be read must fail the write. Times must keep their microseconds, whatever the user's session sets.
"""
FINAL = {
    "org.apache.spark.sql.AnalysisException",
    "java.lang.UnsupportedOperationException",
    "java.lang.IllegalArgumentException",
    "java.nio.file.AccessDeniedException",
    "org.apache.hadoop.security.AccessControlException",
    "org.apache.spark.sql.delta.DeltaTableFeatureException",
}
"""Java classes of errors that another attempt would raise again."""
_CATALOG_MANAGED = "DELTA_PATH_BASED_ACCESS_TO_CATALOG_MANAGED_TABLE_BLOCKED"
"""Name of Delta's error for a table that a catalog manages, and that is opened by its path."""


def reading_all_rows(spark: SparkSession) -> SparkSession:
    """Return a copy of the session with the settings `ALL_ROWS`, so that no other query gets these settings.

    The copy does not have the settings of an application transaction (`txnAppId`, `txnVersion`), because Delta would
    then skip all but the first change of a table.
    """
    session = copied_session(spark, ALL_ROWS)
    for name in SESSION_TRANSACTION:
        session.conf.unset(name)
    return session


def has_delta_spark(spark: SparkSession) -> bool:
    """Return whether the session has delta-spark (extension and classes), and so can commit to Delta tables.

    The result is false with Spark Connect, which gives no access to the classes.
    """
    if is_connect(spark):
        return False
    has_extension = EXTENSION[1] in (spark.conf.get("spark.sql.extensions", None) or "")
    return has_extension and not isinstance(_delta(spark).DeltaLog, JavaPackage)


def find_by_spark(spark: SparkSession, table: str) -> DeltaSparkTransaction | None:
    """Begin a transaction on the newest version of a table; return None if there is no table.

    `table` is a path if it contains a slash, otherwise a name in Spark's catalog.

    Raises:
        ConfigurationError: the name belongs to something other than a Delta table, or is malformed.
        TableError: Spark cannot reach the catalog, or cannot read the table.
    """
    address = find_address(spark, table)
    return None if address.uri is None else DeltaSparkTable(spark, address).find()


class DeltaSparkTable:
    """Table opened by the session's delta-spark, by its path or by its name in Spark's catalog."""

    def __init__(self, spark: SparkSession, address: TableAddress) -> None:
        self._spark = spark
        self._address = address
        self._path = known_scheme(spark, address.location)

    def prepare(self) -> None:
        """Do nothing, because delta-spark keeps the table's state in memory, so that it need not be read ahead."""

    def begin(self) -> DeltaSparkTransaction:
        transaction = self.find()
        if transaction is None:
            raise TableError(f"the table {self._address} cannot be opened: there is none")
        return transaction

    def find(self) -> DeltaSparkTransaction | None:
        """Begin a transaction on the table's newest version; return None if there is no table.

        Raises:
            TableError: the table cannot be read, or its name in the catalog now means another folder.
        """
        with _java_errors(self._address, "opened"):
            activate(self._spark)
            transaction = self._started(self._log())
            if transaction.snapshot().version() < 0:
                return None
            return DeltaSparkTransaction(self._spark, self._address, transaction)

    def _started(self, delta_log: Any) -> Any:
        no_snapshot = _java(self._spark).scala.Option.empty()
        try:
            return delta_log.startTransaction(delta_log.initialCatalogTable(), no_snapshot)
        except JAVA_ERRORS as error:
            if self._address.name is None or _CATALOG_MANAGED not in first_line(error):
                raise
        # A table that a catalog manages can be opened only together with its entry in the catalog.
        plan = self._spark.table(self._address.name)._jdf.queryExecution().analyzed()
        return delta_log.startTransaction(plan.collectLeaves().head().catalogTable(), no_snapshot)

    def compute_statistics(self) -> None:
        """Compute the statistics of all files again from their rows, in one commit that changes no row.

        Raises:
            TableError: Delta cannot read the table, or cannot commit to it.
        """
        with _java_errors(self._address, "changed"):
            activate(self._spark)
            delta_log, statistics = self._log(), _module(_delta(self._spark).stats, "StatisticsCollection")
            all_files = [getattr(statistics, f"recompute$default${number}")() for number in (4, 5)]
            statistics.recompute(self._spark._jsparkSession, delta_log, delta_log.initialCatalogTable(), *all_files)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold delta-spark's lock of the table during the `with` block.

        delta-spark commits under this lock if its log store cannot exclude other writers (`isCommitLockEnabled`). If no
        query of the session has opened the table with delta-spark, there is no lock to hold. To open the table only for
        the lock would cost a Spark job.

        Raises:
            UncertainCommitError: raised at the end of a block without a lock, if a query of the session has opened the
                table meanwhile. The query may have overwritten a commit that was made in the block.
            TableError: Spark cannot open the table.
        """
        held = self.opened_lock()
        if held is not None:
            with self._locked(held):
                yield
            return
        yield
        # delta-spark opens a table before it looks for the table's newest version. So if delta-spark has not opened the
        # table by now, any later commit of delta-spark sees the commit that was made in the block.
        held = self.opened_lock()
        if held is not None:
            with self._locked(held):
                raise UncertainCommitError(
                    f"another query of the session has opened the table {self._address} meanwhile"
                )

    @contextmanager
    def _locked(self, lock: Any) -> Iterator[None]:
        with _java_errors(self._address, "locked"):
            lock.lockInterruptibly()
        try:
            yield
        finally:
            lock.unlock()

    def opened_lock(self) -> Any:
        """Return delta-spark's Java lock of the table, or None if no query of the session has opened the table.

        A table that is given by its name in the catalog is opened by this method.

        Raises:
            TableError: Spark cannot open the table.
        """
        with _java_errors(self._address, "locked"):
            if self._address.path is None:
                activate(self._spark)
                opened = self._log()  # only the catalog knows how a table is opened by name
            else:
                cache, key = self._opened
                opened = cache.getIfPresent(key)
            return opened and opened.snapshotLock()

    @cached_property
    def _opened(self) -> tuple[Any, Any]:
        """Java cache of all `DeltaLog` objects that the session has opened, and this table's key in the cache."""
        java, delta = _java(self._spark), _delta(self._spark)
        session, delta_log = self._spark._jsparkSession.sessionState(), _module(delta, "DeltaLog")
        log_path = delta_log.logPathFor(self._path)
        qualified = log_path.getFileSystem(session.newHadoopConf()).makeQualified(log_path)
        no_options = java.PythonUtils.toScalaMap(java.java.util.HashMap())
        key = getattr(delta, "DeltaLog$DeltaLogCacheKey")(qualified, no_options)
        return delta_log.getOrCreateCache(session.conf()), key

    def _log(self) -> Any:
        session = self._spark._jsparkSession
        if self._address.path is not None:
            return _delta(self._spark).DeltaLog.forTable(session, self._path)
        delta_log = _java(self._spark).io.delta.tables.DeltaTable.forName(session, self._address.name).deltaLog()
        folder = table_uri(self._spark, delta_log.dataPath().toString())
        if folder != self._address.uri:
            raise TableError(
                f"the table {self._address} is another one than when the query started: it is in {folder} and was in "
                f"{self._address.uri}. Start the query again: with a new checkpoint, where it is to get all records."
            )
        return delta_log


class DeltaSparkTransaction:
    """One attempt at a commit by delta-spark: a `transaction.DeltaTransaction` over Delta's `OptimisticTransaction`."""

    def __init__(self, spark: SparkSession, address: TableAddress, transaction: Any) -> None:
        self._spark = spark
        self._address = address
        self._transaction = transaction
        self._java = _java(spark)
        self.state = TableState(int(transaction.snapshot().version()), _describe(transaction))

    def last_batch(self, query_id: str) -> int | None:
        with _java_errors(self._address, "read"):
            version = int(self._transaction.txnVersion(query_id))
            return version if version >= 0 else None

    def has_rows(self) -> bool:
        """Return whether the table has any data file in `state.version`; this reads the table's whole state."""
        with _java_errors(self._address, "read"):
            return int(self._transaction.snapshot().numOfFiles()) > 0

    def files(self) -> DataFrame:
        """Return the `add` actions of the table's data files in `state.version`, one in each row."""
        with _java_errors(self._address, "read"):
            return DataFrame(self._transaction.snapshot().allFiles().toDF(), self._spark)

    def place(self, path: str) -> str:
        """Return a data file's path in the form that Spark's readers accept.

        `path` is the path in the file's `add` action: URL-encoded, and relative to the table's folder or absolute.
        """
        is_absolute = urlsplit(path).scheme or path.startswith("/")
        folder = str(self._transaction.snapshot().path().getParent().toString())
        return unquote(path) if is_absolute else f"{folder}/{unquote(path)}"

    def commit(self, batch: BatchCommit) -> int:
        with _java_errors(self._address, "committed to"):
            delta, transaction = _delta(self._spark), self._transaction
            # With this line, Delta raises a conflict (`ConcurrentTransactionException`) if another process has
            # committed the batch since this transaction began. `txnVersion` would do so, too, but reads the table's
            # state.
            transaction.readTxn().addOne(batch.query_id)
            self._report(batch)
            if batch.files:
                # Delta's own writer registers this hook, too; the hook checks whether the table wants compaction.
                transaction.registerPostCommitHook(_module(delta.hooks, "AutoCompact"))
            operation = getattr(delta, "DeltaOperations$StreamingUpdate")(
                self._java.org.apache.spark.sql.streaming.OutputMode.Append(),
                batch.query_id,
                batch.batch_id,
                self._java.scala.Option.apply(batch.metadata()),
            )
            return int(transaction.commit(self._actions(batch), operation))

    def _report(self, batch: BatchCommit) -> None:
        """Register the numbers of the batch's rows, bytes and files as metrics that `DESCRIBE HISTORY` shows."""
        context = self._spark.sparkContext._jsc.sc()
        metrics = self._java.java.util.HashMap()
        for name, value in {"numAddedFiles": len(batch.files), "numRemovedFiles": 0, **batch.metrics()}.items():
            metric = self._java.org.apache.spark.sql.execution.metric.SQLMetrics.createMetric(context, name)
            metric.set(value)
            metrics[name] = metric
        self._transaction.registerSQLMetrics(self._spark._jsparkSession, self._java.PythonUtils.toScalaMap(metrics))

    def _actions(self, batch: BatchCommit) -> Any:
        moment = time.time_ns() // 1_000_000
        transaction = {"appId": batch.query_id, "version": batch.batch_id, "lastUpdated": moment}
        files = (
            {
                "path": log_path(file.path),
                "partitionValues": batch.partition_values(file),
                "size": file.size,
                "modificationTime": file.modification_time,
                "dataChange": True,
                "stats": file.stats,
            }
            for file in batch.files
        )
        action = _module(_delta(self._spark).actions, "Action")
        actions = self._java.java.util.ArrayList()
        for fields in ({"txn": transaction}, *({"add": file} for file in files)):
            actions.add(action.fromJson(orjson.dumps(fields).decode()))
        return self._java.PythonUtils.toSeq(actions)


def _describe(transaction: Any) -> TableDescription:
    metadata = orjson.loads(transaction.metadata().json())["metaData"]
    protocol = orjson.loads(transaction.protocol().json())["protocol"]
    return TableDescription(
        fields=tuple(orjson.loads(metadata["schemaString"])["fields"]),
        partition_columns=tuple(metadata.get("partitionColumns") or ()),
        configuration=metadata.get("configuration") or {},
        writer_features=frozenset(protocol.get("writerFeatures") or ()),
        table_id=metadata["id"],
    )


def _java(spark: SparkSession) -> Any:
    return spark._jvm


def _delta(spark: SparkSession) -> Any:
    return _java(spark).org.apache.spark.sql.delta


def _module(package: Any, name: str) -> Any:
    """Return the instance of the Scala object `name` in a Java package."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


@contextmanager
def _java_errors(address: TableAddress, done: str) -> Iterator[None]:
    """Turn the JVM's errors in the `with` block into TableError or UncertainCommitError.

    The error is a TableError if another attempt would raise it again (`FINAL`, `_CATALOG_MANAGED`), else an
    UncertainCommitError. Errors of a query that is being stopped pass unchanged (`is_stopped`). `done` is a
    participle for the text "the table X cannot be {done}", such as "opened".
    """
    try:
        yield
    except JAVA_ERRORS as error:
        if is_stopped(error):
            raise
        text = first_line(error)
        kind = TableError if java_classes(error) & FINAL or _CATALOG_MANAGED in text else UncertainCommitError
        raise kind(f"the table {address} cannot be {done} by Spark's Delta: {text}") from error
