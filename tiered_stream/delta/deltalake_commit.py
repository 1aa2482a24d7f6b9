"""Commits by the `deltalake` library: no JVM takes part.

It excludes itself everywhere: in S3 by conditional puts, or by its DynamoDB lock where that is set up; in a local
folder by hard links. delta-spark does not exclude it: in S3 its log store looks and then overwrites, in a local folder
it looks and then renames. There, within one application, delta-spark's own lock keeps them apart.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction, Transaction

from tiered_stream.delta.deltalake_table import describe, table_errors
from tiered_stream.delta.file_systems import delta_storage_options
from tiered_stream.delta.ingest_settings import TableFiles
from tiered_stream.delta.transaction import BatchCommit, TableState, UncertainCommitError
from tiered_stream.errors import TableError

log = logging.getLogger(__name__)

CHECKPOINT_INTERVAL = "delta.checkpointInterval"
DEFAULT_CHECKPOINT_INTERVAL = 10
"""Delta's (`DeltaConfigs.CHECKPOINT_INTERVAL`); the library's own is 100."""
_LOG_CLEANUP = "delta.enableExpiredLogCleanup"

Lock = Callable[[], AbstractContextManager[object]]
Checkpoint = Callable[[DeltaTable, TableState], None]


class DeltalakeTable:
    """A table in a local folder or in S3; `lock` is held while a version is written."""

    def __init__(self, files: TableFiles, lock: Lock = nullcontext) -> None:
        self._files = files
        self._lock = lock
        self._looked_at: int | None = None

    def begin(self) -> DeltalakeTransaction:
        with table_errors(self._files.uri, "opened"):
            table = DeltaTable(self._files.uri, storage_options=delta_storage_options(self._files.storage))
            return DeltalakeTransaction(table, self._files.uri, self._lock, self._checkpoint)

    def _checkpoint(self, table: DeltaTable, state: TableState) -> None:
        """Write a checkpoint where the table's interval asks for one; without it, the table is only slower to open."""
        configuration = state.description.configuration or {}
        interval = int(configuration.get(CHECKPOINT_INTERVAL, DEFAULT_CHECKPOINT_INTERVAL))
        # Others may have come first, and the commit lie above: then the next one sees that the interval has passed.
        before, self._looked_at = self._looked_at or state.version, state.version + 1
        if before // interval == self._looked_at // interval:
            return
        try:
            table.update_incremental()
            table.create_checkpoint()
            if configuration.get(_LOG_CLEANUP, "true").lower() == "true":
                table.cleanup_metadata()
        except (DeltaError, OSError) as error:
            log.warning("the table %s: no checkpoint at version %d: %s", self._files.uri, self._looked_at, error)


class DeltalakeTransaction:
    """See `transaction.DeltaTransaction`."""

    def __init__(self, table: DeltaTable, uri: str, lock: Lock, checkpoint: Checkpoint) -> None:
        self._table = table
        self._uri = uri
        self._lock = lock
        self._checkpoint = checkpoint
        self._state = TableState(table.version(), describe(table))

    @property
    def state(self) -> TableState:
        return self._state

    def last_batch(self, query_id: str) -> int | None:
        with table_errors(self._uri, "read"):
            version: int | None = self._table.transaction_version(query_id)
            return version

    def commit(self, batch: BatchCommit) -> int:
        moment = time.time_ns() // 1_000_000
        properties = CommitProperties(
            app_transactions=[Transaction(batch.query_id, batch.batch_id, moment)],
            custom_metadata=_commit_info(self._state.version, batch),
        )
        actions: list[AddAction | RemoveAction] = [
            AddAction(
                file.path, file.size, batch.partition_values(file), file.modification_time,
                data_change=True, stats=file.stats,
            )
            for file in batch.files
        ]  # fmt: skip
        try:
            with self._lock():
                self._table.create_write_transaction(
                    actions,
                    "append",
                    self._table.schema(),
                    [batch.day_column] if batch.day_column else None,
                    commit_properties=properties,
                    post_commithook_properties=PostCommitHookProperties(create_checkpoint=False),
                )
        except (CommitFailedError, OSError) as error:
            raise UncertainCommitError(str(error)) from error
        except DeltaError as error:
            raise TableError(f"the table {self._uri} refused batch {batch.batch_id}: {error}") from error
        self._checkpoint(self._table, self._state)
        return self._state.version + 1


def _commit_info(version: int, batch: BatchCommit) -> dict[str, Any]:
    """What `DESCRIBE HISTORY` shows; `isBlindAppend` tells others that a commit of ours is no conflict to them."""
    metrics = {"numFiles": len(batch.files), **batch.metrics()}
    return {
        "operationParameters": {"mode": "Append", "queryId": batch.query_id, "epochId": str(batch.batch_id)},
        "operationMetrics": {name: str(value) for name, value in metrics.items()},
        "userMetadata": batch.offsets(),
        "readVersion": version,
        "isolationLevel": "WriteSerializable",
        "isBlindAppend": True,
    }
