"""Interface of Delta transactions, independent of the library that commits: delta-spark or deltalake."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

import orjson

from tiered_stream.delta.requirements.lane import TableDescription
from tiered_stream.delta.write.data_files import DataFile, offset_ranges
from tiered_stream.errors import TableError
from tiered_stream.model import PartitionRanges, uuid_to_text
from tiered_stream.options.offset_json import offsets_to_json
from tiered_stream.options.offset_ranges import ends_of

TOPIC_IDS = "topicIds"
"""Key of the topic ids in the JSON of a commit's user metadata."""


Lock = Callable[[], AbstractContextManager[object]]
"""Function that returns a lock on a table's log; a writer holds the lock in a `with` block while it writes a version.

At the end of the block, the lock raises `UncertainCommitError` if another writer may have overwritten the version.
"""


class UncertainCommitError(TableError):
    """Error of a commit that failed because another commit came first, or whose result is unknown.

    The caller must look for the commit in the table's log before it tries again.
    """

    retriable = True


class CatalogManagedError(TableError):
    """Error for a table whose commits go through a catalog, so that the files in its log folder can lack commits.

    `feature` is the name of the table feature by which the catalog manages the table.
    """

    def __init__(self, uri: str, feature: str) -> None:
        super().__init__(
            f"the table {uri} has the feature {feature}: its commits go through a catalog, which deltalake does not ask"
        )


def commit_metadata(ranges: PartitionRanges, topic_ids: Mapping[str, UUID]) -> str:
    """Return the user metadata of a commit that lands these offset ranges, as JSON.

    The keys are `startOffsets` (inclusive) and `endOffsets` (exclusive), whose values have the form of Spark's offset
    JSON. If `topic_ids`, a mapping by topic, is not empty, there is also the key `topicIds`.
    """
    starts = {partition: offsets.start for partition, offsets in ranges.items()}
    ids = {topic: uuid_to_text(topic_ids[topic]) for topic in sorted(topic_ids)}
    ids_text = f',"{TOPIC_IDS}":{orjson.dumps(ids).decode()}' if ids else ""
    return f'{{"startOffsets":{offsets_to_json(starts)},"endOffsets":{offsets_to_json(ends_of(ranges))}{ids_text}}}'


@dataclass(frozen=True, slots=True)
class BatchCommit:
    """Micro-batch to commit to a table: its data files, and the query id and batch id of its application transaction.

    `day_column` is the table's partition column; None: the table is not partitioned.
    """

    query_id: str
    batch_id: int
    files: Sequence[DataFile]
    day_column: str | None = None
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    """Ids, by topic, of the topics that this batch and the query's earlier batches have written to the table."""

    def metrics(self) -> dict[str, int]:
        """Return the numbers of rows and bytes in the batch's files, by the names of Delta's operation metrics."""
        return {
            "numOutputRows": sum(file.records for file in self.files),
            "numOutputBytes": sum(file.size for file in self.files),
        }

    def metadata(self) -> str:
        """Return the commit's user metadata as JSON: the batch's start and end offsets, and the topic ids."""
        return commit_metadata(offset_ranges(self.files), self.topic_ids)

    def partition_values(self, file: DataFile) -> Mapping[str, Any]:
        """Return a mapping from the day column to the day of `file`; the mapping is empty without a day column."""
        return {self.day_column: file.day} if self.day_column else {}


@dataclass(frozen=True, slots=True)
class TableState:
    """State of a table on which a transaction is based: a version of the table, and the description in that version."""

    version: int
    description: TableDescription


class DeltaTransaction(Protocol):
    """One attempt to commit to a table, based on the table's newest version when the transaction began.

    The attempt fails if a conflicting commit comes first.
    """

    state: TableState

    def last_batch(self, query_id: str) -> int | None:
        """Return the id of the query's newest batch in `state.version` of the table, or None if there is none.

        This may take seconds, because it reads the table's whole state.

        Raises:
            TableError: the table's state cannot be read.
        """

    def commit(self, batch: BatchCommit) -> int:
        """Commit the batch: its application transaction, and its files as added files.

        Returns:
            A version above `state.version`; the batch is in this version of the table or in a later one.

        Raises:
            UncertainCommitError: another commit came first, or the result is unknown.
            TableError: the table refused the commit, and would refuse it again.
        """


class CommitTable(Protocol):
    """Table opened by delta-spark or deltalake, in which transactions can begin."""

    def prepare(self) -> None:
        """Start to read the table's state in the background, so that the next `begin` is faster.

        The transaction of the next `begin` is still based on the newest version at the time of that call. Errors of the
        background read are not raised here.
        """

    def begin(self) -> DeltaTransaction:
        """Begin a transaction on the table's newest version. Raise TableError if the table cannot be opened."""
