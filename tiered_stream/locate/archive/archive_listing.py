"""Lists of the segments' copies in a bucket of Aiven's plugin, and of segments in the bucket that are not read.

The plugin uploads a segment's manifest last. So a copy is finished if it has a manifest, a log and indexes. Segments
below other key prefixes than the archive's or in another layout are not read (`UnreadPlaces`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import NamedTuple
from uuid import UUID

from tiered_stream.data_limits import Limit
from tiered_stream.errors import (
    ConfigurationError,
    CorruptDataError,
    StorageError,
    StorageObjectNotFoundError,
    UnsupportedDataError,
)
from tiered_stream.model import RemoteLogSegment, TopicPartition, uuid_from_text
from tiered_stream.options.choices import StorageLayout
from tiered_stream.options.remote_options import KEY_PREFIXES
from tiered_stream.storage.aiven.aiven_fetcher import main_path
from tiered_stream.storage.aiven.custom_metadata import custom_metadata
from tiered_stream.storage.aiven.manifest import parse_manifest
from tiered_stream.storage.object_store import ObjectStore
from tiered_stream.storage.segment_places import Place

MANIFEST = ".rsm-manifest"
_MAX_LISTED_ALONE = 16
"""Maximum number of topics that are listed one by one; for more topics, the whole archive is listed.

A topic that is listed alone takes at least one request. A request of the whole listing returns 1,000 keys.
"""
_OBJECT = re.compile(
    r"(?P<topic>(?!\.{1,2}-[A-Za-z0-9_-]{22}/)[A-Za-z0-9._-]{1,249})-(?P<id>[A-Za-z0-9_-]{22})/[0-9]{1,10}/[0-9]{20}-[A-Za-z0-9_-]{22}"
    r"(?P<suffix>\.log|\.indexes|\.rsm-manifest)"
)
_SUFFIXES = frozenset((".log", ".indexes", MANIFEST))

Suffixes = frozenset[str]
log = logging.getLogger(__name__)
_MAX_SEARCHED_TOPICS = 32
"""Maximum number of topics that are searched below other key prefixes, by one request each."""


class SegmentCopy(NamedTuple):
    """Copy of a segment in the bucket, identified by the keys of its objects.

    `prefix` is the key prefix. `path` is the rest of the keys, without the objects' suffixes such as `.log`.
    """

    prefix: str
    path: str

    @property
    def topic(self) -> str:
        return self._folder[:-23]

    @property
    def topic_id(self) -> UUID:
        return _id_in(self._folder)

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.topic, int(self.path.split("/")[1]))

    @property
    def base_offset(self) -> int:
        return int(self.path.rpartition("/")[2][:20])

    @property
    def _folder(self) -> str:
        return self.path.partition("/")[0]


@lru_cache(1 << 12)
def _id_in(folder: str) -> UUID:
    """Return the topic id at the end of the name of a topic's folder.

    Results are cached, because a listing may have the same name a million times.
    """
    return uuid_from_text(folder[-22:])


class CopyListing:
    """Lister of the segments' copies below the key prefixes `prefixes` of a store, and reader of their manifests.

    If `read_manifest` finds a segment below another key prefix than the first, the segment gets custom metadata with
    this prefix, which fetchers use.

    Args:
        manifest_limit: maximum size of a manifest.
        plugin_prefix: prefix of the names of the plugin's properties, for errors.
    """

    def __init__(self, store: ObjectStore, prefixes: Sequence[str], manifest_limit: Limit, plugin_prefix: str) -> None:
        self._store = store
        self._prefixes = prefixes
        self._limit = manifest_limit
        self._plugin_prefix = plugin_prefix

    def copies(self, start: str = "") -> Iterator[tuple[SegmentCopy, Suffixes]]:
        """Return the copies whose path begins with `start`, each with the suffixes of its missing objects.

        Raises:
            StorageError: the store cannot be listed.
        """
        return chain.from_iterable(self._copies_below(prefix, start) for prefix in self._prefixes)

    def of_topics(self, topics: Collection[str]) -> dict[str, dict[SegmentCopy, Suffixes]]:
        """Return, for each topic, a dictionary of its copies with the suffixes of each copy's missing objects.

        Up to 16 topics are listed one by one. For more topics, the whole archive is listed. A copy is left out if a
        finished copy below an earlier prefix has the same path.

        Raises:
            StorageError: the store cannot be listed.
        """
        copies: dict[str, dict[SegmentCopy, Suffixes]] = {topic: {} for topic in topics}
        finished: set[str] = set()
        for start in [f"{topic}-" for topic in topics] if len(topics) <= _MAX_LISTED_ALONE else [""]:
            for copy, missing in self.copies(start):
                topic = copy.topic
                # Copies with the same path may be below two prefixes.
                if topic in copies and start in ("", f"{topic}-") and copy.path not in finished:
                    copies[topic][copy] = missing
                    if not missing:
                        finished.add(copy.path)
        return copies

    def any_manifest(self) -> SegmentCopy | None:
        """Return any copy that has a manifest, or None if no manifest is below the archive's key prefixes."""
        for prefix in self._prefixes:
            for path, suffix in self._objects(prefix, ""):
                if suffix == MANIFEST:
                    return SegmentCopy(prefix, path)
        return None

    def name(self, copy: SegmentCopy, suffix: str) -> str:
        """Return the full name of the copy's object with this suffix, for messages."""
        return self._store.describe(copy.prefix + copy.path + suffix)

    def read_manifest(self, copy: SegmentCopy) -> RemoteLogSegment | None:
        """Return the segment that the copy's manifest describes; None if the manifest was deleted or is not finished.

        A manifest that is not finished has no bytes. HDFS shows such a file while the plugin writes it, and also if the
        broker died before the end.

        Raises:
            StorageError: the manifest cannot be read from the store.
            CorruptDataError, UnsupportedDataError: the manifest is malformed or of an unknown version; the message
                names the manifest.
            ConfigurationError: the configured key prefix is only the beginning of the real key prefix, so that the rest
                looks like a part of the topic's name.
        """
        name = self.name(copy, MANIFEST)
        try:
            data = self._store.get(copy.prefix + copy.path + MANIFEST, self._limit)
        except StorageObjectNotFoundError:
            return None
        if not data and self._store.writes_in_place:
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
                raise ConfigurationError(
                    f"{name} is of {segment.topic_partition}: set {self._plugin_prefix}key.prefix={prefix}"
                )
            raise CorruptDataError(f"{name} describes another segment: {path}")
        is_elsewhere = copy.prefix != self._prefixes[0]
        return replace(segment, custom_metadata=custom_metadata(copy.prefix)) if is_elsewhere else segment

    def _copies_below(self, prefix: str, start: str) -> Iterator[tuple[SegmentCopy, Suffixes]]:
        listed: dict[str, set[str]] = {}
        for path, suffix in self._objects(prefix, start):
            listed.setdefault(path, set()).add(suffix)
        return ((SegmentCopy(prefix, path), _SUFFIXES - suffixes) for path, suffixes in listed.items())

    def _objects(self, prefix: str, start: str) -> Iterator[tuple[str, str]]:
        """Yield path and suffix of each segment object whose key begins with `prefix` + `start`.

        Objects below a longer key prefix of the archive are left out.
        """
        longer = tuple(other for other in self._prefixes if other != prefix and other.startswith(prefix))
        for key in self._store.list(prefix + start):
            match = None if key.startswith(longer) else _OBJECT.fullmatch(key.removeprefix(prefix))
            if match is not None:
                yield match.string.removesuffix(match["suffix"]), match["suffix"]


class UnreadPlaces:
    """Finder of segments that are in an archive's storage, but are not read, because no key prefix of the archive fits.

    Args:
        configured: the bucket or folder, layout and key prefix in the settings, for messages.
        prefixes: key prefixes of the archive.
        list_places: returns each combination of settings (`Place`) with which segments in the storage can be read;
            raises StorageError if the storage cannot be listed.
    """

    def __init__(
        self, store: ObjectStore, configured: Place, prefixes: Sequence[str], list_places: Callable[[], Sequence[Place]]
    ) -> None:
        self._store = store
        self._configured = configured
        self._prefixes = prefixes
        self._list_places = list_places

    def why_empty(self) -> str:
        """Return the error message for an archive without segments.

        The message names settings with which segments in the storage can be read, if there are any.
        """
        below = " and ".join(self._store.describe(prefix) for prefix in self._prefixes)
        empty = f"the archive is empty: below {below} is no whole segment of the Aiven plugin's"
        try:
            places = [place for place in self._list_places() if not self._is_read(place)]
        except StorageError as error:
            settings = f"{self._configured.key_prefix_setting} or remote.storage.uri"
            return f"{empty}. Correct {settings}. The storage is not listed: {error}"
        if not places:
            return f"{empty}, nor anywhere in the storage. Correct remote.storage.uri, or the bucket's name"
        corrections = ", or ".join(place.correction(self._configured) for place in places)
        return f"{empty}. The storage has segments elsewhere: set {corrections}"

    def warn_of_topics(self, segments: Iterable[RemoteLogSegment]) -> None:
        """Log a warning if topics of `segments` also have segments below key prefixes that are not read.

        At most 32 topics are searched. Errors of the storage are ignored.
        """
        topics = {segment.topic_id: segment for segment in segments}
        for place in self._unread_aiven_places():
            hidden = [
                segment for segment in list(topics.values())[:_MAX_SEARCHED_TOPICS] if self._has_topic(place, segment)
            ]
            names = ", ".join(sorted(segment.topic_partition.topic for segment in hidden))
            if names:
                log.warning(
                    "segments of %s are below key.prefix=%s, too, and are not read: name that prefix in %s",
                    names, place.key_prefix, KEY_PREFIXES.name,
                )  # fmt: skip

    def _unread_aiven_places(self) -> list[Place]:
        with suppress(StorageError):
            aiven_places = (place for place in self._list_places() if place.layout == StorageLayout.AIVEN)
            return [place for place in aiven_places if not self._is_read(place)]
        return []

    def _is_read(self, place: Place) -> bool:
        return place.layout == StorageLayout.AIVEN and place.key_prefix in self._prefixes

    def _has_topic(self, place: Place, segment: RemoteLogSegment) -> bool:
        with suppress(StorageError):
            return next(self._store.list(place.topic_key(segment)), None) is not None
        return False
