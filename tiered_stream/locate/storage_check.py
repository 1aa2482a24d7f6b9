"""A storage that is configured wrong fails a query at its start.

A split whose storage fails is read from the broker (KIP-1254). Were that all, a query with a wrong bucket or key would
read everything through the brokers, and only the log would say so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from tiered_stream.errors import (
    ConfigurationError,
    StorageAccessError,
    StorageBucketNotFoundError,
    StorageError,
    StorageObjectNotFoundError,
)
from tiered_stream.locate.locator import Locator, SegmentFilter, WrappedLocator, every_segment
from tiered_stream.model import PartitionLocations, PartitionRanges, RemoteLogSegment, SegmentLocation
from tiered_stream.storage.fetcher import RemoteStorageFetcher

_WITNESSES = 3
_SAMPLES = 64
"""Located segments that are looked at for their kind."""

log = logging.getLogger(__name__)


class CheckedStorage(WrappedLocator):
    """Another locator's answers, the storage checked before the first location is given out.

    `locate` also raises StorageAccessError where the storage refuses the credentials, or there are none,
    StorageBucketNotFoundError where there is no such bucket or folder, and ConfigurationError where the settings lead
    to a place in it that does not have the segments.
    """

    def __init__(self, locator: Locator, fetcher: RemoteStorageFetcher) -> None:
        super().__init__(locator)
        self._fetcher = fetcher
        self._checked: set[bool] = set()
        """Of segments whose metadata says where they are, and of the others, those of which one was checked."""

    def locate(self, ranges: PartitionRanges, needed: SegmentFilter = every_segment) -> PartitionLocations:
        located = self.wrapped.locate(ranges, needed)
        # A signed location was signed by who has the storage; nothing that was configured here reads it.
        if len(self._checked) < 2:
            read = [each for found in located.values() for each in found if needed(each.segment)]
            self._check_new([each for each in read if each.signed_url is None])
        return located

    def _check_new(self, locations: Sequence[SegmentLocation]) -> None:
        """Check one location of each kind that was not checked yet, among some of all these."""
        for location in locations[:: len(locations) // _SAMPLES + 1]:
            kind = self._fetcher.placed_by_metadata(location.segment)
            if kind not in self._checked:
                self._check(location, locations)
                self._checked.add(kind)

    def _check(self, location: SegmentLocation, locations: Sequence[SegmentLocation]) -> None:
        """Fetch one byte of a located segment; what may pass, or concerns this object alone, is left to the executors.

        A storage that refuses one object may not have it (S3, where the user may not list the bucket): another tells.
        """
        try:
            self._fetch_byte(location)
        except StorageAccessError as refused:
            if not self._gives_another(locations):
                raise
            log.warning("the storage gives other segments, but not this one: %s", refused)
        except StorageBucketNotFoundError:
            raise
        except StorageError as error:
            if isinstance(error, StorageObjectNotFoundError):
                check_place(self._fetcher, location.segment, error, lambda: self._gives_another(locations))
            log.warning("the storage does not work at the start of the query; each task tries it anew: %s", error)

    def _gives_another(self, locations: Sequence[SegmentLocation]) -> bool:
        """The last segments are the least likely to be gone."""
        return any(map(self._can_fetch, locations[: -_WITNESSES - 1 : -1]))

    def _fetch_byte(self, location: SegmentLocation) -> None:
        start = location.bytes.start
        self._fetcher.fetch_log_segment(location.segment, start, min(start + 1, location.segment.size))

    def _can_fetch(self, location: SegmentLocation) -> bool:
        try:
            self._fetch_byte(location)
        except StorageError:
            return False
        return True


def check_place(
    fetcher: RemoteStorageFetcher,
    segment: RemoteLogSegment,
    missing: StorageObjectNotFoundError,
    gives_another: Callable[[], bool],
) -> None:
    """Find out whether an object is missing because the settings lead to the wrong place.

    Raises:
        ConfigurationError: the object is elsewhere, or the place has nothing of the topic and gives no other segment.
    """
    misplaced = fetcher.misplaced(segment)
    if misplaced is not None and (misplaced.found_at or not gives_another()):
        raise ConfigurationError(f"{missing}; {misplaced}") from missing
