"""Segments in an archive's storage that are not read: below other key prefixes, or in another layout."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from tiered_stream.errors import StorageError
from tiered_stream.model import RemoteLogSegment
from tiered_stream.options.choices import StorageLayout
from tiered_stream.options.remote_options import KEY_PREFIXES
from tiered_stream.storage.object_store import ObjectStore
from tiered_stream.storage.segment_places import Place

log = logging.getLogger(__name__)

_MAX_SEARCHED_TOPICS = 32
"""Maximum number of topics that are searched below other key prefixes, by one request each."""


class UnreadPlaces:
    """Finder of segments that are in an archive's storage, but are not read, because no key prefix of the archive fits.

    Args:
        configured: the place in the settings, for messages.
        prefixes: key prefixes of the archive.
        list_places: returns all settings (`Place`) that lead to segments in the storage; raises StorageError if the
            storage cannot be listed.
    """

    def __init__(
        self,
        store: ObjectStore,
        configured: Place,
        prefixes: Sequence[str],
        list_places: Callable[[], Sequence[Place]],
    ) -> None:
        self._store = store
        self._configured = configured
        self._prefixes = prefixes
        self._list_places = list_places

    def why_empty(self) -> str:
        """Return the error message for an archive without segments.

        The message names settings that lead to segments, if there are any.
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
        """Warn if topics of `segments` also have segments below key prefixes that are not read.

        At most `_MAX_SEARCHED_TOPICS` topics are searched. Errors of the storage are ignored.
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
