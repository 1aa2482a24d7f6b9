"""The copies of segments that an Aiven bucket lists: which are finished, and which objects of the others are missing.

The plugin uploads a segment's manifest last, so a manifest with its log and indexes beside it is a finished copy.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple
from uuid import UUID

from tiered_stream.errors import (
    ConfigurationError,
    CorruptDataError,
    StorageObjectNotFoundError,
    UnsupportedDataError,
)
from tiered_stream.limits import Limit
from tiered_stream.model import RemoteLogSegment, TopicPartition, uuid_from_text
from tiered_stream.storage.aiven.aiven_fetcher import main_path
from tiered_stream.storage.aiven.custom_metadata import custom_metadata
from tiered_stream.storage.aiven.manifest import parse_manifest
from tiered_stream.storage.object_store import ObjectStore

MANIFEST = ".rsm-manifest"
_MOST_LISTED_ALONE = 16
"""Topics; each takes a request at least, and one of a listing of all gives a thousand keys."""
_OBJECT = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<id>[A-Za-z0-9_-]{22})/[0-9]{1,10}/[0-9]{20}-[A-Za-z0-9_-]{22}"
    r"(?P<suffix>\.log|\.indexes|\.rsm-manifest)"
)
_SUFFIXES = frozenset((".log", ".indexes", MANIFEST))

Suffixes = frozenset[str]


class SegmentCopy(NamedTuple):
    """The key of a segment's objects without the suffix: the key prefix, and the path behind it."""

    prefix: str
    path: str

    @property
    def topic(self) -> str:
        return self._folder[:-23]

    @property
    def topic_id(self) -> UUID:
        return uuid_from_text(self._folder[-22:])

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.topic, int(self.path.split("/")[1]))

    @property
    def base_offset(self) -> int:
        return int(self.path.rpartition("/")[2][:20])

    @property
    def _folder(self) -> str:
        return self.path.split("/")[0]


class CopyListing:
    """Lists the copies below key prefixes of a store, and reads their manifests.

    Segments below another prefix than the first get custom metadata that says so: fetchers go by that.
    """

    def __init__(self, store: ObjectStore, prefixes: Sequence[str], manifest_limit: Limit) -> None:
        self._store = store
        self._prefixes = prefixes
        self._limit = manifest_limit

    def copies(self, start: str = "") -> Iterator[tuple[SegmentCopy, Suffixes]]:
        """The copies whose path begins so, each with the suffixes of the objects that it lacks.

        Raises:
            StorageError: the store cannot be listed.
        """
        return chain.from_iterable(self._copies_below(prefix, start) for prefix in self._prefixes)

    def of_topics(self, topics: Collection[str]) -> dict[str, dict[SegmentCopy, Suffixes]]:
        """By topic, its copies and what they lack; many topics by one listing of all there are. Raises: as `copies`."""
        found: dict[str, dict[SegmentCopy, Suffixes]] = {topic: {} for topic in topics}
        finished: set[str] = set()
        for start in [f"{topic}-" for topic in topics] if len(topics) <= _MOST_LISTED_ALONE else [""]:
            for copy, missing in self.copies(start):
                topic = copy.topic
                # The same copy may be below two prefixes.
                if topic in found and start in ("", f"{topic}-") and copy.path not in finished:
                    found[topic][copy] = missing
                    if not missing:
                        finished.add(copy.path)
        return found

    def any_manifest(self) -> SegmentCopy | None:
        """A copy that has a manifest; None: nothing has. Raises: as `copies`."""
        for prefix in self._prefixes:
            for path, suffix in self._objects(prefix, ""):
                if suffix == MANIFEST:
                    return SegmentCopy(prefix, path)
        return None

    def name(self, copy: SegmentCopy, suffix: str) -> str:
        """The full name of one of its objects."""
        return self._store.describe(copy.prefix + copy.path + suffix)

    def read_manifest(self, copy: SegmentCopy) -> RemoteLogSegment | None:
        """The segment that a manifest describes; None: it was deleted meanwhile.

        Raises:
            StorageError: the manifest cannot be had.
            CorruptDataError, UnsupportedDataError: it cannot be read; the message names it.
            ConfigurationError: a part of the prefix was taken for the topic's name.
        """
        name = self.name(copy, MANIFEST)
        try:
            data = self._store.get(copy.prefix + copy.path + MANIFEST, self._limit)
        except StorageObjectNotFoundError:
            return None
        segment = parse_manifest(data, name).segment
        if segment is None:
            raise UnsupportedDataError(f"{name} does not say which offsets it is of: an early plugin version wrote it")
        if not segment.leader_epochs:
            raise CorruptDataError(f"{name} names no leader epoch")
        path = main_path(segment)
        if copy.path != path:
            if copy.path.endswith(path):
                prefix = (copy.prefix + copy.path).removesuffix(path)
                raise ConfigurationError(f"{name} is of {segment.topic_partition}: set rsm.config.key.prefix={prefix}")
            raise CorruptDataError(f"{name} describes another segment: {path}")
        is_elsewhere = copy.prefix != self._prefixes[0]
        return replace(segment, custom_metadata=custom_metadata(copy.prefix)) if is_elsewhere else segment

    def _copies_below(self, prefix: str, start: str) -> Iterator[tuple[SegmentCopy, Suffixes]]:
        found: dict[str, set[str]] = {}
        for path, suffix in self._objects(prefix, start):
            found.setdefault(path, set()).add(suffix)
        return ((SegmentCopy(prefix, path), _SUFFIXES - suffixes) for path, suffixes in found.items())

    def _objects(self, prefix: str, start: str) -> Iterator[tuple[str, str]]:
        """Path and suffix of each object of a segment; those of a longer prefix are not this one's."""
        longer = tuple(each for each in self._prefixes if each != prefix and each.startswith(prefix))
        for key in self._store.list(prefix + start):
            match = None if key.startswith(longer) else _OBJECT.fullmatch(key.removeprefix(prefix))
            if match is not None:
                yield match.string.removesuffix(match["suffix"]), match["suffix"]
