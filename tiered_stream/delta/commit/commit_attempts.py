"""The driver's commits into one table: all files of a micro-batch in one transaction, exactly once.

A commit has the same application transaction that Spark's Delta sink writes (Delta: `DeltaSink`): the query's id as
name, the batch's id as version. Each batch is committed, even a batch without rows, as in Delta's sink. The transaction
in the table shows if a batch is already committed, and if the batch before is missing. If a query writes many tables, a
batch is committed only to the tables for which it has files (`many_tables.py`).

Writers of a table do not always exclude each other. Some of Delta's log stores check whether a version exists and then
write it, without regard to other processes. So an acknowledged commit can be overwritten. Each commit first checks that
the query's last commit is still in the log.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, astuple, dataclass, replace
from uuid import UUID

from pyspark.sql import SparkSession

from tiered_stream.delta.checkpoint.checkpoint_folder import CheckpointFolder
from tiered_stream.delta.checkpoint.query_tables import Landed
from tiered_stream.delta.checkpoint.spark_checkpoint import SparkCheckpoint
from tiered_stream.delta.commit.open_table import OpenTable
from tiered_stream.delta.commit.table_log import TableLog, landed_before, refuse_landed_before
from tiered_stream.delta.commit.transaction import BatchCommit, DeltaTransaction, UncertainCommitError, commit_metadata
from tiered_stream.delta.requirements.lane import TableDescription, case_mismatch, check_fit
from tiered_stream.delta.schema.row_schema import joined_columns, with_day
from tiered_stream.delta.schema.sql_types import struct_of
from tiered_stream.delta.settings.ingest_settings import DAY_COLUMN, FAIL
from tiered_stream.delta.settings.row_settings import KAFKA_COLUMNS
from tiered_stream.delta.write.data_files import DataFile, grown_schemas, offset_ranges, rules_text
from tiered_stream.errors import ConfigurationError, TableError, TieredStreamError, UnsupportedDataError
from tiered_stream.observe.landed_rows import LandedRows
from tiered_stream.plan.data_loss import DataLossPolicy, check_topic_ids

log = logging.getLogger(__name__)

ATTEMPTS = 10
"""Maximum number of attempts at one commit; within each attempt, deltalake itself tries up to 15 version numbers."""
MAX_LOG_FILES = 100
"""Maximum number of files of a table's log to scan for the query's last batch.

If more log files would have to be scanned, the table's whole state is read instead, because this is then faster.
"""
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 10.0
"""First and longest wait between attempts at a commit, in seconds.

The wait doubles with each attempt. A random factor from 0.5 to 1 shortens it.
"""
_TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"
_MAX_SHOWN = 10_000
"""Maximum length in characters of the offsets that an error shows.

If they are longer, the error names the file in the checkpoint that has the offsets.
"""

OnGap = Callable[[int | None, int], None]
"""Function that is called if a table lacks batches; it raises TableError, or returns if the query may go on.

The arguments are two batch ids: the query's newest batch in the table (None: there is none), and the newest batch that
the table must have.
"""


@dataclass(frozen=True, slots=True)
class _LastCommit:
    """Newest batch of the query in a table when the table's log was last read; `batch_id` is -1 if there was none.

    The next read of the log begins at `version`. If this process committed the batch, `files` are the batch's files.
    Then the commit is in `version` or in a later version, so that the next read finds the commit again. Otherwise
    `files` is None, and `version` is the first version that the last read did not include.
    """

    version: int
    batch_id: int
    files: Sequence[DataFile] | None = None


@dataclass(eq=False)
class TableCommits:
    """Commits of one query into one table, one batch at a time.

    `landed` is the newest batch that the table must have, and a version of the log at or below its commit. If `landed`
    is None, every batch is committed to the table. The table must then have the batch before the first one that a
    method is called for. `on_gap` is called if the table lacks the batch that it must have.
    """

    planned: OpenTable
    """Table as it was when the query was planned.

    Each commit checks that the table still has the same table id, and that it accepts the files.
    """
    on_gap: OnGap
    landed: Landed | None = None
    _: KW_ONLY
    fail_on_data_loss: bool = True
    rules_by_file: bool = False
    """True if each file names the table rules by which its rows were checked (`DataFile.rules`).

    A commit then checks that the files name exactly the rules of `planned`, such as NOT NULL and CHECK constraints.
    """
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        self._table = self.planned.table
        self._name = f"the table {self.planned.spec.uri}"
        self._log = TableLog(self.planned.spec)
        self._last: _LastCommit | None = None
        self._topic_ids: dict[str, UUID] | None = None
        self._compared = False
        """True once the offsets of the query's first files were compared with the commits of other queries."""

    def is_committed(self, query_id: str, batch_id: int) -> bool:
        """Return whether the table has the query's batch `batch_id` already; errors are the same as in `last_batch`."""
        return self.last_batch(query_id, batch_id) >= batch_id

    def last_batch(self, query_id: str, batch_id: int) -> int:
        """Return the id of the query's newest batch in the table; -1: there is none.

        `batch_id` is the batch that the caller is about to commit. The first call also checks that the table lacks no
        earlier batch that it must have.

        Raises:
            TableError: the table cannot be read, or was replaced by another table. Or a batch is missing, and `on_gap`
                raises the error.
        """
        return self._last_commit(query_id, batch_id).batch_id

    def check(self, query_id: str, batch_id: int, files: Sequence[DataFile]) -> None:
        """Check that the table would accept a batch's files now, and start to read its state in the background.

        Before the check, columns that the files need are added to the table or widened, if `OpenTable.grow` is set.

        Raises:
            TableError: the table was replaced by another table, tasks can no longer write its files, or its columns do
                not accept the files. Or another query has already landed offsets that this query's first commit would
                land.
            DataLossError: a topic was deleted and created again since the query's last commit, and
                `fail_on_data_loss` is true.
        """
        self._check_topics(query_id, self._last_commit(query_id, batch_id), files)
        transaction = self._begin_fitting(self._begin(), files)
        self._refuse_landed_before(query_id, files, transaction.state.version)
        self._table.prepare()

    def prepare(self) -> None:
        """Start to read the table's state in the background, so that the next commit need not wait for it.

        Call this method while tasks still write the files.
        """
        self._table.prepare()

    def commit(self, query_id: str, batch_id: int, files: Sequence[DataFile]) -> int | None:
        """Commit the files of a batch to the table, unless the table has the batch already.

        Returns:
            A version of the table's log; the batch is in this version or in a later one. None: the table had the batch
            already.

        Raises:
            TableError: the table was replaced by another table, tasks can no longer write its files, or its columns do
                not accept the files. Or another query has landed the offsets of this query's first files already. Or
                the query's last commit is gone from the log, or no attempt succeeded. Or an earlier batch is missing,
                and `on_gap` raises the error.
            DataLossError: a topic was deleted and created again since the query's last commit, and
                `fail_on_data_loss` is true.
        """
        last = self._last_commit(query_id, batch_id)
        self._check_topics(query_id, last, files)
        day_column, topic_ids = self.planned.spec.day_column, self._topic_ids or {}
        return self._until_committed(last, BatchCommit(query_id, batch_id, files, day_column, topic_ids))

    def with_keys(self, landed: LandedRows, query_id: str, batch_id: int, version: int | None) -> LandedRows:
        """Return `landed` with the numbers of keys that the batch's MERGE has inserted, updated and deleted.

        `version` is the result of `commit`. If `version` is None, if rows are appended to the table, or if the table's
        log does not have the numbers, `landed` is returned unchanged.
        """
        if not self.planned.spec.keys or version is None:
            return landed
        keys = None
        with suppress(TableError):  # the batch is committed; only the numbers are unknown
            keys = self._log.changed_keys(query_id, batch_id, version)
        return landed if keys is None else replace(landed, rows=sum(astuple(keys)), keys=keys)

    def _check_topics(self, query_id: str, last: _LastCommit, files: Sequence[DataFile]) -> None:
        """Check that each topic in `files` has the topic id that the query's last commit recorded.

        A topic with another id was deleted and created again. Topics without a recorded id pass.

        Raises:
            DataLossError: a topic has another id, and `fail_on_data_loss` is true.
        """
        if self._topic_ids is None:
            first = self.landed.version if self.landed else 0
            self._topic_ids = self._log.topic_ids(query_id, first, last.version - 1)
        now = {topic: topic_id for file in files for topic, topic_id in file.topic_ids.items()}
        check_topic_ids(self._topic_ids, now, DataLossPolicy(self.fail_on_data_loss))
        self._topic_ids |= now

    def _last_commit(self, query_id: str, batch_id: int) -> _LastCommit:
        """Return the query's newest batch in the table; `batch_id` is the batch that is about to be committed.

        The first call reads the table, and calls `on_gap` if the table lacks a batch that it must have. Later calls
        return a cached value.
        """
        if self._last is None:
            transaction, due = self._begin(), self.landed or Landed(batch_id - 1)
            newest = self._newest_since(due.version, query_id, transaction)
            last_batch = -1 if newest is None else newest
            if last_batch < due.batch and not (last_batch == -1 and drops_transactions(transaction)):
                self.on_gap(None if last_batch == -1 else last_batch, due.batch)
            self._last = _LastCommit(transaction.state.version + 1, last_batch)
        return self._last

    def _until_committed(self, last: _LastCommit, batch: BatchCommit) -> int | None:
        for attempt in range(ATTEMPTS):
            begun = self._begin()
            if self._has(begun, last, batch):
                return None
            transaction = self._begin_fitting(begun, batch.files)
            # While columns were added, another driver of the query may have committed the batch.
            if transaction is not begun and self._has(transaction, last, batch):
                return None
            self._refuse_landed_before(batch.query_id, batch.files, transaction.state.version)
            try:
                self._last = _LastCommit(transaction.commit(batch), batch.batch_id, batch.files)
                if self.planned.compaction is not None:
                    self.planned.compaction.after(transaction.state.version, self._last.version)
                return self._last.version
            except UncertainCommitError as error:
                name = f"{self._name}: batch {batch.batch_id}"
                if attempt + 1 == ATTEMPTS:
                    raise TableError(f"{name} could not be committed in {ATTEMPTS} attempts: {error}") from error
                log.warning("%s is committed again, since %s", name, error)
                self.sleep(min(_FIRST_WAIT * 2**attempt, _LONGEST_WAIT) * random.uniform(0.5, 1))
        raise AssertionError("the last attempt has returned or raised")

    def _has(self, transaction: DeltaTransaction, last: _LastCommit, batch: BatchCommit) -> bool:
        """Return whether the table already has the batch in the version on which `transaction` is based.

        An earlier attempt may have committed it, although its response was lost. Another driver of the query may have
        committed it, too. `last` is the query's newest batch before this commit.

        Raises:
            TableError: the query's last commit is gone from the log.
        """
        newest = self._newest_since(last.version, batch.query_id, transaction)
        if newest is not None and newest < last.batch_id and last.files is not None:
            raise self._overwritten(last, last.files)
        if batch.batch_id > max(last.batch_id, -1 if newest is None else newest):
            return False
        self._last = _LastCommit(transaction.state.version + 1, batch.batch_id)
        return True

    def _refuse_landed_before(self, query_id: str, files: Sequence[DataFile], newest: int) -> None:
        """Raise TableError if `files` are the query's first for the table, and another query has landed their offsets.

        If `ingest.onLandedOffsets` is `land`, log a warning instead. `newest` is the table's version. A table with key
        columns is not checked.
        """
        if self._compared or not files or self.planned.spec.keys:
            return
        commits = self._log.commits_before_first(query_id, newest)
        if commits is not None:
            found = landed_before(commits, self._name, query_id, offset_ranges(files), self._topic_ids or {})
            refuse_landed_before(found, fail=self.planned.spec.on_landed_offsets == FAIL)
        self._compared = True

    def _begin_fitting(self, transaction: DeltaTransaction, files: Sequence[DataFile]) -> DeltaTransaction:
        """Add or widen columns that the files need, and check that the table accepts the files.

        Returns:
            `transaction`, or a new transaction if columns were added or widened.
        """
        self._check_names(files)
        if self._grow(transaction.state.description, files):
            transaction = self._begin()
        self._check_fit(transaction.state.description, files)
        return transaction

    def _check_names(self, files: Sequence[DataFile]) -> None:
        """Raise TableError if a new field of the records has the name of a Kafka column or of the day column."""
        for schema in grown_schemas(files):
            names = Counter(name.lower() for name in with_day(schema, self.planned.spec.day_column).names)
            if (name := next((name for name, count in names.items() if count > 1), None)) is not None:
                raise TableError(
                    f"records have a new field {name}, and {self._name} has a column of this name that does not come "
                    "from the value. Land in another table with another name for the column: "
                    f"{KAFKA_COLUMNS.name}={name} as kafka_{name}, or another {DAY_COLUMN.name}"
                )

    def _grow(self, description: TableDescription, files: Sequence[DataFile]) -> bool:
        """Add or widen columns that the files need; return whether the table changed.

        After a change, the commit needs a new transaction. Raise TableError if the columns cannot be changed.
        """
        if self.planned.grow is None:
            return False
        # The schemas are joined, because each file may have columns that other files lack.
        schemas = grown_schemas(files)
        try:
            return bool(schemas) and self.planned.grow(description.fields, joined_columns(schemas))
        except UnsupportedDataError as error:
            raise TableError(f"{self._name}: {error}") from error

    def _begin(self) -> DeltaTransaction:
        transaction = self._table.begin()
        table_id, planned = transaction.state.description.table_id, self.planned.description.table_id
        if table_id != planned:
            raise TableError(
                f"{self._name} is another one than when the query started: its id is {table_id}, and was {planned}. "
                "Nothing was committed to it. Where the new one is to get all records, start the query with a new "
                "checkpoint."
            )
        return transaction

    def _newest_since(self, first: int, query_id: str, transaction: DeltaTransaction) -> int | None:
        """Return the id of the query's newest batch in versions of the table from `first` on; -1: there is none.

        None: no batch is found, but the table may have dropped the batch's transaction. The log files from `first` on
        are scanned. If there are more than `MAX_LOG_FILES` of them, or a log file is missing, the table's state is read
        instead, which is slower.
        """
        version = transaction.state.version
        newest = self._log.newest_batch(query_id, first, version) if version - first < MAX_LOG_FILES else None
        if newest is None:
            newest = transaction.last_batch(query_id)
        if newest is None and not drops_transactions(transaction):
            return -1
        return newest

    def _check_fit(self, description: TableDescription, files: Sequence[DataFile]) -> None:
        planned, day_column = self.planned, self.planned.spec.day_column
        reason = planned.accepts(description, planned.rules)
        if not planned.spec.keys:  # a MERGE finds columns by names without regard to case
            table = struct_of(description.fields)
            reasons = (case_mismatch(table, schema.jsonValue()) for schema in grown_schemas(files))
            reason = next(filter(None, reasons), reason)
        if self.rules_by_file and any((file.rules or "") != rules_text(planned.rules) for file in files):
            reason = "rows were not checked by the constraints that it has, or by its columns that are NOT NULL"
        if reason:
            raise TableError(
                f"{self._name} has changed, and can no longer be written to by the direct lane: {reason}. "
                "Start the query again with lane auto or spark: it goes on where it was."
            )
        try:
            for schema in (planned.spec.schema, *(with_day(schema, day_column) for schema in grown_schemas(files))):
                check_fit(planned.spec.uri, description, schema, day_column)
        except ConfigurationError as error:
            raise TableError(f"{self._name} has changed, and what is written no longer fits: {error}") from error

    def _overwritten(self, last: _LastCommit, files: Sequence[DataFile]) -> TableError:
        """Return the error for a commit of the query that another writer has overwritten in the table's log.

        `last` describes the overwritten commit, and `files` are the files that it added.
        """
        offsets = commit_metadata(offset_ranges(files), {})
        return TableError(
            f"{self._name}: the commit of batch {last.batch_id}, which brought {offsets}, is no longer in the log, "
            f"where it was in version {last.version} or soon after: another writer, which does not exclude this one, "
            "has overwritten it. Stop the other writer, or let it commit in the same way: the documentation says which "
            "writers may share a table (ingest.commit). Land these offsets by a query of their own, then set "
            "failOnDataLoss to false for one start of this one"
        )


def drops_transactions(transaction: DeltaTransaction) -> bool:
    """Return whether the table drops old application transactions (`delta.setTransactionRetentionDuration` is set)."""
    return _TRANSACTION_RETENTION in transaction.state.description.configuration


def on_gap(spark: SparkSession, checkpoint: str, table: str, *, fail: bool) -> OnGap:
    """Return the function to call if the table with the name `table` lacks batches of the query.

    The function raises TableError if `fail` is true, and logs a warning otherwise. The error or warning names the
    missing batches, and their offsets as far as the checkpoint (a path) has them.
    """

    def report(last: int | None, done: int) -> None:
        first = 0 if last is None else last + 1
        batches = f"batch {done}" if first == done else f"batches {first} to {done}"
        start = "the query's start" if last is None else _end_offsets(spark, checkpoint, last)
        gap = (
            f"the table {table} does not have {batches} of the query, which its checkpoint {checkpoint} counts as "
            f"done: offsets from {start} to {_end_offsets(spark, checkpoint, done)}. Either another writer has "
            "overwritten the commit, or this is not the table that the query has written to so far"
        )
        advice = (
            "Land these offsets by a separate query, then start this query once with failOnDataLoss=false. If the "
            "table is to get all records, give the query a new checkpoint instead."
        )
        if fail:
            raise TableError(f"{gap}. {advice}")
        log.warning("%s; going on, since failOnDataLoss is false", gap)

    return report


def _end_offsets(spark: SparkSession, checkpoint: str, batch_id: int) -> str:
    end = f"the end of batch {batch_id}"
    try:
        ends = SparkCheckpoint(CheckpointFolder(spark, checkpoint)).ends(batch_id)
    except TieredStreamError as error:  # The caller reports an error already; the offsets only explain it.
        return f"{end} ({error})"
    if ends is None:  # Spark keeps offsets of the last 100 batches (spark.sql.streaming.minBatchesToRetain)
        return end
    offsets = " ".join(offset or "-" for offset in ends.by_source.values())
    return offsets if len(offsets) <= _MAX_SHOWN else f"{end}, as offsets/{batch_id} has it"
