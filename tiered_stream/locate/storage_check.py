"""A storage that is configured wrong fails a query at its start.

A split whose storage fails is read from the broker (KIP-1254). Were that all, a query with a wrong bucket or key would
read everything through the brokers, and only the log would say so.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tiered_stream.errors import StorageAccessError, StorageBucketNotFoundError, StorageError
from tiered_stream.locate.locator import Locator, SegmentFilter, WrappedLocator, every_segment
from tiered_stream.model import PartitionLocations, PartitionRanges, SegmentLocation
from tiered_stream.storage.fetcher import RemoteStorageFetcher

_WITNESSES = 3

log = logging.getLogger(__name__)


class CheckedStorage(WrappedLocator):
    """Another locator's answers, the storage checked before the first location is given out.

    `locate` also raises StorageAccessError where the storage refuses the credentials, or there are none, and
    StorageBucketNotFoundError where there is no such bucket or folder.
    """

    def __init__(self, locator: Locator, fetcher: RemoteStorageFetcher) -> None:
        super().__init__(locator)
        self._fetcher = fetcher
        self._checked = False

    def locate(self, ranges: PartitionRanges, needed: SegmentFilter = every_segment) -> PartitionLocations:
        located = self.wrapped.locate(ranges, needed)
        # A signed location was signed by who has the storage; nothing that was configured here reads it.
        if not self._checked:
            read = [each for found in located.values() for each in found if needed(each.segment)]
            unsigned = [each for each in read if each.signed_url is None]
            if unsigned:
                self._check(unsigned)
                self._checked = True
        return located

    def _check(self, locations: Sequence[SegmentLocation]) -> None:
        """Fetch one byte of a located segment; what may pass, or concerns this object alone, is left to the executors.

        A storage that refuses one object may not have it (S3, where the user may not list the bucket): another tells.
        """
        try:
            self._fetch_byte(locations[0])
        except StorageAccessError as refused:
            # The last segments are the least likely to be gone.
            if not any(map(self._can_fetch, locations[: -_WITNESSES - 1 : -1])):
                raise
            log.warning("the storage gives other segments, but not this one: %s", refused)
        except StorageBucketNotFoundError:
            raise
        except StorageError as error:
            log.warning("the storage does not work at the start of the query; each task tries it anew: %s", error)

    def _fetch_byte(self, location: SegmentLocation) -> None:
        start = location.bytes.start
        self._fetcher.fetch_log_segment(location.segment, start, min(start + 1, location.segment.size))

    def _can_fetch(self, location: SegmentLocation) -> bool:
        try:
            self._fetch_byte(location)
        except StorageError:
            return False
        return True
