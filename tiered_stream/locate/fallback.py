"""Storage failures while a micro-batch is planned: segments that cannot be located are left to the brokers (KIP-1254).

If a storage refuses the credentials, or does not exist, the user must change the settings, so those errors are raised.
But S3 also answers 403 for a missing object, to a user who may not list the bucket. So after a refusal for one segment,
other segments are tried.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from tiered_stream.errors import (
    CorruptDataError,
    StorageAccessError,
    StorageBucketNotFoundError,
    StorageError,
    StorageObjectNotFoundError,
    StorageUnavailableError,
    UnsupportedDataError,
)
from tiered_stream.locate.lineage import VisibleSegment
from tiered_stream.locate.storage_check import check_place
from tiered_stream.model import RemoteLogSegment, TopicPartition
from tiered_stream.process.single_flight import SingleFlightCache
from tiered_stream.storage.fetcher import IndexType, RemoteStorageFetcher

log = logging.getLogger(__name__)

T = TypeVar("T")

_WITNESSES = 4
"""Number of other segments that are tried to find out whether the credentials are valid."""
_OUT_OF_REACH = 16
"""Number of failures to reach the storage after which no more segments are tried.

Each failure may take a whole timeout.
"""


class SegmentsLeftOut:
    """Segments that one planning leaves to the brokers; many threads may use it.

    Args:
        segments: segments of the planning, by partition, ascending.
    """

    def __init__(
        self, fetcher: RemoteStorageFetcher, segments: Mapping[TopicPartition, Sequence[VisibleSegment]]
    ) -> None:
        self._fetcher = fetcher
        self._segments = segments
        self._lock = threading.Lock()
        self._counts: Counter[TopicPartition] = Counter()
        self._reasons: dict[TopicPartition, tuple[int, StorageError]] = {}
        """Base offset and error of the first segment of each partition that fails, in offset order."""
        self._out_of_reach = 0
        self._access: SingleFlightCache[None, bool] = SingleFlightCache(1)
        self._placed: SingleFlightCache[None, None] = SingleFlightCache(1)

    def unless_storage_fails(self, segment: RemoteLogSegment, work: Callable[[], T]) -> T | None:
        """Return the result of `work`, or None if the storage does not give what `work` needs of the segment.

        Raises:
            StorageAccessError: the storage refuses access, and also to the indexes of other segments.
            StorageBucketNotFoundError: the bucket or folder does not exist.
            ConfigurationError: the settings lead to a place that does not have the segments.
        """
        error: StorageError | None = None
        if self._out_of_reach < _OUT_OF_REACH:
            try:
                return work()
            except StorageBucketNotFoundError:
                raise
            except StorageError as failure:
                if isinstance(failure, StorageAccessError) and not self._has_access(segment):
                    raise
                if isinstance(failure, StorageObjectNotFoundError):
                    self._check_place(segment, failure)
                error = failure
        with self._lock:
            self._counts[segment.topic_partition] += 1
            self._out_of_reach += isinstance(error, StorageUnavailableError)
            told = self._reasons.get(segment.topic_partition)
            if error is not None and (told is None or segment.base_offset < told[0]):
                self._reasons[segment.topic_partition] = segment.base_offset, error
        return None

    def or_fail(self, segment: RemoteLogSegment, work: Callable[[], T]) -> T:
        """Return the result of `work`; used if no segment may be left to the brokers.

        Raises:
            ConfigurationError: the settings lead to a place that does not have the segments.
            StorageError: `work` raises it.
        """
        try:
            return work()
        except StorageBucketNotFoundError:
            raise
        except StorageObjectNotFoundError as missing:
            self._check_place(segment, missing)
            raise

    def tell(self) -> None:
        """Log how many segments were left to the brokers, and why."""
        for partition, count in self._counts.items():
            _, reason = self._reasons.get(partition) or next(iter(self._reasons.values()))
            log.warning(
                "%s: %d segment%s of this micro-batch %s read from the broker, because storage failed: %s",
                partition, count, "s" * (count > 1), "are" if count > 1 else "is", reason,
            )  # fmt: skip

    def _check_place(self, segment: RemoteLogSegment, missing: StorageObjectNotFoundError) -> None:
        """Search elsewhere, once, for this segment and one placed differently. Raises: the errors of `check_place`."""
        self._placed.get(None, lambda: self._look_elsewhere(segment, missing))

    def _look_elsewhere(self, segment: RemoteLogSegment, missing: StorageObjectNotFoundError) -> None:
        has_access = partial(self._has_access, segment)
        check_place(self._fetcher, segment, missing, has_access)
        # The missing object may be one of an adjacent segment, whose index is needed too.
        by_metadata = self._fetcher.placed_by_metadata
        other = next((each for each in self._newest() if by_metadata(each) != by_metadata(segment)), None)
        if other is None:
            return
        try:
            self._fetcher.fetch_log_segment(other, 0, 1)
        except StorageObjectNotFoundError as also_missing:
            check_place(self._fetcher, other, also_missing, has_access)
        except (StorageError, CorruptDataError, UnsupportedDataError):
            return

    def _has_access(self, refused: RemoteLogSegment) -> bool:
        """Return whether the storage gives another segment's index, or this segment's log if there is no other one."""
        return self._access.get(None, lambda: self._is_let_in(refused))

    def _is_let_in(self, refused: RemoteLogSegment) -> bool:
        others = [each for each in self._newest() if each.segment_id != refused.segment_id][:_WITNESSES]
        fetcher, offset_index = self._fetcher, (IndexType.OFFSET,)
        indexes = (partial(fetcher.fetch_indexes, each, offset_index) for each in others)
        return any(map(_is_given, indexes)) if others else _is_given(partial(fetcher.fetch_log_segment, refused, 0, 1))

    def _newest(self) -> list[RemoteLogSegment]:
        """Return the first and last two segments of each partition; the newest, least likely deleted, come first."""
        ends = [each.segment for of in self._segments.values() for each in (*of[:1], *of[-2:])]
        unique = {segment.segment_id: segment for segment in ends}
        return sorted(unique.values(), key=lambda segment: segment.max_timestamp, reverse=True)


def _is_given(ask: Callable[[], object]) -> bool:
    """Return whether the storage returns anything, valid or not."""
    try:
        ask()
    except StorageError:
        return False
    except (CorruptDataError, UnsupportedDataError):
        pass
    return True
