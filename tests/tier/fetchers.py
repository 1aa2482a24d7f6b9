"""Bases of fetchers that a test makes: most of what is asked for is another fetcher's, or is not to be asked for."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tiered_stream.model import ByteRange, RemoteLogSegment
from tiered_stream.storage.fetcher import IndexType, RemoteStorageFetcher


class PassingFetcher(RemoteStorageFetcher):
    """Passes on what it is asked for."""

    fetcher: RemoteStorageFetcher

    def __init__(self, fetcher: RemoteStorageFetcher) -> None:
        self.fetcher = fetcher

    def fetch_log_segment(self, segment: RemoteLogSegment, start: int, end: int = -1) -> bytes:
        return self.fetcher.fetch_log_segment(segment, start, end)

    def fetch_indexes(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> dict[IndexType, bytes]:
        return self.fetcher.fetch_indexes(segment, types)

    def request_ranges(self, segment: RemoteLogSegment, wanted: ByteRange, request_bytes: int) -> Sequence[ByteRange]:
        return self.fetcher.request_ranges(segment, wanted, request_bytes)


class IndexesOnly(RemoteStorageFetcher):
    """Has indexes, those of a subclass. Nobody is to ask it for bytes of a log."""

    def fetch_log_segment(self, segment: RemoteLogSegment, start: int, end: int = -1) -> bytes:
        raise AssertionError(f"the log of {segment} was asked for, from byte {start} to {end}")

    def fetch_indexes(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> dict[IndexType, bytes]:
        raise AssertionError(f"indexes of {segment} were asked for")
