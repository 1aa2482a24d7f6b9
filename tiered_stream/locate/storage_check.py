"""Check of the storage at the start of a query, so that a wrong setting fails the query.

If storage fails for a split, the split is read from the broker (KIP-1254). Without this check, a query with a wrong
bucket or key would read everything through the brokers, and only the log would show it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from tiered_stream import errors
from tiered_stream.locate.locator import Locator, SegmentFilter, WrappedLocator, every_segment
from tiered_stream.model import PartitionLocations, PartitionRanges, RemoteLogSegment, SegmentLocation
from tiered_stream.storage.fetcher import RemoteStorageFetcher

_MAX_OTHERS = 3
_MAX_SAMPLES = 64
"""Approximate maximum number of locations in the sample that `StorageCheck.check` takes."""

LEFT_TO_BROKERS = (
    errors.StorageUnavailableError, errors.StorageObjectNotFoundError, errors.StorageFormatError,
    errors.SignedLocationError,
)  # fmt: skip
"""Failures of a segment that brokers make up for: failures that are known to pass, and failures of one segment alone.

Any other response means that the settings must change, unless the storage gives other segments.
"""

log = logging.getLogger(__name__)


class StorageCheck:
    """Check that the storage returns segments: one byte of one segment of each kind.

    A segment's kind says whether its metadata or the settings name the keys of its objects. If `falls_back` is false,
    every error of the storage is raised, because no broker replaces the storage.
    """

    def __init__(self, fetcher: RemoteStorageFetcher, *, falls_back: bool) -> None:
        self._falls_back = falls_back
        self._fetcher = fetcher
        self._checked: set[bool] = set()
        """Kinds of segments that were checked.

        True: the segment's metadata names the keys of its objects. False: the settings determine the keys.
        """

    @property
    def is_done(self) -> bool:
        """True if a segment of each kind was checked."""
        return len(self._checked) > 1

    def check(self, locations: Sequence[SegmentLocation]) -> None:
        """Take a sample of `locations`, and check one location of each kind of segment that was not checked yet.

        If the query falls back to brokers, errors of `LEFT_TO_BROKERS` are only logged. S3 also responds 403 for a
        missing object if the user has no permission to list the bucket. So if the storage refuses the object, objects
        of other segments in `locations` are requested.

        Raises:
            StorageBucketNotFoundError: the bucket or folder does not exist.
            ConfigurationError: `check_place` raises it.
            StorageError: the storage refuses all these objects (StorageAccessError, or another response that brokers do
                not make up for), or it fails otherwise, and the query does not fall back to brokers.
        """
        for location in locations[:: len(locations) // _MAX_SAMPLES + 1]:
            kind = self._fetcher.placed_by_metadata(location.segment)
            if kind not in self._checked:
                self._check(location, locations)
                self._checked.add(kind)

    def _check(self, location: SegmentLocation, locations: Sequence[SegmentLocation]) -> None:
        try:
            self._fetch_byte(location)
        except errors.StorageBucketNotFoundError:
            raise
        except LEFT_TO_BROKERS as error:
            if isinstance(error, errors.StorageObjectNotFoundError):
                check_place(self._fetcher, location.segment, error, lambda: self._gives_another(locations))
            if not self._falls_back:
                raise
            log.warning("the storage does not work at the start of the query; each task tries it again: %s", error)
        except errors.StorageError as refused:
            if not self._gives_another(locations):
                raise
            log.warning("the storage gives other segments, but not this one: %s", refused)

    def _gives_another(self, locations: Sequence[SegmentLocation]) -> bool:
        """Return whether the storage returns a byte of one of the last `_MAX_OTHERS` locations.

        Their segments are the least likely to be deleted.
        """
        return any(gives(partial(self._fetch_byte, location)) for location in locations[: -_MAX_OTHERS - 1 : -1])

    def _fetch_byte(self, location: SegmentLocation) -> None:
        start = location.bytes.start
        self._fetcher.fetch_log_segment(location.segment, start, min(start + 1, location.segment.size))


class CheckedStorage(WrappedLocator):
    """Locator that checks the storage before it returns the first locations of the locator `wrapped`.

    `locate` raises three more errors:

        StorageAccessError: credentials are missing or refused.
        StorageBucketNotFoundError: the bucket or folder does not exist.
        ConfigurationError: the settings name a bucket, folder or key prefix that does not have the segments.

    If `falls_back` is false, `locate` raises every error of the storage, because no broker replaces the storage.
    """

    def __init__(self, locator: Locator, fetcher: RemoteStorageFetcher, *, falls_back: bool = True) -> None:
        super().__init__(locator)
        self._storage = StorageCheck(fetcher, falls_back=falls_back)

    def locate(self, ranges: PartitionRanges, needed: SegmentFilter = every_segment) -> PartitionLocations:
        located = self.wrapped.locate(ranges, needed)
        # The owner of the storage signs the signed locations, so no setting of this query is needed to read them.
        if not self._storage.is_done:
            self._storage.check(
                [
                    location
                    for locations in located.values()
                    for location in locations
                    if location.signed_url is None and needed(location.segment)
                ]
            )
        return located


def gives(fetch: Callable[[], object]) -> bool:
    """Call `fetch`; return False if it raises a StorageError, and True otherwise, even if the data is malformed."""
    try:
        fetch()
    except errors.StorageError:
        return False
    except (errors.CorruptDataError, errors.UnsupportedDataError):
        pass
    return True


def check_place(
    fetcher: RemoteStorageFetcher,
    segment: RemoteLogSegment,
    missing: errors.StorageObjectNotFoundError,
    gives_another: Callable[[], bool],
) -> None:
    """Check whether an object of `segment` is missing because the settings are wrong.

    Args:
        missing: the error that says that the object is missing.
        gives_another: returns whether the storage returns an object of another segment.

    Raises:
        ConfigurationError: the segment's log was found elsewhere in the storage. Or the configured bucket, folder or
            key prefix has no object of the segment's topic, and `gives_another()` is false.
    """
    misplaced = fetcher.find_misplacement(segment)
    if misplaced is not None and (misplaced.actual_place or not gives_another()):
        raise errors.ConfigurationError(f"{missing}; {misplaced}") from missing
