"""Reader of the bytes of all splits of one task from the storage, and choice of the fetcher that requests the bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import cached_property

from tiered_stream.model import STORAGE_FORMAT, RemoteLogSegment, SegmentLocation, Split
from tiered_stream.options.parsing import Options
from tiered_stream.storage.fetcher import RemoteStorageFetcher
from tiered_stream.storage.open_fetcher import fetcher_for
from tiered_stream.storage.read_ahead import read_ahead
from tiered_stream.storage.request_window import window_for
from tiered_stream.storage.throttle import pace_of


class TaskStorage:
    """Reader of the bytes of all splits of a task from the storage, in the order of the splits.

    It reads ahead: requests for a split are sent while the split before it is decoded. If the bytes of a split cannot
    be read, or are not read to their end, the other splits can still be read. Splits without locations, or with an
    unknown storage format, are left out.
    """

    def __init__(self, splits: Sequence[Split], options: Options) -> None:
        self._splits = deque(split for split in splits if split.locations and not unknown_format(split.locations))
        self._options = options
        self._chunks: Generator[tuple[int, bytes], None, None] | None = None
        self._location_number = 0
        self._on_fetch: Callable[[int, float], None] = lambda size, seconds: None
        self._locations = [location for split in self._splits for location in split.locations]

    @cached_property
    def fetcher(self) -> RemoteStorageFetcher:
        """Return the fetcher for the locations of all splits, which is made at the first use."""
        return split_fetcher(self._locations, self._options)

    def bytes_of(
        self, split: Split, on_fetch: Callable[[int, float], None]
    ) -> Generator[tuple[int, bytes], None, None]:
        """Yield the bytes of one split in order, as pairs (index of the location in the split, bytes).

        Splits must be read in the task's order. If the caller skips splits before `split`, the bytes that were read
        ahead are dropped.

        Args:
            split: the split to read.
            on_fetch: called with the size in bytes and the duration in seconds of each request.

        Raises:
            StorageError: a request to the storage fails.
        """
        while self._splits[0] is not split:
            self._splits.popleft()
            self.close()
        self._on_fetch = on_fetch
        chunks = self._chunks or self._start_read_ahead()
        self._splits.popleft()
        first_number, missing_bytes = self._location_number, split.storage_bytes
        self._location_number += len(split.locations)
        try:
            while missing_bytes:
                location_number, data = next(chunks)
                missing_bytes -= len(data)
                yield location_number - first_number, data
                del data
        except BaseException:
            self.close()
            raise
        if not self._splits:
            self.close()

    def close(self) -> None:
        """Cancel the read-ahead, and drop the bytes that it has fetched.

        Splits can still be read: the next `bytes_of` starts a new read-ahead.
        """
        if self._chunks is not None:
            self._chunks.close()
            self._chunks = None

    def _start_read_ahead(self) -> Generator[tuple[int, bytes], None, None]:
        """Start to request the bytes of all splits that are not read yet; return (location's index, bytes) pairs."""
        options = self._options
        parts = [(location.segment, location.bytes) for split in self._splits for location in split.locations]
        self._location_number = 0
        self._chunks = read_ahead(
            self.fetcher, parts, options.fetch, lambda size, seconds: self._on_fetch(size, seconds),
            pace_of("fetch", options.max_bytes_per_second), may_stop=not options.streaming, window=window_for(options),
        )  # fmt: skip
        return self._chunks


def split_fetcher(locations: Sequence[SegmentLocation], options: Options) -> RemoteStorageFetcher:
    """Return a fetcher for the segments of these locations.

    If a location has a signed URL, and the user has configured no fetcher class, the fetcher reads by signed URLs
    (KIP-1254). If the storage refuses a URL, the fetcher requests a new URL from the broker. Without signed URLs, the
    result is the fetcher that `fetcher_for` returns.

    Raises:
        ConfigurationError: the settings of the storage or of the fetcher class are wrong.
    """
    signed = {location.segment.segment_id: location for location in locations if location.signed_url is not None}
    if not signed or options.fetcher_class is not None:
        return fetcher_for(options)

    from tiered_stream.storage.signed.presigned import PresignedFetcher, signed_requests

    def renew(segment: RemoteLogSegment) -> str | None:
        from tiered_stream.broker.client import open_client
        from tiered_stream.locate.broker_locator import BrokerLocator

        locator = BrokerLocator(open_client(options.kafka), options.isolation_level, part_bytes=0)
        return locator.signed_url(signed[segment.segment_id])

    return PresignedFetcher(
        {segment_id: location.signed_url or "" for segment_id, location in signed.items()},
        renew,
        signed_requests(options.storage),
        fetcher_for(options) if options.storage.uri is not None else None,
    )


def unknown_format(locations: Sequence[SegmentLocation]) -> SegmentLocation | None:
    """Return the first location whose storage format is not `STORAGE_FORMAT`, the only supported one, or None."""
    return next((location for location in locations if location.storage_format != STORAGE_FORMAT), None)
