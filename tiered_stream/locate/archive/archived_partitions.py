"""What an archive holds: the segments that the manifests in an Aiven bucket describe, and what of them is the log.

The plugin uploads a segment's manifest last, so a manifest with its log and indexes beside it is a finished copy. A
copy that Kafka then forgot (the broker died before it said so) looks the same and does no harm: its records are the
log's, or its leader epochs are not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from tiered_stream.errors import (
    ConfigurationError,
    CorruptDataError,
    StorageObjectNotFoundError,
    UnsupportedDataError,
    naming,
)
from tiered_stream.limits import DEFAULT_LIMITS, Limit
from tiered_stream.locate.index_cache import DEFAULT_CACHE_BYTES, IndexCache
from tiered_stream.locate.lineage import Lineage, VisibleSegment, lineage_of, visible_segments
from tiered_stream.model import (
    LeaderEpoch,
    RemoteLogSegment,
    TopicDescription,
    TopicPartition,
    uuid_from_text,
    uuid_to_text,
)
from tiered_stream.options.choices import StorageLayout
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.records.snapshots import open_transactions, parse_leader_epoch_checkpoint, parse_producer_snapshot
from tiered_stream.storage.aiven.aiven_fetcher import main_path
from tiered_stream.storage.aiven.manifest import parse_manifest
from tiered_stream.storage.fetcher import IndexType, RemoteStorageFetcher
from tiered_stream.storage.object_store import ObjectStore
from tiered_stream.storage.open_fetcher import open_fetcher, open_store

MANIFEST_REQUESTS_IN_FLIGHT = 32
_MOST_LISTED_ALONE = 16
"""Topics; each takes a request at least, and one of a listing of all gives a thousand keys."""

_T = TypeVar("_T")

_MANIFEST = ".rsm-manifest"
_OBJECT = re.compile(
    r"(?P<topic>.+)-(?P<id>[A-Za-z0-9_-]{22})/[0-9]{1,10}/[0-9]{20}-[A-Za-z0-9_-]{22}"
    r"(?P<suffix>\.log|\.indexes|\.rsm-manifest)"
)
_SUFFIXES = frozenset((".log", ".indexes", _MANIFEST))


@dataclass(frozen=True, slots=True)
class ArchivedPartition:
    """A partition as far as the archive has it: all `segments`, and those that are `visible` in its `lineage`.

    `end_offset` (exclusive) and `last_stable_offset` are of the archive taken alone: a transaction that is open at its
    end is undecided, whatever became of it in the cluster.
    """

    segments: tuple[RemoteLogSegment, ...]
    lineage: Lineage
    visible: tuple[VisibleSegment, ...]
    log_start_offset: int
    end_offset: int
    last_stable_offset: int


_Segments = tuple[RemoteLogSegment, ...]


class _Topic:
    """A topic's segments, by key and by partition."""

    def __init__(self, topic_id: UUID, segments: dict[str, RemoteLogSegment]) -> None:
        self.topic_id = topic_id
        self.segments = segments
        by_partition: dict[int, list[RemoteLogSegment]] = {}
        for segment in segments.values():
            by_partition.setdefault(segment.topic_partition.partition, []).append(segment)
        self.partitions = {partition: tuple(listed) for partition, listed in by_partition.items()}


class Archive:
    """The topics below one key prefix of a store. A topic is listed when first asked for, and by `refresh`.

    The store is the archive's to close, the fetcher is not.

    Args:
        topic_ids: the topic to take, where several had one name.
    """

    def __init__(
        self,
        store: ObjectStore,
        fetcher: RemoteStorageFetcher,
        key_prefix: str = "",
        topic_ids: Mapping[str, UUID] | None = None,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        manifest_limit: Limit = DEFAULT_LIMITS.manifest,
    ) -> None:
        self._store = store
        self._manifest_limit = manifest_limit
        self._key_prefix = key_prefix
        self._pinned = topic_ids or {}
        self._indexes = IndexCache(fetcher, cache_bytes)
        self._executor = ThreadPoolExecutor(MANIFEST_REQUESTS_IN_FLIGHT, thread_name_prefix="archive")
        self._topics: dict[str, _Topic] = {}
        self._known: dict[TopicPartition, tuple[_Segments, ArchivedPartition]] = {}

    def topic_names(self) -> frozenset[str]:
        """Every topic with a finished copy; lists the whole archive.

        Raises:
            StorageError: the store cannot be listed.
        """
        return frozenset(_topic_of(key) for key in self._manifest_keys(""))

    def refresh(self, topics: Collection[str]) -> None:
        """Take in what came to these topics, and what was deleted, since they were last listed.

        Raises:
            StorageError: the store cannot be listed or a manifest not be had.
            CorruptDataError, UnsupportedDataError: a manifest cannot be read; the message names it.
            ConfigurationError: several topics had one name and none is pinned.
        """
        found: dict[str, tuple[UUID, list[str]]] = {}
        for topic, keys in self._listed(topics).items():
            topic_id = self._topic_id(topic, {_topic_id_of(key) for key in keys})
            if topic_id is None:
                self._topics.pop(topic, None)
            else:
                found[topic] = topic_id, [key for key in keys if _topic_id_of(key) == topic_id]
        known = {
            key: each for topic in found if topic in self._topics for key, each in self._topics[topic].segments.items()
        }
        missing = [key for _, keys in found.values() for key in keys if key not in known]
        known |= {
            key: each
            for key, each in zip(missing, self._executor.map(self._read_manifest, missing), strict=True)
            if each
        }
        for topic, (topic_id, keys) in found.items():
            self._topics[topic] = _Topic(topic_id, {key: known[key] for key in keys if key in known})

    def take_in(self, topics: Collection[str]) -> None:
        """Refresh those that were never listed."""
        self.refresh([topic for topic in topics if topic not in self._topics])

    def topic(self, topic: str) -> TopicDescription | None:
        """The topic's id and the partitions of which the archive has segments; None: it has nothing of the topic.

        Raises: as `refresh`.
        """
        known = self._topic(topic)
        return None if known is None else TopicDescription(topic, known.topic_id, tuple(sorted(known.partitions)))

    def partitions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ArchivedPartition]:
        """What the archive has of these partitions, as last listed; those of which it has nothing are left out.

        Raises: as `refresh`, and for the indexes of the newest segments.
        """
        segments = {}
        for partition in partitions:
            topic = self._topic(partition.topic)
            if topic is not None and partition.partition in topic.partitions:
                segments[partition] = topic.partitions[partition.partition]
        new = {each: some for each, some in segments.items() if each not in self._known or self._known[each][0] != some}
        for partition, archived in zip(new, self._executor.map(self._work_out, new.values()), strict=True):
            self._known[partition] = new[partition], archived
        return {partition: self._known[partition][1] for partition in segments}

    def open_transactions(self, segment: RemoteLogSegment) -> list[tuple[int, int]]:
        """(producer id, first offset) of each transaction that is open at the segment's end.

        Raises: as `partitions`.
        """
        return open_transactions(self._parsed(segment, IndexType.PRODUCER_SNAPSHOT, parse_producer_snapshot))

    def close(self) -> None:
        """Let go of threads and of the store."""
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._store.close()

    def _topic(self, topic: str) -> _Topic | None:
        if topic not in self._topics:
            self.refresh([topic])
        return self._topics.get(topic)

    def _listed(self, topics: Collection[str]) -> dict[str, list[str]]:
        """By topic, the keys of its manifests; many topics by one listing of all there are."""
        found: dict[str, list[str]] = {topic: [] for topic in topics}
        for prefix in [f"{topic}-" for topic in topics] if len(topics) <= _MOST_LISTED_ALONE else [""]:
            for key in self._manifest_keys(prefix):
                if (topic := _topic_of(key)) in found and (not prefix or prefix == f"{topic}-"):
                    found[topic].append(key)
        return found

    def _manifest_keys(self, prefix: str) -> list[str]:
        """Keys, without the archive's prefix and the suffix, of the manifests whose log and indexes are there."""
        found: dict[str, set[str]] = {}
        for key in self._store.list(self._key_prefix + prefix):
            match = _OBJECT.fullmatch(key.removeprefix(self._key_prefix))
            if match is not None:
                found.setdefault(match.string.removesuffix(match["suffix"]), set()).add(match["suffix"])
        return [key for key, suffixes in found.items() if suffixes == _SUFFIXES]

    def _topic_id(self, topic: str, found: set[UUID]) -> UUID | None:
        if topic in self._pinned:
            return self._pinned[topic] if self._pinned[topic] in found else None
        if len(found) > 1:
            ids = ", ".join(sorted(uuid_to_text(each) for each in found))
            raise ConfigurationError(
                f"the archive has several topics named {topic!r}, with the ids {ids}: say in the option "
                f'remote.topic.id which one to read, as {{"{topic}":"<id>"}}'
            )
        return next(iter(found), None)

    def _read_manifest(self, key: str) -> RemoteLogSegment | None:
        """The segment that a manifest describes; None: it was deleted meanwhile."""
        name = self._store.describe(self._key_prefix + key + _MANIFEST)
        try:
            data = self._store.get(self._key_prefix + key + _MANIFEST, self._manifest_limit)
        except StorageObjectNotFoundError:
            return None
        segment = parse_manifest(data, name).segment
        if segment is None:
            raise UnsupportedDataError(f"{name} does not say which offsets it is of: an early plugin version wrote it")
        if not segment.leader_epochs:
            raise CorruptDataError(f"{name} names no leader epoch")
        if main_path(segment) != key:
            raise CorruptDataError(f"{name} describes another segment: {main_path(segment)}")
        return segment

    def _work_out(self, segments: _Segments) -> ArchivedPartition:
        newest = max(segments, key=lambda each: (each.leader_epochs[-1].epoch, each.end_offset, each.segment_id))
        checkpoint = self._parsed(newest, IndexType.LEADER_EPOCH, parse_leader_epoch_checkpoint)
        epochs = [LeaderEpoch(epoch, start_offset) for epoch, start_offset in checkpoint]
        lineage = lineage_of(epochs)
        visible = visible_segments(segments, lineage, epochs[0].start_offset if epochs else 0)
        if not visible:
            raise CorruptDataError(f"{newest}: its leader epoch checkpoint lacks its own leader epoch")
        start, end = visible[0].offsets.start, visible[-1].offsets.end
        open_from = [first for _, first in self.open_transactions(visible[-1].segment)]
        return ArchivedPartition(segments, lineage, visible, start, end, max(start, min([end, *open_from])))

    def _parsed(self, segment: RemoteLogSegment, index_type: IndexType, parse: Callable[[bytes], _T]) -> _T:
        data = self._indexes.get(segment, (index_type,)).get(index_type)
        if data is None:
            raise CorruptDataError(f"{segment} has no {index_type.value} index")
        with naming(segment):
            return parse(data)


def open_archive(storage: StorageOptions, topic_ids: Mapping[str, UUID]) -> Archive:
    """The archive that the storage options lead to.

    Raises:
        ConfigurationError: the layout has no manifests, or as `open_fetcher`.
    """
    if storage.layout != StorageLayout.AIVEN:
        raise ConfigurationError(
            f"remote.log.locator=archive does not go with remote.storage.layout={storage.layout}: only the manifests "
            "of the layout aiven say what a bucket holds"
        )
    key_prefix = storage.rsm_config.get("key.prefix", "")
    fetcher, limit = open_fetcher(storage), storage.limits.manifest
    return Archive(open_store(storage), fetcher, key_prefix, topic_ids, manifest_limit=limit)


def _topic_of(key: str) -> str:
    return key.rsplit("/", 2)[0][:-23]


def _topic_id_of(key: str) -> UUID:
    return uuid_from_text(key.rsplit("/", 2)[0][-22:])
