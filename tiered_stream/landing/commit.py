"""The driver's commit: all files of a micro-batch in one transaction, exactly once.

The transaction carries Delta's application transaction under the name that Spark's Delta sink gives it (Delta:
`DeltaSink`): the query's id, and the batch's id as its version. A batch that is repeated, in this lane or the other,
finds itself there.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction, Transaction

from tiered_stream.errors import TableError
from tiered_stream.landing.files import DataFile
from tiered_stream.landing.lane import why_not_direct
from tiered_stream.landing.storage import delta_storage_options
from tiered_stream.landing.table import describe, table_errors
from tiered_stream.landing.target import TableFiles
from tiered_stream.offsets import TopicPartition, offsets_to_json

log = logging.getLogger(__name__)

ATTEMPTS = 10
"""Attempts in all; within each, the library itself looks for a free version 15 times."""
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 10.0
"""Seconds; each wait is twice as long as the one before, and up to a half shorter by chance."""


class TableCommits:
    """The commits of one query, one at a time."""

    def __init__(self, files: TableFiles, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._files = files
        self._sleep = sleep

    def is_committed(self, query_id: str, batch_id: int) -> bool:
        """Whether the table has the batch already.

        Raises:
            TableError: the table cannot be read.
        """
        return _has(self._open(), query_id, batch_id)

    def commit(self, query_id: str, batch_id: int, files: Sequence[DataFile]) -> None:
        """Make the files part of the table, unless the batch is in it.

        Raises:
            TableError: the table has changed so that the direct lane no longer fits, or no attempt succeeded.
        """
        for attempt in range(ATTEMPTS):
            table = self._open()
            # An attempt that failed may have committed nevertheless: only its answer was lost.
            if _has(table, query_id, batch_id):
                return
            try:
                self._commit(table, query_id, batch_id, files)
                return
            except (CommitFailedError, OSError) as error:
                if attempt + 1 == ATTEMPTS:
                    raise TableError(
                        f"the table {self._files.uri}: batch {batch_id} could not be committed in {ATTEMPTS} attempts: "
                        f"{error}"
                    ) from error
                log.warning("%s: batch %d is committed again, since %s", self._files.uri, batch_id, error)
                self._sleep(min(_FIRST_WAIT * 2**attempt, _LONGEST_WAIT) * random.uniform(0.5, 1))
            except DeltaError as error:
                raise TableError(f"the table {self._files.uri} refused batch {batch_id}: {error}") from error

    def _open(self) -> DeltaTable:
        with table_errors(self._files.uri, "opened"):
            return DeltaTable(self._files.uri, storage_options=delta_storage_options(self._files.storage))

    def _commit(self, table: DeltaTable, query_id: str, batch_id: int, files: Sequence[DataFile]) -> None:
        reason = why_not_direct(describe(table), self._files.day_column)
        if reason:
            raise TableError(
                f"the table {self._files.uri} has changed, and can no longer be written to by the direct lane: "
                f"{reason}. Start the query again with lane auto or spark: it goes on where it was."
            )
        moment = time.time_ns() // 1_000_000
        properties = CommitProperties(
            app_transactions=[Transaction(query_id, batch_id, moment)],
            custom_metadata=_commit_info(table.version(), query_id, batch_id, files),
        )
        actions: list[AddAction | RemoveAction] = [_add(file, self._files.day_column) for file in files]
        partition_by = [self._files.day_column] if self._files.day_column else None
        table.create_write_transaction(actions, "append", table.schema(), partition_by, commit_properties=properties)


def _has(table: DeltaTable, query_id: str, batch_id: int) -> bool:
    version = table.transaction_version(query_id)
    return version is not None and version >= batch_id


def _add(file: DataFile, day_column: str | None) -> AddAction:
    values = {day_column: file.day} if day_column else {}
    return AddAction(file.path, file.size, values, file.modification_time, data_change=True, stats=file.stats)


def _commit_info(version: int, query_id: str, batch_id: int, files: Sequence[DataFile]) -> dict[str, Any]:
    """What `DESCRIBE HISTORY` shows; `isBlindAppend` tells others that a commit of ours is no conflict to them."""
    metrics = {
        "numFiles": len(files),
        "numOutputRows": sum(file.records for file in files),
        "numOutputBytes": sum(file.size for file in files),
    }
    return {
        "operationParameters": {"mode": "Append", "queryId": query_id, "epochId": str(batch_id)},
        "operationMetrics": {name: str(value) for name, value in metrics.items()},
        "userMetadata": offsets_metadata(files),
        "readVersion": version,
        "isolationLevel": "WriteSerializable",
        "isBlindAppend": True,
    }


def offsets_metadata(files: Sequence[DataFile]) -> str:
    """The first offset of each partition that was written, and the one after the last, in Spark's offset JSON."""
    starts: dict[TopicPartition, int] = {}
    ends: dict[TopicPartition, int] = {}
    for file in files:
        for partition, (first, last) in file.offsets.items():
            starts[partition] = min(first, starts.get(partition, first))
            ends[partition] = max(last + 1, ends.get(partition, last + 1))
    return f'{{"startOffsets":{offsets_to_json(starts)},"endOffsets":{offsets_to_json(ends)}}}'
