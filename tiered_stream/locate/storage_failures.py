"""Storage failures on the driver: some failures end a query, and others leave segments to the brokers.

If the storage fails for offsets that a task reads, the task reads them from the broker (KIP-1254). So a query with a
wrong bucket or key would read everything through the brokers, and only the log would show it. To prevent this,
`StorageCheck` reads one byte of the storage at the start of a query. `SegmentsLeftOut` handles failures while a
micro-batch is planned.

If a storage refuses the credentials, if its bucket does not exist, or if its error is not known to be temporary, the
user must change the settings. So these errors are raised. But S3 also responds 403 for a missing object if the user has
no permission to list the bucket. So if the storage refuses an object of one segment, objects of other segments are
requested.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from tiered_stream import errors
from tiered_stream.locate.visible_segments import VisibleSegment
from tiered_stream.model import RemoteLogSegment, SegmentLocation, TopicPartition
from tiered_stream.process.caches import SingleFlightCache
from tiered_stream.storage.fetcher import IndexType, RemoteStorageFetcher

_MAX_OTHERS = 4
"""Maximum number of other segments that are requested after a refusal, to check the credentials."""
_MAX_SAMPLES = 64
"""Approximate maximum number of locations in the sample that `StorageCheck.check` takes."""

LEFT_TO_BROKERS = (
    errors.StorageUnavailableError, errors.StorageObjectNotFoundError, errors.StorageFormatError,
    errors.SignedLocationError,
)  # fmt: skip
"""Storage errors after which brokers serve the segment: temporary errors, and errors that concern only one segment.

Any other error means that the settings must change, unless the storage returns other segments.
"""

log = logging.getLogger(__name__)
T = TypeVar("T")
_MAX_UNREACHABLE = 16
"""Number of failures to reach the storage after which the storage is not asked for any further segment.

The brokers then serve all further segments. Each failure may take a whole timeout.
"""


class StorageCheck:
    """Check at the start of a query that the storage returns segments; it reads one byte of at most two segments.

    The keys of a segment's objects come either from the segment's own metadata or from the settings. One segment is
    read for each of these two sources of keys. If `falls_back` is false, errors in `LEFT_TO_BROKERS` are raised,
    because the query does not read from brokers instead.
    """

    def __init__(self, fetcher: RemoteStorageFetcher, *, falls_back: bool) -> None:
        self._falls_back = falls_back
        self._fetcher = fetcher
        self._checked: set[bool] = set()
        """Sources of object keys that were checked: True for the segment's own metadata, False for the settings."""

    @property
    def is_done(self) -> bool:
        """True if a segment was checked for both sources of object keys."""
        return len(self._checked) > 1

    def check(self, locations: Sequence[SegmentLocation]) -> None:
        """Take a sample of `locations`, and check one location for each source of object keys that was not checked yet.

        If the query falls back to brokers, errors of `LEFT_TO_BROKERS` are only logged. S3 also responds 403 for a
        missing object if the user has no permission to list the bucket. So if the storage refuses the object, objects
        of other segments in `locations` are requested.

        Raises:
            StorageBucketNotFoundError: the bucket or folder does not exist.
            ConfigurationError: the settings name a bucket, folder or key prefix that does not have the segments.
            StorageError: the error is not in `LEFT_TO_BROKERS`, and the storage returns no other segment either. Or the
                error is in `LEFT_TO_BROKERS`, and the query does not fall back to brokers.
        """
        for location in locations[:: len(locations) // _MAX_SAMPLES + 1]:
            by_metadata = self._fetcher.placed_by_metadata(location.segment)
            if by_metadata not in self._checked:
                self._check(location, locations)
                self._checked.add(by_metadata)

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


def gives(fetch: Callable[[], object]) -> bool:
    """Call `fetch`, and return whether the storage returned data: False if `fetch` raises a StorageError.

    The result is also True if `fetch` raises CorruptDataError or UnsupportedDataError, because data was returned.
    """
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


class UnreachableCount:
    """Counter of failures to reach the storage while one micro-batch is planned. Many threads may use it."""

    def __init__(self) -> None:
        self._failures: list[errors.StorageUnavailableError] = []

    @property
    def is_full(self) -> bool:
        """True after 16 failures, so that the storage is not asked for any further segment."""
        return len(self._failures) >= _MAX_UNREACHABLE

    def add(self, error: Exception) -> None:
        """Count the error if it is a failure to reach the storage."""
        if isinstance(error, errors.StorageUnavailableError):
            self._failures.append(error)


class SegmentsLeftOut:
    """Handler of storage failures while one micro-batch is planned; it counts the segments that brokers must serve.

    Many threads may use it.

    Args:
        segments: segments of the micro-batch, by partition, in offset order.
        unreachable: counter of failures to reach the storage while the micro-batch is planned; this class adds to it.
        falls_back: brokers can serve segments; if false, storage errors are raised.
    """

    def __init__(
        self,
        fetcher: RemoteStorageFetcher,
        segments: Mapping[TopicPartition, Sequence[VisibleSegment]],
        unreachable: UnreachableCount,
        *,
        falls_back: bool,
    ) -> None:
        self._fetcher = fetcher
        self._segments = segments
        self._falls_back = falls_back
        self._lock = threading.Lock()
        self._counts: Counter[TopicPartition] = Counter()
        self._reasons: dict[TopicPartition, tuple[int, errors.StorageError]] = {}
        """By partition, base offset and error of the failed segment with the lowest base offset."""
        self._unreachable = unreachable
        self._access_check: SingleFlightCache[None, bool] = SingleFlightCache(1)
        # Only the first missing object leads to a check.
        self._place_check: SingleFlightCache[None, None] = SingleFlightCache(1)

    def attempt(self, segment: RemoteLogSegment, work: Callable[[], T]) -> T | None:
        """Return the result of `work`, which reads objects of `segment`; None if the brokers must serve the segment.

        With `falls_back`, the brokers must serve the segment if `work` raises a StorageError. After 16 failures to
        reach the storage, `work` is not called, and the brokers must serve the segment.

        Raises:
            StorageBucketNotFoundError: the bucket or folder does not exist.
            ConfigurationError: the settings name a bucket, folder or key prefix that does not have the segments.
            StorageError: `work` raises it, and `falls_back` is false. Or the error is not in `LEFT_TO_BROKERS`, and
                the storage returns no other segment either.
        """
        error: errors.StorageError | None = None
        if not self._unreachable.is_full:
            try:
                return work()
            except errors.StorageBucketNotFoundError:
                raise
            except errors.StorageError as failure:
                if isinstance(failure, errors.StorageObjectNotFoundError):
                    self._place_check.get(None, partial(self._check_place, segment, failure))
                is_refused = not isinstance(failure, LEFT_TO_BROKERS)
                if not self._falls_back or (is_refused and not self._has_access(segment)):
                    raise
                self._unreachable.add(failure)
                error = failure
        with self._lock:
            self._counts[segment.topic_partition] += 1
            first = self._reasons.get(segment.topic_partition)
            if error is not None and (first is None or segment.base_offset < first[0]):
                self._reasons[segment.topic_partition] = segment.base_offset, error
        return None

    def report(self) -> None:
        """Log a warning for each partition with segments that brokers must serve: their number and a storage error."""
        for partition, count in self._counts.items():
            _, reason = self._reasons.get(partition) or next(iter(self._reasons.values()))
            log.warning(
                "%s: %d segment%s of this micro-batch %s read from the broker, because storage failed: %s",
                partition, count, "s" * (count > 1), "are" if count > 1 else "is", reason,
            )  # fmt: skip

    def _check_place(self, segment: RemoteLogSegment, missing: errors.StorageObjectNotFoundError) -> None:
        """Check whether an object is missing because the settings name the wrong bucket, folder or key prefix.

        The object belongs to `segment`. Another segment is also checked if the keys of its objects come from the other
        source. The source of a segment's object keys is the segment's own metadata, or the settings.

        Raises:
            ConfigurationError: the settings name the wrong bucket, folder or key prefix.
        """
        has_access = partial(self._has_access, segment)
        check_place(self._fetcher, segment, missing, has_access)
        # The missing object may belong to a later segment with keys from the other source, whose index is needed too.
        by_metadata = self._fetcher.placed_by_metadata
        other = next((other for other in self._newest() if by_metadata(other) != by_metadata(segment)), None)
        if other is None:
            return
        try:
            self._fetcher.fetch_log_segment(other, 0, 1)
        except errors.StorageObjectNotFoundError as also_missing:
            check_place(self._fetcher, other, also_missing, has_access)
        except (errors.StorageError, errors.CorruptDataError, errors.UnsupportedDataError):
            return

    def _has_access(self, refused: RemoteLogSegment) -> bool:
        """Return whether the storage can be read at all, so that its refusal concerns only the segment `refused`.

        Indexes of other segments are requested, or the log of `refused` if there is no other segment. Later calls
        return the result of the first call.
        """
        return self._access_check.get(None, lambda: self._gives_another(refused))

    def _gives_another(self, refused: RemoteLogSegment) -> bool:
        others = [segment for segment in self._newest() if segment.segment_id != refused.segment_id][:_MAX_OTHERS]
        if not others:
            return gives(partial(self._fetcher.fetch_log_segment, refused, 0, 1))
        return any(gives(partial(self._fetcher.fetch_indexes, segment, (IndexType.OFFSET,))) for segment in others)

    def _newest(self) -> list[RemoteLogSegment]:
        """Return the first and the last two segments of each partition, sorted by largest timestamp, newest first.

        The newest segments are least likely to be deleted.
        """
        ends = [part.segment for parts in self._segments.values() for part in (*parts[:1], *parts[-2:])]
        unique = {segment.segment_id: segment for segment in ends}
        return sorted(unique.values(), key=lambda segment: segment.max_timestamp, reverse=True)
