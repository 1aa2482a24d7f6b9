"""What a commit asks of a Delta transaction, whichever library makes it: delta-spark or deltalake."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

import orjson

from tiered_stream.delta.data_files import DataFile
from tiered_stream.delta.lane import TableDescription
from tiered_stream.errors import TableError
from tiered_stream.model import TopicPartition, uuid_to_text
from tiered_stream.options.offset_json import offsets_to_json

TOPIC_IDS = "topicIds"
"""Where a commit's metadata have the topics' ids."""


Lock = Callable[[], AbstractContextManager[object]]
"""Held while a version is written; it may raise `UncertainCommitError` at its end: that may be overwritten."""


class UncertainCommitError(TableError):
    """Another commit came first, or nobody knows whether this one was made: look into the log, then try again."""

    retriable = True


@dataclass(frozen=True, slots=True)
class BatchCommit:
    """A micro-batch as the table's log gets it: Delta's application transaction (query id, batch id), and the files."""

    query_id: str
    batch_id: int
    files: Sequence[DataFile]
    day_column: str | None = None
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    """Of the topics that the query has landed so far."""

    def metrics(self) -> dict[str, int]:
        """What the commit brings, by Delta's names."""
        return {
            "numOutputRows": sum(file.records for file in self.files),
            "numOutputBytes": sum(file.size for file in self.files),
        }

    def metadata(self) -> str:
        """What the commit keeps for the query and its readers, as JSON: its offsets, and the topics' ids."""
        ids = {topic: uuid_to_text(self.topic_ids[topic]) for topic in sorted(self.topic_ids)}
        told = f',"{TOPIC_IDS}":{orjson.dumps(ids).decode()}' if ids else ""
        return f"{self.offsets()[:-1]}{told}}}"

    def offsets(self) -> str:
        """The first offset of each partition in it, and the one after the last, in Spark's offset JSON."""
        starts: dict[TopicPartition, int] = {}
        ends: dict[TopicPartition, int] = {}
        for file in self.files:
            for partition, (first, last) in file.offsets.items():
                starts[partition] = min(first, starts.get(partition, first))
                ends[partition] = max(last + 1, ends.get(partition, last + 1))
        return f'{{"startOffsets":{offsets_to_json(starts)},"endOffsets":{offsets_to_json(ends)}}}'

    def partition_values(self, file: DataFile) -> Mapping[str, Any]:
        """The file's, by column."""
        return {self.day_column: file.day} if self.day_column else {}


@dataclass(frozen=True, slots=True)
class TableState:
    """The table as a transaction found it."""

    version: int
    description: TableDescription


class DeltaTransaction(Protocol):
    """One attempt, from the table's newest version: a later commit that does not go with it makes it fail."""

    state: TableState

    def last_batch(self, query_id: str) -> int | None:
        """The newest batch of the query in that version. It may take seconds: the table's whole state is read.

        Raises:
            TableError: it cannot be read.
        """
        ...

    def commit(self, batch: BatchCommit) -> int:
        """Commit; a version that is not above the one in which the batch is now, and above `state.version`.

        Raises:
            UncertainCommitError: see there.
            TableError: the table refused it, and will again.
        """
        ...


class CommitTable(Protocol):
    """A table as one of the libraries knows it."""

    def prepare(self) -> None:
        """Do beside the caller, from now on, what the next `begin` can use: it still begins from what is newest then.

        What fails does so in `begin`.
        """
        ...

    def begin(self) -> DeltaTransaction:
        """Begin a transaction. Raises: TableError: the table cannot be opened."""
        ...
