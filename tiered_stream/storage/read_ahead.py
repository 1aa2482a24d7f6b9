"""Read-ahead, which sends several of a task's ranged GETs at once, and yields their bytes in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from itertools import islice
from threading import Event
from time import perf_counter

from tiered_stream.errors import CorruptDataError
from tiered_stream.model import ByteRange, RemoteLogSegment
from tiered_stream.options.parsing import FetchOptions
from tiered_stream.storage.fetcher import RemoteStorageFetcher
from tiered_stream.storage.request_window import RequestWindow
from tiered_stream.storage.throttle import StoppablePace, unpaced

Part = tuple[RemoteLogSegment, ByteRange]
Request = tuple[int, RemoteLogSegment, ByteRange]
"""One GET: the index of its part in `parts`, the segment, and the range of the segment's bytes."""

_REQUESTS_BEFORE_PAUSE = 3
"""Number of requests that are sent at first for a consumer that may stop early; they fetch 24 MiB by default.

When the consumer has released all but one of the responses, more requests are sent.
"""
_LAYOUTS_AHEAD = 2
"""Number of further parts whose byte ranges are determined in advance.

To determine a part's byte ranges, a fetcher may have to read a manifest.
"""


def read_ahead(
    fetcher: RemoteStorageFetcher,
    parts: Sequence[Part],
    options: FetchOptions,
    on_fetch: Callable[[int, float], None] = lambda size, seconds: None,
    pace: StoppablePace = unpaced,
    *,
    may_stop: bool = False,
    window: RequestWindow | None = None,
) -> Generator[tuple[int, bytes], None, None]:
    """Yield the bytes of all parts in order, as pairs of a part's position in `parts` and the part's next bytes.

    Requests for the next part are sent while a part is still read. `window` chooses the number of requests in flight,
    which is at most `options.in_flight`.

    The limit `options.memory_bytes` covers requests in flight, responses that wait, and the response that was yielded
    last, until the consumer asks for the next one. One request is always allowed. Closing the iterator cancels requests
    that have not begun or that wait for `pace`; the others end within the storage's timeouts.

    Args:
        options: limits on the size, the number and the memory of requests.
        on_fetch: called in the consumer's thread for each response, with its number of bytes and the request's seconds.
        pace: called in the request's thread before the request is sent; it waits until the bytes may be read.
        may_stop: the consumer may stop after a few rows. So few bytes are requested at first.
        window: request window with the speeds that earlier calls measured, and to which this call adds its own. None: a
            new window.

    Raises:
        StorageError, CorruptDataError: bytes cannot be fetched; the error is raised after all bytes before them.
    """
    window = window or RequestWindow(options)
    bytes_ahead = _BytesAhead(options, may_stop)
    waiting: deque[tuple[Request, Future[tuple[bytes, float]]]] = deque()
    work: tuple[int, float] | None = None
    closed = Event()
    # The pool belongs to this call: no thread outlives the call or is shared with a forked worker.
    pool = ThreadPoolExecutor(options.in_flight, thread_name_prefix="tiered-stream-fetch")
    try:
        requests = _requests(pool, fetcher, parts, options.request_bytes, window)
        upcoming = next(requests, None)
        while waiting or isinstance(upcoming, tuple):
            while isinstance(upcoming, tuple) and len(waiting) < window.size and bytes_ahead.has_room(len(upcoming[2])):
                waiting.append((upcoming, pool.submit(_fetch, fetcher, upcoming, pace, closed)))
                bytes_ahead.requested += len(upcoming[2])
                upcoming = next(requests, None)
            (part, _, byte_range), future = waiting.popleft()
            data, seconds = future.result()
            del future  # so that `future` does not keep the bytes while the consumer works on them
            window.record_response(len(data), seconds, work, fetcher.slow_down_responses())
            on_fetch(len(data), seconds)
            began = perf_counter()
            yield part, data
            work = len(data), perf_counter() - began
            del data
            bytes_ahead.released += len(byte_range)
        if upcoming is not None:
            raise upcoming
    finally:
        closed.set()
        pool.shutdown(wait=False, cancel_futures=True)


class _BytesAhead:
    """Counter of the bytes that were requested, and of the bytes that the consumer has released."""

    def __init__(self, options: FetchOptions, may_stop: bool) -> None:
        self._options = options
        self._before_pause = _REQUESTS_BEFORE_PAUSE * options.request_bytes if may_stop else 0
        self.requested = self.released = 0

    def has_room(self, size: int) -> bool:
        """Return whether a request of `size` more bytes would keep to the limits of requested, unreleased bytes."""
        ahead, limit = self.requested - self.released, self._options.memory_bytes
        if self.released < self._before_pause - self._options.request_bytes:
            limit = min(self._before_pause - self.released, limit)
        return not ahead or ahead + size <= limit


def requests_of(fetcher: RemoteStorageFetcher, parts: Sequence[Part], options: FetchOptions) -> Iterator[Request]:
    """Yield the GETs that read all parts in order.

    A part of at most `options.request_bytes` is one GET. A larger part is cut into GETs of about
    `options.request_bytes` to twice that size.
    """
    for number, part in enumerate(parts):
        for byte_range in _ranges_of(fetcher, part, options.request_bytes, options.request_bytes):
            yield number, part[0], byte_range


def _requests(
    pool: ThreadPoolExecutor,
    fetcher: RemoteStorageFetcher,
    parts: Sequence[Part],
    request_bytes: int,
    window: RequestWindow,
) -> Iterator[Request | Exception]:
    """Yield the GETs that read all parts in order, of the size that `window` chooses when the next one is needed.

    The byte ranges of `_LAYOUTS_AHEAD` further parts are determined ahead in `pool`, because that may need a manifest.
    An error is yielded in place of further GETs, because it is to be raised after the bytes before it.
    """
    smallest = max(request_bytes // 2, 1)  # larger requests are joined from these ranges
    layouts: deque[Future[Sequence[ByteRange]]] = deque()
    upcoming = iter(parts)
    try:
        for number, (segment, _) in enumerate(parts):
            for part in islice(upcoming, _LAYOUTS_AHEAD + 1 - len(layouts)):
                layouts.append(pool.submit(_ranges_of, fetcher, part, request_bytes, smallest))
            for byte_range in _joined(layouts.popleft().result(), window.request_bytes):
                yield number, segment, byte_range
    except Exception as error:  # noqa: BLE001 - the reader of the GETs raises it
        yield error


def _joined(ranges: Sequence[ByteRange], max_bytes: Callable[[], int]) -> Iterator[ByteRange]:
    """Yield `ranges`, with adjacent ranges joined to ranges of at most `max_bytes()` bytes.

    `max_bytes` is called when the next range is needed. If the bytes that are left at the end are at most half of
    `max_bytes()`, they are joined to the last range.
    """
    upcoming = deque(ranges)
    while upcoming:
        start, end = upcoming[0].start, upcoming.popleft().end
        limit = max_bytes()
        while upcoming and upcoming[0].end - start <= limit:
            end = upcoming.popleft().end
        if upcoming and upcoming[-1].end - end <= limit // 2:
            end = upcoming[-1].end
            upcoming.clear()
        yield ByteRange(start, end)


def _ranges_of(fetcher: RemoteStorageFetcher, part: Part, request_bytes: int, range_bytes: int) -> Sequence[ByteRange]:
    """Cut the part into the fetcher's ranges of about `range_bytes`.

    A part of at most `request_bytes` is one range, and an empty part has no range.
    """
    segment, byte_range = part
    if len(byte_range) <= request_bytes:
        # A short part is one GET in any layout. So do not ask the layout, which might have to read a manifest first.
        return [byte_range] if byte_range else []
    return fetcher.request_ranges(segment, byte_range, range_bytes)


def _fetch(fetcher: RemoteStorageFetcher, request: Request, pace: StoppablePace, closed: Event) -> tuple[bytes, float]:
    """Fetch the bytes of one request, and return them with the duration in seconds.

    `pace` waits before the request is sent. If the event `closed` is set, CancelledError is raised instead.
    """
    _, segment, byte_range = request
    if not pace(len(byte_range), closed) or closed.is_set():
        raise CancelledError
    begin = perf_counter()
    data = fetcher.fetch_log_segment(segment, byte_range.start, byte_range.end)
    if len(data) != len(byte_range):
        raise CorruptDataError(
            f"{type(fetcher).__name__} gave {len(data)} bytes of {segment}, not the {len(byte_range)} of {byte_range}"
        )
    return data, perf_counter() - begin
