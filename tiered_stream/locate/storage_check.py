"""A storage that is configured wrong fails a query at its start.

A split whose storage fails is read from the broker (KIP-1254). Were that all, a query with a wrong bucket or key would
read everything through the brokers, and only the log would say so.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from tiered_stream.errors import StorageAccessError, StorageBucketNotFoundError, StorageError
from tiered_stream.fetch.base import RemoteStorageFetcher
from tiered_stream.locate.base import Locator, WrappedLocator
from tiered_stream.offsets import OffsetRange, TopicPartition
from tiered_stream.segments import SegmentLocation

log = logging.getLogger(__name__)


def check_storage(location: SegmentLocation, fetcher: RemoteStorageFetcher) -> None:
    """Fetch one byte of a located segment; what may pass, or concerns this object alone, is left to the executors.

    Raises:
        StorageAccessError: the storage refuses the credentials, or there are none.
        StorageBucketNotFoundError: there is no such bucket or folder.
    """
    start = location.bytes.start
    try:
        fetcher.fetch_log_segment(location.segment, start, min(start + 1, location.segment.size))
    except (StorageAccessError, StorageBucketNotFoundError):
        raise
    except StorageError as error:
        log.warning("the storage does not work at the start of the query; each task tries it anew: %s", error)


class CheckedStorage(WrappedLocator):
    """Another locator's answers, the storage checked before the first location is given out."""

    def __init__(self, locator: Locator, fetcher: RemoteStorageFetcher) -> None:
        super().__init__(locator)
        self._fetcher = fetcher
        self._checked = False

    def locate(self, ranges: Mapping[TopicPartition, OffsetRange]) -> dict[TopicPartition, tuple[SegmentLocation, ...]]:
        located = self._locator.locate(ranges)
        # A signed location was signed by who has the storage; nothing that was configured here reads it.
        unsigned = (each for found in located.values() for each in found if each.signed_url is None)
        first = next(unsigned, None)
        if first is not None and not self._checked:
            check_storage(first, self._fetcher)
            self._checked = True
        return located
