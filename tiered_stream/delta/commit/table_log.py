"""Search of a table's log for commits of streaming queries, and for the Kafka offsets in the commits' metadata.

`TableLog` reads single commit files (Delta protocol: "Delta Log Entries"), and builds no table state.
"""

from __future__ import annotations

import hashlib
import io
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson
from pyarrow import NativeFile
from pyarrow.fs import FileSelector
from pyspark.sql import SparkSession

from tiered_stream.delta.commit.transaction import TOPIC_IDS
from tiered_stream.delta.settings.ingest_settings import CREATION, LAND, ON_LANDED_OFFSETS, TableSpec
from tiered_stream.delta.write.file_systems import open_folder
from tiered_stream.errors import ConfigurationError, TableError, some_of
from tiered_stream.model import OffsetRange, PartitionRanges, TopicPartition, uuid_from_text
from tiered_stream.observe.landed_rows import ChangedKeys
from tiered_stream.options.offset_json import offsets_from_dict, offsets_to_json
from tiered_stream.options.offset_ranges import ends_of, extend_ranges
from tiered_stream.options.positions import show_time

log = logging.getLogger(__name__)

_BUFFER_BYTES = 1 << 20
_COMMIT_FILE = re.compile(r"(\d{20})\.json")
_MAX_PROTOCOL_FILES = 100
_MAX_COMMIT_FILES = 100
_MAX_CREATION_COMMITS = 20
_MAX_LATER = 10
"""Maximum number of versions to search for a commit, whose version is higher if other writers committed before it."""


@dataclass(frozen=True, slots=True)
class QueryCommit:
    """A streaming query's commit in a table's log: the query's id, the time in ms since 1970, and the user metadata."""

    query_id: str
    at_ms: int
    metadata: str


class TableLog:
    """Reader of the commit files in a table's log, without Spark.

    A version's file can be missing, because Delta removes old versions (`delta.logRetentionDuration`). All methods
    raise TableError if a file cannot be read.
    """

    def __init__(self, spec: TableSpec) -> None:
        self._spec = spec

    def newest_batch(self, query_id: str, first: int, last: int) -> int | None:
        """Return the id of the query's newest batch in the versions from `first` to `last`, both inclusive.

        The result is -1 if these versions have no batch of the query, and None if the file of one of these versions is
        missing.

        Raises:
            TableError: a file cannot be read, or is malformed.
        """
        try:
            transactions = (txn for version in range(first, last + 1) for _, txn in self._commit(version, "txn"))
            return max((_batch(txn) for txn in transactions if txn.get("appId") == query_id), default=-1)
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise TableError(f"the table {self._spec.uri}: {error}") from error

    def topic_ids(self, query_id: str, first: int, last: int) -> dict[str, UUID]:
        """Return the topic ids, by topic, in the query's newest commit that has topic ids.

        The versions from `last` down to `first` are searched, at most `_MAX_COMMIT_FILES` versions. The mapping is
        empty if none of these versions is a commit of the query with topic ids.

        Raises:
            TableError: a file cannot be read, or is malformed.
        """
        commits = (commit for commit in self.newest_commits(last, first) if commit.query_id == query_id)
        return next(filter(None, (committed_topic_ids(commit.metadata) for commit in commits)), {})

    def is_unused(self) -> bool:
        """Return whether the log has only commits by which this package created the table, so that it has no rows."""
        for version in range(_MAX_CREATION_COMMITS):
            try:
                actions = list(self._commit(version, "add", "txn", "commitInfo"))
            except FileNotFoundError:
                return version > 0
            if [(kind, action.get("userMetadata")) for kind, action in actions] != [("commitInfo", CREATION)]:
                return False
        return False

    def newest_commits(self, last: int, first: int = 0) -> Iterator[QueryCommit]:
        """Yield the commits of queries from version `last` down to `first`, in at most `_MAX_COMMIT_FILES` versions.

        The first version whose file is missing ends the search. A commit without application transaction, or one whose
        fields are malformed, is left out.
        """
        for version in range(last, max(first - 1, last - _MAX_COMMIT_FILES), -1):
            actions: dict[str, dict[str, Any]] = {}
            try:
                for kind, action in self._commit(version, "txn", "commitInfo"):
                    actions.setdefault(kind, action)
            except FileNotFoundError:  # this version is removed, and so are all earlier ones
                return
            query_id, info = actions.get("txn", {}).get("appId"), actions.get("commitInfo", {})
            at_ms, metadata = info.get("timestamp"), info.get("userMetadata")
            if type(at_ms) is int and isinstance(metadata, str) and isinstance(query_id, str):
                yield QueryCommit(query_id, at_ms, metadata)

    def commits_before_first(self, query_id: str, last: int) -> list[QueryCommit] | None:
        """Return the newest commits of streaming queries up to version `last`, newest first.

        If one of these commits belongs to the query `query_id` and names offsets, return None.
        """
        commits = []
        for commit in self.newest_commits(last):
            if commit.query_id == query_id and committed_ranges(commit.metadata):
                return None
            commits.append(commit)
        return commits

    def changed_keys(self, query_id: str, batch_id: int, first: int) -> ChangedKeys | None:
        """Return how many keys the MERGE of a query's batch has inserted, updated and deleted.

        The batch's commit is searched in `_MAX_LATER` versions, from `first` on. The result is None if the commit is
        not in these versions, or does not have the numbers.
        """
        for version in range(first, first + _MAX_LATER):
            try:
                actions = dict(self._commit(version, "txn", "commitInfo"))
            except FileNotFoundError:
                return None
            txn, metrics = actions.get("txn", {}), actions.get("commitInfo", {}).get("operationMetrics")
            if (txn.get("appId"), txn.get("version")) == (query_id, batch_id) and isinstance(metrics, dict):
                return _changed_keys(metrics)
        return None

    def features(self) -> frozenset[str]:
        """Return the features of readers and writers in the log's newest protocol.

        The newest `_MAX_PROTOCOL_FILES` commit files are searched. The result is empty if none of these files has a
        protocol.
        """
        try:
            for version in self._newest_versions():
                for _, protocol in self._commit(version, "protocol"):
                    return frozenset((*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())))
        except OSError as error:
            raise TableError(f"the table {self._spec.uri}: its log cannot be read: {error}") from error
        return frozenset()

    def _newest_versions(self) -> list[int]:
        """Return the versions of the newest `_MAX_PROTOCOL_FILES` commit files, newest first."""
        folder = open_folder(self._spec.uri, self._spec.storage)
        names = (file.base_name for file in folder.get_file_info(FileSelector("_delta_log")))
        versions = (int(match[1]) for name in names if (match := _COMMIT_FILE.fullmatch(name)))
        return sorted(versions, reverse=True)[:_MAX_PROTOCOL_FILES]

    def digest(self, version: int) -> bytes | None:
        """Return the SHA-256 digest (32 bytes) of the commit file of `version`, or None if there is no such file.

        If the digest has changed since an earlier call, another writer has overwritten the file.
        """
        try:
            with self._stream(version) as stream:
                return hashlib.file_digest(io.BufferedReader(stream, _BUFFER_BYTES), "sha256").digest()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(version, error) from error

    def _commit(self, version: int, *kinds: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the kind and the fields of each action in the commit file of `version`, if its kind is in `kinds`.

        A kind is a name from Delta's protocol, such as `txn`. Only lines that contain a kind's name are parsed.

        Raises:
            FileNotFoundError: there is no commit file of this version.
            TableError: the file cannot be read, or is malformed.
        """
        try:
            with self._stream(version) as stream:
                for line in io.BufferedReader(stream, _BUFFER_BYTES):
                    for kind in kinds:
                        if f'"{kind}"'.encode() in line and (action := _action(orjson.loads(line), kind)) is not None:
                            yield kind, action
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            raise self._unreadable(version, error) from error

    def _stream(self, version: int) -> NativeFile:
        folder = open_folder(self._spec.uri, self._spec.storage)
        return folder.open_input_stream(f"_delta_log/{version:020d}.json")

    def _unreadable(self, version: int, error: Exception) -> TableError:
        return TableError(f"the table {self._spec.uri}: version {version} of its log cannot be read: {error}")


def _action(line: object, kind: str) -> dict[str, Any] | None:
    """Return the fields of the action in a parsed line of the log, or None if the action is not of the kind `kind`.

    Raises:
        ValueError: the line or the action is no JSON object.
    """
    if not isinstance(line, dict):
        raise ValueError(f"{line!r:.80} is no action")
    action = line.get(kind)
    if action is not None and not isinstance(action, dict):
        raise ValueError(f"{action!r:.80} is no {kind}")
    return action


def committed_topic_ids(metadata: str) -> dict[str, UUID]:
    """Return the Kafka topic ids in a commit's user metadata, by topic.

    The mapping is empty if the metadata has no topic ids or has them in another form, such as the metadata of another
    writer.
    """
    try:
        return {topic: uuid_from_text(text) for topic, text in orjson.loads(metadata)[TOPIC_IDS].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _changed_keys(metrics: Mapping[str, Any]) -> ChangedKeys | None:
    """Return the numbers of changed keys from the operation metrics of a MERGE, or None if a number is missing.

    delta-spark writes the numbers as texts, and deltalake writes the names of the metrics in snake case.
    """
    known = {name.replace("_", "").lower(): str(value) for name, value in metrics.items()}
    texts = [known.get(f"numtargetrows{done}", "") for done in ("inserted", "updated", "deleted")]
    return ChangedKeys(*map(int, texts)) if all(text.isdecimal() for text in texts) else None


def _batch(txn: dict[str, Any]) -> int:
    version = txn.get("version")
    if type(version) is not int:
        raise ValueError(f"{version!r:.80} is no version of the application transaction {txn['appId']}")
    return version


# Offsets that a table has, as its commits name them.


@dataclass(frozen=True, slots=True)
class LandedOffsets:
    """Offsets that the commits of a table name in their user metadata.

    `ranges` has, by partition, one range that covers all these offsets. `is_complete` is False if the table's history
    no longer has the first version, so that earlier commits are unknown.
    """

    ranges: Mapping[TopicPartition, OffsetRange]
    is_complete: bool


def landed_offsets(spark: SparkSession, table: str, version: int | None = None) -> LandedOffsets:
    """Return the offsets that the commits of a Delta table name in their user metadata.

    Args:
        spark: the session.
        table: the table's name as SQL text.
        version: last version whose commit counts; None: the newest one.

    Raises:
        PySparkException: Spark cannot read the table's history.
    """
    ranges: dict[TopicPartition, OffsetRange] = {}
    first: int | None = None
    for row in spark.sql(f"DESCRIBE HISTORY {table}").select("version", "userMetadata").toLocalIterator():
        if version is not None and row["version"] > version:
            continue
        first = row["version"] if first is None else min(first, row["version"])
        extend_ranges(ranges, committed_ranges(row["userMetadata"]))
    return LandedOffsets(ranges, first == 0)


def committed_ranges(metadata: str | None) -> dict[TopicPartition, OffsetRange]:
    """Return the offset ranges in a commit's user metadata, by partition.

    The mapping is empty if the metadata has another form, such as the metadata of another writer.
    """
    try:
        values = orjson.loads(metadata or "")
        starts, ends = offsets_from_dict(values["startOffsets"]), offsets_from_dict(values["endOffsets"])
        return {partition: OffsetRange(start, ends[partition]) for partition, start in starts.items()}
    except (ValueError, KeyError, TypeError, ConfigurationError):
        return {}


# Check that no other query has landed a new query's first records in the same table: a lost checkpoint.


@dataclass(frozen=True, slots=True)
class LandedBefore:
    """Texts about offsets that a query is about to land in a table, and that other queries have landed there already.

    `text` is a sentence that names the offsets and the other queries. `advice` says how to continue.
    """

    text: str
    advice: str


def refuse_landed_before(found: LandedBefore | None, *, fail: bool) -> None:
    """Raise an error, or log a warning, if another query has landed offsets of a query's first batch.

    Args:
        found: result of `landed_before`. If it is None, nothing is done.
        fail: true to raise the error, false to log the warning.

    Raises:
        TableError: another query has landed offsets of the batch. The message says how to continue.
    """
    if found is not None and fail:
        raise TableError(f"{found.text}. A query without its checkpoint begins again. {found.advice}")
    if found is not None:
        log.warning("%s. This query lands them again", found.text)


def landed_before(
    commits: Iterable[QueryCommit],
    name: str,
    query_id: str | None,
    wanted: PartitionRanges,
    topic_ids: Mapping[str, UUID],
) -> LandedBefore | None:
    """Search commits of a table for offsets that a query is about to land, and that another query has landed already.

    Args:
        commits: newest commits in the table's log (`TableLog.newest_commits`).
        name: name of the table, for the text.
        query_id: id of the query that is about to land offsets; None: the query has no id yet.
        wanted: offset ranges that the query is about to land, by partition.
        topic_ids: ids of the topics, as far as they are known. Topics with other ids in a commit do not count.

    Returns:
        Texts about the other queries that have landed offsets in `wanted`. None: no other query has landed any of
            `wanted`.
    """
    others = [
        (commit, ranges)
        for commit in commits
        if commit.query_id != query_id and (ranges := _of_same_topics(commit.metadata, topic_ids))
    ]
    queries = {commit.query_id for commit, ranges in others if _in_both(wanted, ranges)}
    if not queries:
        return None
    times = [commit.at_ms for commit, _ in others if commit.query_id in queries]
    landed: dict[TopicPartition, OffsetRange] = {}
    for commit, ranges in others:
        if commit.query_id in queries:
            extend_ranges(landed, ranges)
    text = (
        f"{name} has offsets of this query's first records already: {_shown(_in_both(wanted, landed))}. The query "
        f"{' and '.join(sorted(queries))} landed them, between {show_time(min(times))} and {show_time(max(times))}"
    )
    advice = (
        "Go on with the old checkpoint. If it is lost, go on at the table's end with "
        f"startingOffsets={offsets_to_json(ends_of(landed))} and a checkpoint folder that does not exist: delete the "
        "folder of a refused start, which holds the plan of its first micro-batch, or name another folder. To fill a "
        f"gap, use tiered-stream replay. To land these records again, set {ON_LANDED_OFFSETS.name}={LAND}"
    )
    return LandedBefore(text, advice)


def _of_same_topics(metadata: str, topic_ids: Mapping[str, UUID]) -> PartitionRanges:
    """Return the offset ranges in a commit's user metadata, without topics that have another id in `topic_ids`."""
    ids = committed_topic_ids(metadata)
    return {
        partition: offsets
        for partition, offsets in committed_ranges(metadata).items()
        if ids.get(partition.topic) in (None, topic_ids.get(partition.topic, ids.get(partition.topic)))
    }


def _in_both(wanted: PartitionRanges, landed: PartitionRanges) -> dict[TopicPartition, OffsetRange]:
    """Return, by partition, the offsets that are in both `wanted` and `landed`; leave out partitions without any."""
    both = {partition: wanted[partition].intersect(landed[partition]) for partition in wanted.keys() & landed.keys()}
    return {partition: offsets for partition, offsets in both.items() if offsets}


def _shown(ranges: PartitionRanges) -> str:
    texts = [f"{partition} {offsets.start} to {offsets.end}" for partition, offsets in sorted(ranges.items())]
    return some_of(texts, 3)
