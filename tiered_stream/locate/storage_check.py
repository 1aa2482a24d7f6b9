"""Checks the storage at the start of a query, so that a wrong setting fails the query.

If storage fails for a split, the split is read from the broker (KIP-1254). Without this check, a query with a wrong
bucket or key would read everything through the brokers, and only the log would show it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from tiered_stream.errors import (
    ConfigurationError,
    CorruptDataError,
    StorageAccessError,
    StorageBucketNotFoundError,
    StorageError,
    StorageObjectNotFoundError,
    UnsupportedDataError,
)
from tiered_stream.locate.locator import Locator, SegmentFilter, WrappedLocator, every_segment
from tiered_stream.model import PartitionLocations, PartitionRanges, RemoteLogSegment, SegmentLocation
from tiered_stream.storage.fetcher import RemoteStorageFetcher

_MAX_OTHERS = 3
_MAX_SAMPLES = 64
"""Number of located segments that are examined for their kind."""

log = logging.getLogger(__name__)


class CheckedStorage(WrappedLocator):
    """Locator that checks the storage before it returns the first locations of another locator.

    `locate` also raises StorageAccessError if credentials are missing or refused, StorageBucketNotFoundError if the
    bucket or folder does not exist, and ConfigurationError if the settings lead to a place that does not have the
    segments.
    """

    def __init__(self, locator: Locator, fetcher: RemoteStorageFetcher) -> None:
        super().__init__(locator)
        self._fetcher = fetcher
        self._checked: set[bool] = set()
        """Kinds of segments already checked; True is the kind whose own metadata says where its objects are."""

    def locate(self, ranges: PartitionRanges, needed: SegmentFilter = every_segment) -> PartitionLocations:
        located = self.wrapped.locate(ranges, needed)
        # The owner of the storage signs the signed locations, so no setting of this query is needed to read them.
        if len(self._checked) < 2:
            read = [location for found in located.values() for location in found if needed(location.segment)]
            self._check_new([location for location in read if location.signed_url is None])
        return located

    def _check_new(self, locations: Sequence[SegmentLocation]) -> None:
        """Check one location of each kind that was not checked yet, among a sample of all locations."""
        for location in locations[:: len(locations) // _MAX_SAMPLES + 1]:
            kind = self._fetcher.placed_by_metadata(location.segment)
            if kind not in self._checked:
                self._check(location, locations)
                self._checked.add(kind)

    def _check(self, location: SegmentLocation, locations: Sequence[SegmentLocation]) -> None:
        """Fetch one byte of a located segment; errors that may pass, or concern this object alone, are only logged.

        If the storage refuses an object, the object may be missing (S3 also refuses missing objects if the user may not
        list the bucket). So other segments are tried.
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
        """Return whether the storage gives one of the last segments, which are the least likely to be deleted."""
        return any(gives(partial(self._fetch_byte, location)) for location in locations[: -_MAX_OTHERS - 1 : -1])

    def _fetch_byte(self, location: SegmentLocation) -> None:
        start = location.bytes.start
        self._fetcher.fetch_log_segment(location.segment, start, min(start + 1, location.segment.size))


def gives(fetch: Callable[[], object]) -> bool:
    """Return whether the storage returns anything to `fetch`, valid or not."""
    try:
        fetch()
    except StorageError:
        return False
    except (CorruptDataError, UnsupportedDataError):
        pass
    return True


def check_place(
    fetcher: RemoteStorageFetcher,
    segment: RemoteLogSegment,
    missing: StorageObjectNotFoundError,
    gives_another: Callable[[], bool],
) -> None:
    """Check whether an object is missing because the settings lead to the wrong place.

    Raises:
        ConfigurationError: the object is elsewhere, or the place has no object of the topic and gives no other segment.
    """
    misplaced = fetcher.misplaced(segment)
    if misplaced is not None and (misplaced.found_at or not gives_another()):
        raise ConfigurationError(f"{missing}; {misplaced}") from missing
