"""The driver's commits into one table: all files of a micro-batch in one transaction, exactly once.

A transaction carries Delta's application transaction under the name that Spark's Delta sink gives it (Delta:
`DeltaSink`): the query's id, and the batch's id as its version. As in that sink each batch is a commit, one without
rows as well. A batch that is repeated, in this lane or the other, finds itself there; the batch before has to be there.
Where a query writes many tables, only those that got rows have a commit of it (`many_tables.py`).

Not every writer of a table excludes every other (a log store of Delta's that checks and then writes knows nothing of
other processes): a commit that was acknowledged may be overwritten. So the last one is looked for before each.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

import orjson
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tiered_stream.delta.checkpoint_folder import CheckpointFolder
from tiered_stream.delta.compaction import Compaction
from tiered_stream.delta.data_files import DataFile
from tiered_stream.delta.ingest_settings import TableFiles
from tiered_stream.delta.known_rules import rules_text
from tiered_stream.delta.lane import TableDescription, check_fit, why_not_direct
from tiered_stream.delta.query_tables import Landed
from tiered_stream.delta.row_schema import joined_columns, with_day
from tiered_stream.delta.spark_checkpoint import SparkCheckpoint
from tiered_stream.delta.table_growth import Grow
from tiered_stream.delta.table_log import TableLog
from tiered_stream.delta.transaction import BatchCommit, CommitTable, DeltaTransaction, UncertainCommitError
from tiered_stream.errors import ConfigurationError, TableError, TieredStreamError, UnsupportedDataError
from tiered_stream.formats.table_rules import NO_RULES, TableRules
from tiered_stream.plan.data_loss import DataLossPolicy
from tiered_stream.plan.partitions import check_topic_ids

log = logging.getLogger(__name__)

ATTEMPTS = 10
"""Attempts in all; within each, the library itself looks for a free version, deltalake 15 times."""
MOST_LOG_FILES = 100
"""To look through for the query's last batch; where there are more of them, the table's state says it sooner."""
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 10.0
"""Seconds; each wait is twice as long as the one before, and up to a half shorter by chance."""
_TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"
_MOST_SHOWN = 10_000
"""Characters of offsets that an error has; beyond, it names the file that has the offsets."""

OnGap = Callable[[int | None, int], None]
"""Called with the query's last batch in the table, and the one that Spark counts as done; raises, or lets it pass."""


@dataclass(frozen=True, slots=True)
class LandingTable:
    """The table that the query was planned for; at each commit it has to be the same one."""

    files: TableFiles
    schema: StructType
    table_id: str
    why_not: Callable[[TableDescription], str | None]
    """What keeps the table from the direct lane for the committer's sake (`Committer.why_not_direct`)."""
    fail_on_data_loss: bool = True
    rules: TableRules = NO_RULES
    """By which its rows were checked."""
    grow: Grow | None = None
    """Adds the columns that files have more; None: none has."""
    compaction: Compaction | None = None
    rules_by_file: bool = False
    """Whether each file says by which rules its rows were checked."""


@dataclass(frozen=True, slots=True)
class _Last:
    """The query's newest batch in the table, in `version` or above; `files` where this process committed it."""

    version: int
    batch_id: int
    files: Sequence[DataFile] | None = None


class _LastIsGoneError(Exception):
    """The last commit, which was acknowledged, is in the log no more."""


class TableCommits:
    """The commits of one query, one at a time."""

    def __init__(
        self,
        table: CommitTable,
        planned: LandingTable,
        on_gap: OnGap,
        landed: Landed | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`landed`: what the table got last, where not each batch is a commit in it; None: the batch before."""
        self._table = table
        self._planned = planned
        self._name = f"the table {planned.files.uri}"
        self._log = TableLog(planned.files)
        self._on_gap = on_gap
        self._landed = landed
        self._sleep = sleep
        self._last: _Last | None = None
        self._topic_ids: dict[str, UUID] | None = None

    def is_committed(self, query_id: str, batch_id: int) -> bool:
        """Whether the table has the batch already; the first time, whether it has those before it.

        Raises:
            TableError: the table cannot be read, or is another one, or what `on_gap` raises.
        """
        return self._last_known(query_id, batch_id).batch_id >= batch_id

    @property
    def table_id(self) -> str:
        """Delta's id of the table, whatever name it was opened by."""
        return self._planned.table_id

    def last_batch(self, query_id: str, batch_id: int) -> int:
        """The query's newest batch in the table, -1: none. Arguments and errors as `is_committed`."""
        return self._last_known(query_id, batch_id).batch_id

    def check(self, files: Sequence[DataFile]) -> None:
        """Check that the table would take the files now; it gets the columns that they have more.

        Raises:
            TableError: it would not, as in `commit`.
        """
        self._fitting(self._begin(), files)

    def prepare(self) -> None:
        """A commit follows, once tasks have written its files: what it needs of the table can be read meanwhile."""
        self._table.prepare()

    def commit(self, query_id: str, batch_id: int, files: Sequence[DataFile]) -> int | None:
        """Make the files part of the table, unless the batch is in it.

        Returns:
            A version of the log that is not above the one with the batch; None: it was there already.

        Raises:
            TableError: the table is another one, or has changed so that the direct lane no longer fits, or the last
                commit is gone, or no attempt succeeded.
            DataLossError: a topic was made again since the query's last commit, and the policy is to fail.
        """
        last = self._last_known(query_id, batch_id)
        self._check_topics(query_id, last, files)
        try:
            return self._until_committed(last, self._batch(query_id, batch_id, files))
        except _LastIsGoneError:
            raise self._put_back(query_id, last) from None

    def _batch(self, query_id: str, batch_id: int, files: Sequence[DataFile]) -> BatchCommit:
        return BatchCommit(query_id, batch_id, files, self._planned.files.day_column, self._topic_ids or {})

    def _check_topics(self, query_id: str, last: _Last, files: Sequence[DataFile]) -> None:
        """The topics are those that the query landed before, as its last commit has their ids."""
        if self._topic_ids is None:
            version = last.version - 1
            first = max(self._landed.version if self._landed else 0, version - MOST_LOG_FILES)
            self._topic_ids = self._log.topic_ids(query_id, first, version)
        now = {topic: topic_id for file in files for topic, topic_id in file.topic_ids.items()}
        check_topic_ids(self._topic_ids, now, DataLossPolicy(self._planned.fail_on_data_loss))
        self._topic_ids |= now

    def _last_known(self, query_id: str, batch_id: int) -> _Last:
        """The query's last batch, as this process knows it; the first time, the one in the table."""
        if self._last is None:
            transaction, due = self._begin(), self._landed or Landed(batch_id - 1)
            newest = self._newest_since(due.version, query_id, transaction)
            found = -1 if newest is None else newest
            if found < due.batch and not (found == -1 and forgets(transaction)):
                self._on_gap(None if found == -1 else found, due.batch)
            self._last = _Last(transaction.state.version + 1, found)
        return self._last

    def _until_committed(self, last: _Last, batch: BatchCommit) -> int | None:
        for attempt in range(ATTEMPTS):
            transaction = self._begin()
            newest = self._newest_since(last.version, batch.query_id, transaction)
            if newest is not None and newest < last.batch_id and last.files is not None:
                raise _LastIsGoneError
            # An attempt that failed may have committed nevertheless: only its answer was lost.
            if batch.batch_id <= max(last.batch_id, -1 if newest is None else newest):
                self._last = _Last(transaction.state.version + 1, batch.batch_id)
                return None
            transaction = self._fitting(transaction, batch.files)
            try:
                self._last = _Last(transaction.commit(batch), batch.batch_id, batch.files)
                if self._planned.compaction is not None:
                    self._planned.compaction.after(transaction.state.version, self._last.version)
                return self._last.version
            except UncertainCommitError as error:
                name = f"{self._name}: batch {batch.batch_id}"
                if attempt + 1 == ATTEMPTS:
                    raise TableError(f"{name} could not be committed in {ATTEMPTS} attempts: {error}") from error
                log.warning("%s is committed again, since %s", name, error)
                self._sleep(min(_FIRST_WAIT * 2**attempt, _LONGEST_WAIT) * random.uniform(0.5, 1))
        raise AssertionError("the last attempt has returned or raised")

    def _fitting(self, transaction: DeltaTransaction, files: Sequence[DataFile]) -> DeltaTransaction:
        """A transaction on the table as it takes the files; raises TableError as `check`."""
        if self._grown(transaction.state.description, files):
            transaction = self._begin()
        self._check_fit(transaction.state.description, files)
        return transaction

    def _grown(self, found: TableDescription, files: Sequence[DataFile]) -> bool:
        """Whether the table got columns for the files, so that the transaction no longer goes with it."""
        if self._planned.grow is None:
            return False
        # By its rows' own schemas: each may have what others lack.
        schemas = _schemas(files)
        try:
            return bool(schemas) and self._planned.grow(found.fields, joined_columns(schemas))
        except UnsupportedDataError as error:
            raise TableError(f"{self._name}: {error}") from error

    def _begin(self) -> DeltaTransaction:
        transaction = self._table.begin()
        found, planned = transaction.state.description.table_id, self._planned.table_id
        if found != planned:
            raise TableError(
                f"{self._name} is another one than when the query started: its id is {found}, and was {planned}. "
                "Nothing was committed to it. Where the new one is to get all records, start the query with a new "
                "checkpoint."
            )
        return transaction

    def _newest_since(self, first: int, query_id: str, transaction: DeltaTransaction) -> int | None:
        """The query's newest batch, -1: none; None where the table may have forgotten it.

        It is in version `first` or above, if anywhere: the log's files say it sooner than the table's state.
        """
        version = transaction.state.version
        newest = self._log.newest_batch(query_id, first, version) if version - first < MOST_LOG_FILES else None
        if newest is None:
            newest = transaction.last_batch(query_id)
        if newest is None and not forgets(transaction):
            return -1
        return newest

    def _check_fit(self, found: TableDescription, files: Sequence[DataFile]) -> None:
        planned, day_column = self._planned, self._planned.files.day_column
        reason = planned.why_not(found) or why_not_direct(found, day_column, planned.schema, planned.rules)
        if planned.rules_by_file and any((file.rules or "") != rules_text(planned.rules) for file in files):
            reason = "rows were not checked by the constraints that it has, or by its columns that are NOT NULL"
        if reason:
            raise TableError(
                f"{self._name} has changed, and can no longer be written to by the direct lane: {reason}. "
                "Start the query again with lane auto or spark: it goes on where it was."
            )
        try:
            for schema in (planned.schema, *(with_day(each, day_column) for each in _schemas(files))):
                check_fit(planned.files.uri, found, schema, day_column)
        except ConfigurationError as error:
            raise TableError(f"{self._name} has changed, and what is written no longer fits: {error}") from error

    def _put_back(self, query_id: str, last: _Last) -> TableError:
        """Commit the last batch's files again, but for those that others have changed since; the error to end with."""
        files = last.files or ()
        said = (
            f"{self._name}: the commit of batch {last.batch_id}, which brought "
            f"{self._batch(query_id, last.batch_id, files).offsets()}, is no longer in the log, where it was in "
            f"version {last.version} or soon after: another writer, which does not exclude this one, has overwritten "
            "it. The documentation says which writers may share a table (ingest.commit). "
        )
        # From here on anybody may have committed it: another process, or an attempt below whose answer is lost.
        self._last = _Last(last.version, last.batch_id - 1)
        try:
            version = self._table.begin().state.version
            # Whoever had seen the commit may have compacted or deleted its files: their rows are not to come back.
            gone_on = self._log.mentioned([file.path for file in files], last.version, version)
            if gone_on is None:
                raise TableError("the log's older files, which would say what became of them, are removed already")
            left = [file for file in files if file.path not in gone_on]
            self._until_committed(self._last, self._batch(query_id, last.batch_id, left))
        except TableError as error:
            return TableError(f"{said}Its files could not be put back: {error}")
        return TableError(
            f"{said}Its files are part of the table again. Start the query again when the other writer has stopped, or "
            "commits in the same way: it goes on after that batch."
        )


def _schemas(files: Sequence[DataFile]) -> list[StructType]:
    """Those of rows that have grown."""
    texts = dict.fromkeys(file.schema for file in files if file.schema)
    return [StructType.fromJson(orjson.loads(each)) for each in texts]


def forgets(transaction: DeltaTransaction) -> bool:
    """Whether the table drops application transactions after a while."""
    return _TRANSACTION_RETENTION in transaction.state.description.configuration


def on_gap(spark: SparkSession, checkpoint: str, table: str, *, fail: bool) -> OnGap:
    """Batches are lost: fail, or say it in the log and go on, as `failOnDataLoss` wants it."""

    def found(last: int | None, done: int) -> None:
        first = 0 if last is None else last + 1
        batches = f"batch {done}" if first == done else f"batches {first} to {done}"
        start = "the query's start" if last is None else _end_offsets(spark, checkpoint, last)
        said = (
            f"the table {table} does not have {batches} of the query, which its checkpoint {checkpoint} counts as "
            f"done: offsets from {start} to {_end_offsets(spark, checkpoint, done)}. Either another writer has "
            "overwritten the commit, or this is not the table that the query has written to so far"
        )
        if fail:
            raise TableError(
                f"{said}. Land these offsets by a query of their own, then set failOnDataLoss to false for one start "
                "of this one; or give it a new checkpoint, where the table is to get all records."
            )
        log.warning("%s; going on, since failOnDataLoss is false", said)

    return found


def _end_offsets(spark: SparkSession, checkpoint: str, batch_id: int) -> str:
    end = f"the end of batch {batch_id}"
    try:
        found = SparkCheckpoint(CheckpointFolder(spark, checkpoint)).ends(batch_id)
    except TieredStreamError as error:  # What is said is an error already, which offsets only explain.
        return f"{end} ({error})"
    if found is None:  # Spark keeps those of the last hundred batches (spark.sql.streaming.minBatchesToRetain)
        return end
    offsets = " ".join(each or "-" for each in found.by_source.values())
    return offsets if len(offsets) <= _MOST_SHOWN else f"{end}, as offsets/{batch_id} has it"
