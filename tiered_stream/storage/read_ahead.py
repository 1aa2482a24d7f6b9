"""Read-ahead: the ranged GETs of a split, several at once, their bytes handed over in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter

from tiered_stream.errors import CorruptDataError
from tiered_stream.model import ByteRange, RemoteLogSegment
from tiered_stream.options.parsing import FetchOptions
from tiered_stream.storage.fetcher import RemoteStorageFetcher
from tiered_stream.storage.throttle import Pace

Request = tuple[int, RemoteLogSegment, ByteRange]
"""One GET: the position of its part in `parts`, the segment, the bytes."""


def read_ahead(
    fetcher: RemoteStorageFetcher,
    parts: Sequence[tuple[RemoteLogSegment, ByteRange]],
    options: FetchOptions,
    on_fetch: Callable[[int, float], None] = lambda size, seconds: None,
    pace: Pace = lambda size: None,
) -> Iterator[tuple[int, bytes]]:
    """The bytes of every part, in order, as pairs of the part's position in `parts` and the next bytes of it.

    All parts share one pipeline, so small segments are pulled as briskly as big ones. At most `options.in_flight`
    requests are under way, and at most `options.memory_bytes` bytes (but always one request) are under way, waiting,
    or with the consumer, who has let go of one response when it asks for the next. Closing the iterator drops what has
    not begun; the requests under way end by themselves, within the storage's timeouts.

    Args:
        on_fetch: called in the consumer's thread with each request's bytes and seconds.
        pace: called in the request's thread before it is sent.

    Raises:
        StorageError, CorruptDataError: at the place in the order where the bytes are missing.
    """
    requests = requests_of(fetcher, parts, options)
    upcoming = next(requests, None)
    waiting: deque[tuple[Request, Future[tuple[bytes, float]]]] = deque()
    held = 0
    # A pool of this call's own: nothing outlives it, and nothing is shared with a forked worker.
    pool = ThreadPoolExecutor(options.in_flight, thread_name_prefix="tiered-stream-fetch")
    try:
        while upcoming or waiting:
            while upcoming and (held == 0 or held + len(upcoming[2]) <= options.memory_bytes):
                waiting.append((upcoming, pool.submit(_fetch, fetcher, upcoming, pace)))
                held += len(upcoming[2])
                upcoming = next(requests, None)
            (part, _, byte_range), future = waiting.popleft()
            data, seconds = future.result()
            del future  # or it would keep the bytes while the consumer is at work on them
            on_fetch(len(data), seconds)
            yield part, data
            del data
            held -= len(byte_range)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def requests_of(
    fetcher: RemoteStorageFetcher, parts: Sequence[tuple[RemoteLogSegment, ByteRange]], options: FetchOptions
) -> Iterator[Request]:
    """The GETs for all parts, in order."""
    least = options.request_bytes
    most = max(least, min(2 * least, options.memory_bytes // options.in_flight))
    for part, (segment, wanted) in enumerate(parts):
        if 0 < len(wanted) <= least:
            # One GET in any layout, so the layout is not asked here, where it might have to read a manifest first.
            yield part, segment, wanted
        else:
            for byte_range in _joined(fetcher.request_ranges(segment, wanted, least), most):
                yield part, segment, byte_range


def _joined(ranges: Sequence[ByteRange], most: int) -> list[ByteRange]:
    """Neighbours in one request of up to `most` bytes: each costs milliseconds of a core, here and in the storage."""
    joined: list[ByteRange] = []
    for each in ranges:
        if joined and each.end - joined[-1].start <= most:
            joined[-1] = ByteRange(joined[-1].start, each.end)
        else:
            joined.append(each)
    return joined


def _fetch(fetcher: RemoteStorageFetcher, request: Request, pace: Pace) -> tuple[bytes, float]:
    """The bytes of one request, and how many seconds they took."""
    _, segment, wanted = request
    pace(len(wanted))
    begin = perf_counter()
    data = fetcher.fetch_log_segment(segment, wanted.start, wanted.end)
    if len(data) != len(wanted):
        raise CorruptDataError(
            f"{type(fetcher).__name__} gave {len(data)} bytes of segment {segment.segment_id} of "
            f"{segment.topic_partition}, not the {len(wanted)} of {wanted}"
        )
    return data, perf_counter() - begin
