"""State of a query that writes many tables, kept in the checkpoint: each table's newest batch, and the parked tables.

The state shows if a commit is missing in a table. The table's log alone does not show it, because a table without rows
in a batch gets no commit. A parked table is one that could not be written; the state has the offset ranges of the rows
that it lacks.

The file `tables/N` in the checkpoint has the state after batch N, and is written before Spark commits batch N in the
checkpoint. If Spark repeats batch N, the batch begins with the state before batch N.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import orjson

from tiered_stream.delta.checkpoint.spark_checkpoint import ReadableFolder, SparkCheckpoint, batch_ids
from tiered_stream.delta.settings.ingest_settings import ON_TABLE_ERROR, PARK
from tiered_stream.errors import ConfigurationError, CorruptDataError
from tiered_stream.model import OffsetRange, PartitionRanges, TopicPartition, is_topic_name
from tiered_stream.options.offset_ranges import extend_ranges

FOLDER = "tables"
_VERSION = 1
_FILES_KEPT = 2
"""Number of files `tables/N` that are kept in the checkpoint: the newest file, and the file before it.

If Spark repeats the batch of the newest file, the batch begins with the state in the file before.
"""


@dataclass(frozen=True, slots=True)
class Landed:
    """Newest micro-batch that a query has committed to a table.

    `batch` is the micro-batch's id, or -1 if the table has no micro-batch of the query. The micro-batch's commit is in
    `version` of the table's log, or in a later version.
    """

    batch: int = -1
    version: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """Offset ranges (`ranges`) that hold every row that a table lacks up to the micro-batch `batch`.

    The ranges hold no row that the table already has.
    """

    batch: int
    ranges: PartitionRanges

    def joined(self, later: Held) -> Held:
        """Return offset ranges that cover the ranges of `self` and of `later`, with one range for each partition.

        `later` belongs to later batches, and the result has the batch id of `later`. The offsets between the two ranges
        of a partition hold no rows for the table.
        """
        ranges = dict(self.ranges)
        extend_ranges(ranges, later.ranges)
        return Held(later.batch, ranges)


@dataclass(frozen=True, slots=True)
class Parked:
    """Table that could not be written: its name, as the user wrote it, the reason, and the offset ranges that it lacks.

    `tried` has the offset ranges of the batch that could not be written. Their rows may be in the table nevertheless,
    because the response to a commit can be lost. `since` has the offset ranges of later batches, for which no commit
    was attempted; None: there are no later batches.
    """

    name: str
    reason: str
    tried: Held
    since: Held | None = None

    def holding(self, later: Held) -> Parked:
        """Return a copy of this object with the offset ranges of `later`, a later batch, added to `since`."""
        return replace(self, since=later if self.since is None else self.since.joined(later))

    @property
    def newest(self) -> Held:
        """The missing offset ranges with the newest batch id: `since`, or `tried` if `since` is None."""
        return self.since or self.tried

    @property
    def lacks(self) -> PartitionRanges:
        """All offset ranges that the table lacks, or may lack, by partition."""
        return self.tried.joined(self.newest).ranges


@dataclass(frozen=True, slots=True)
class QueryTables:
    """State of a query's tables: the newest micro-batch in each table (`landed`), and the parked tables (`parked`).

    A parked table is one that could not be written; its `Parked` object has the offset ranges that it lacks. Both
    mappings are by table key (`TableSpec.key`).
    """

    landed: Mapping[str, Landed] = field(default_factory=dict)
    parked: Mapping[str, Parked] = field(default_factory=dict)

    def with_landed(self, landed: Mapping[str, Landed]) -> QueryTables:
        return replace(self, landed={**self.landed, **landed})

    def to_json(self) -> bytes:
        tables = {key: [landed.batch, landed.version] for key, landed in self.landed.items()}
        parked = {key: _parked_to_json(table) for key, table in self.parked.items()}
        values = {"version": _VERSION, "tables": tables, **({"parked": parked} if parked else {})}
        return orjson.dumps(values, option=orjson.OPT_SORT_KEYS)


def query_tables_of(text: bytes) -> QueryTables:
    """Return the state that `QueryTables.to_json` has written as the JSON `text`.

    Raises:
        CorruptDataError: the text does not have this form.
    """
    try:
        values = orjson.loads(text)
        if values["version"] != _VERSION:
            raise ValueError(f"its version is {values['version']!r:.20}; known here is {_VERSION}")
        landed = {
            key: Landed(_whole_number(batch, -1), _whole_number(version))
            for key, (batch, version) in values["tables"].items()
        }
        return QueryTables(landed, {key: _parked_from_json(table) for key, table in values.get("parked", {}).items()})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptDataError(f"it does not say which batches tables have: {error!r:.200}") from error


def _parked_to_json(parked: Parked) -> dict[str, Any]:
    held = [parked.tried, *([parked.since] if parked.since else [])]
    batches = [{"batch": batch.batch, "offsets": _by_topic(batch.ranges)} for batch in held]
    return {"name": parked.name, "reason": parked.reason, "held": batches}


def _by_topic(ranges: PartitionRanges) -> dict[str, list[tuple[int, int, int]]]:
    ranges_by_topic: dict[str, list[tuple[int, int, int]]] = {}
    for partition, offsets in sorted(ranges.items()):
        ranges_by_topic.setdefault(partition.topic, []).append((partition.partition, offsets.start, offsets.end))
    return ranges_by_topic


def _parked_from_json(values: Mapping[str, Any]) -> Parked:
    if not isinstance(values["name"], str) or not isinstance(values["reason"], str):
        raise TypeError("a parked table has no name, or no reason")
    tried, *since = map(_held_from_json, values["held"])
    if len(since) > 1 or (since and since[0].batch <= tried.batch):
        raise ValueError("the batches of a parked table are not in order")
    return Parked(values["name"], values["reason"], tried, *since)


def _held_from_json(values: Mapping[str, Any]) -> Held:
    ranges = {
        TopicPartition(topic, _whole_number(partition)): OffsetRange(_whole_number(start), _whole_number(end))
        for topic, of_topic in values["offsets"].items()
        for partition, start, end in of_topic
    }
    if not all(is_topic_name(topic) for topic in values["offsets"]):
        raise ValueError("a parked table has rows of a topic whose name Kafka does not allow")
    if not ranges or not all(map(len, ranges.values())):
        raise ValueError("nothing is held for a parked table")
    return Held(_whole_number(values["batch"]), ranges)


def _whole_number(number: object, minimum: int = 0) -> int:
    if type(number) is not int or number < minimum:
        raise ValueError(f"{number!r:.80} is no number from {minimum}")
    return number


class Folder(ReadableFolder, Protocol):
    """Folder of a checkpoint that can be read and written (implemented by `checkpoint_folder.CheckpointFolder`)."""

    def write(self, name: str, text: bytes, *, replace: bool = False) -> None:
        """Write `text` to the file `name` atomically; an existing file is kept unless `replace` is true."""

    def delete(self, name: str) -> None:
        """Delete the file `name`; a missing file is no error."""


class QueryTablesLog:
    """Reader and writer of the files `tables/N` in a checkpoint, for one run of a query.

    `folder` is the checkpoint's folder. All methods also raise the errors that `folder` raises.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._known: tuple[int, QueryTables] | None = None
        self._batches: list[int] | None = None
        """Batch ids of all files, ascending; None: not listed yet."""

    def before(self, batch_id: int) -> QueryTables:
        """Return the state of the query's tables before the micro-batch `batch_id`.

        The state is read from the file of the newest earlier micro-batch that has one. If there is none, the state is
        empty.

        Raises:
            CorruptDataError: the file is damaged.
        """
        newest = next((batch for batch in reversed(self._listed()) if batch < batch_id), -1)
        if self._known is None or self._known[0] != newest:
            self._known = newest, QueryTables() if newest < 0 else self._read(newest)
        return self._known[1]

    def after(self, batch_id: int, tables: QueryTables) -> None:
        """Write `tables` as the state after the micro-batch `batch_id`, and delete old files.

        The newest `_FILES_KEPT` files up to `batch_id` are kept. If the state is the same as before the micro-batch,
        nothing is written or deleted. But if an earlier attempt at the micro-batch has written a file, the file is
        replaced.
        """
        if self.before(batch_id) == tables and batch_id not in self._listed():
            return
        self._folder.write(f"{FOLDER}/{batch_id}", tables.to_json(), replace=True)
        self._known = batch_id, tables
        listed = sorted({*self._listed(), batch_id})
        # There may be a file with a higher number, of a batch that was begun and will be repeated.
        old = [batch for batch in listed if batch <= batch_id][:-_FILES_KEPT]
        for batch in old:
            self._folder.delete(f"{FOLDER}/{batch}")
        self._batches = [batch for batch in listed if batch not in old]

    def last_done(self) -> int:
        """Return the id of the last micro-batch that Spark has committed in the checkpoint, or -1 if there is none."""
        last = SparkCheckpoint(self._folder).last_committed()
        return -1 if last is None else last

    def refuse_parked(self) -> None:
        """Raise ConfigurationError if an earlier run of the query has parked a table.

        Call this method for a query that does not commit the rows that parked tables lack.
        """
        parked = next(iter(self.before(self.last_done() + 1).parked.values()), None)
        if parked is not None:
            raise ConfigurationError(
                f"the table {parked.name} is parked, and this query would never add the rows that it lacks: "
                f"{parked.reason}. Start the query in the direct lane with {ON_TABLE_ERROR.name}={PARK} until the "
                "table has these rows"
            )

    def _listed(self) -> list[int]:
        if self._batches is None:
            self._batches = batch_ids(self._folder.entries(FOLDER))
        return self._batches

    def _read(self, batch_id: int) -> QueryTables:
        name = f"{FOLDER}/{batch_id}"
        try:
            return query_tables_of(self._folder.read(name) or b"")
        except CorruptDataError as error:
            raise CorruptDataError(
                f"the file {name} in the checkpoint {self._folder.folder} is damaged ({error}): bring it back, or give "
                "the query a new checkpoint, and new tables"
            ) from error
