"""Storage that fails while a micro-batch is planned: what cannot be located is left to the brokers (KIP-1254)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from tiered_stream.errors import StorageAccessError, StorageBucketNotFoundError, StorageError
from tiered_stream.locate.base import WrappedLocator
from tiered_stream.offsets import OffsetRange, TopicPartition
from tiered_stream.segments import SegmentLocation

log = logging.getLogger(__name__)


class BrokerFallback(WrappedLocator):
    """Another locator's answers, as far as the storage gives the indexes that they need.

    A storage that refuses the credentials, or is not there, is the user's to mend: those errors stay errors.
    """

    def locate(self, ranges: Mapping[TopicPartition, OffsetRange]) -> dict[TopicPartition, tuple[SegmentLocation, ...]]:
        try:
            return self._locator.locate(ranges)
        except (StorageAccessError, StorageBucketNotFoundError):
            raise
        except StorageError as error:
            if len(ranges) > 1:
                parts = (self.locate({partition: wanted}) for partition, wanted in ranges.items())
                return {partition: found for part in parts for partition, found in part.items()}
            (partition,) = ranges
            log.warning("%s: this micro-batch is read from the broker, because storage failed: %s", partition, error)
            return {partition: ()}

    def cut(self, location: SegmentLocation, target_bytes: int) -> Sequence[SegmentLocation]:
        try:
            return self._locator.cut(location, target_bytes)
        except StorageError as error:
            log.warning("segment %s stays in one split: %s", location.segment.segment_id, error)
            return [location]
