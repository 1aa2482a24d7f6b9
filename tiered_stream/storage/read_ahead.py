"""Read-ahead, which sends several of a task's ranged GETs at once, and yields their bytes in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import partial
from itertools import chain
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
"""Number of requests sent at first for a consumer that may stop early; 24 MiB by default.

When the consumer has released all but one of their responses, more requests are sent.
"""
_LAYOUTS_AHEAD = 2
"""Number of parts whose byte ranges are determined before the parts' requests are needed.

To determine them, the fetcher of a layout may have to read a manifest.
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
    now: Callable[[], float] = perf_counter,
) -> Generator[tuple[int, bytes], None, None]:
    """Yield the bytes of all parts in order, as pairs of a part's position in `parts` and the part's next bytes.

    Requests for the next part are sent while a part is still read, so small segments are read as fast as large ones.
    `window` chooses the number of requests in flight, which is at most `options.in_flight`.

    The limit `options.memory_bytes` covers the bytes of requests in flight and of responses that wait. It also covers
    the response that was yielded last, until the consumer asks for the next one. One request is always allowed. Closing
    the iterator cancels requests that have not begun or that wait for `pace`; the others end within the storage's
    timeouts.

    Args:
        on_fetch: called in the consumer's thread for each response, with its number of bytes and the request's seconds.
        pace: called in the request's thread before the request is sent; it waits until the bytes may be read.
        may_stop: the consumer may stop after a few rows. So few bytes are requested at first.
        window: speeds that earlier calls measured; this call adds its own. None: a new window.
        now: clock in seconds.

    Raises:
        StorageError, CorruptDataError: raised at the point in the order where the bytes are missing.
    """
    window = window or RequestWindow(options)
    bytes_ahead = _BytesAhead(options, window, may_stop)
    waiting: deque[tuple[Request, Future[tuple[bytes, float]]]] = deque()
    work: tuple[int, float] | None = None
    closed = Event()
    # The pool belongs to this call: no thread outlives the call or is shared with a forked worker.
    pool = ThreadPoolExecutor(options.in_flight, thread_name_prefix="tiered-stream-fetch")
    try:
        requests = _Requests(_in_order(_with_ranges(pool, fetcher, parts, options, bytes_ahead.max_request)))
        upcoming = requests.next()
        while upcoming or waiting:
            while upcoming and len(waiting) < window.size and bytes_ahead.has_room(len(upcoming[2])):
                waiting.append((upcoming, pool.submit(_fetch, fetcher, upcoming, pace, closed, now)))
                bytes_ahead.add(len(upcoming[2]))
                upcoming = requests.next()
            (part, _, byte_range), future = waiting.popleft()
            data, seconds = future.result()
            del future  # so that `future` does not keep the bytes while the consumer works on them
            window.record_response(len(data), seconds, work, fetcher.busy_answers())
            on_fetch(len(data), seconds)
            began = now()
            yield part, data
            work = len(data), now() - began
            del data
            bytes_ahead.release(len(byte_range))
        requests.raise_error()
    finally:
        closed.set()
        pool.shutdown(wait=False, cancel_futures=True)


class _BytesAhead:
    """Counter of the bytes that were requested and that the consumer has not released; it limits further requests."""

    def __init__(self, options: FetchOptions, window: RequestWindow, may_stop: bool) -> None:
        self._options = options
        self._window = window
        self._before_pause = _REQUESTS_BEFORE_PAUSE * options.request_bytes if may_stop else 0
        self._ahead = self._released = 0

    def add(self, size: int) -> None:
        self._ahead += size

    def release(self, size: int) -> None:
        self._ahead -= size
        self._released += size

    def has_room(self, size: int) -> bool:
        """Return whether the limits of bytes allow to send another request of `size` bytes now."""
        limit = self._options.memory_bytes
        if not self._goes_on:
            limit = min(self._before_pause - self._released, limit)
        return not self._ahead or self._ahead + size <= limit

    def max_request(self) -> int:
        """Return the maximum number of bytes of the next request."""
        size = self._window.request_bytes()
        return size if self._goes_on else min(size, self._options.request_bytes)

    @property
    def _goes_on(self) -> bool:
        """True if requests are no longer kept few because the consumer may stop early.

        It is always true if `may_stop` is false. Otherwise it becomes true once the consumer has released almost all
        bytes of the first requests.
        """
        return self._released >= self._before_pause - self._options.request_bytes


def requests_of(fetcher: RemoteStorageFetcher, parts: Sequence[Part], options: FetchOptions) -> Iterator[Request]:
    """Return an iterator over the GETs that read all parts in order.

    A part of at most `options.request_bytes` is one GET. A larger part is cut into GETs of about
    `options.request_bytes` to twice that size.
    """
    ranges = (_ranges_of(fetcher, part, options.request_bytes, options.request_bytes) for part in parts)
    return _in_order(zip(parts, ranges, strict=True))


def _in_order(parts: Iterator[tuple[Part, Iterable[ByteRange]]]) -> Iterator[Request]:
    return chain.from_iterable(
        ((number, segment, byte_range) for byte_range in ranges) for number, ((segment, _), ranges) in enumerate(parts)
    )


def _with_ranges(
    pool: ThreadPoolExecutor,
    fetcher: RemoteStorageFetcher,
    parts: Sequence[Part],
    options: FetchOptions,
    max_bytes: Callable[[], int],
) -> Iterator[tuple[Part, Iterator[ByteRange]]]:
    """Yield each part with an iterator over the byte ranges of its requests.

    The byte ranges of `_LAYOUTS_AHEAD` further parts are determined ahead in `pool`, because that may need a manifest.

    Args:
        max_bytes: returns the maximum number of bytes of the next request.
    """
    ahead: deque[tuple[Part, Callable[[], Sequence[ByteRange]]]] = deque()
    for part in parts:
        # The smallest requests have half the usual size; larger ones are joined from their ranges.
        layout = partial(_ranges_of, fetcher, part, options.request_bytes, max(options.request_bytes // 2, 1))
        ahead.append((part, layout if len(part[1]) <= options.request_bytes else pool.submit(layout).result))
        if len(ahead) > _LAYOUTS_AHEAD:
            oldest, ranges = ahead.popleft()
            yield oldest, _joined(ranges(), max_bytes)
    for oldest, ranges in ahead:
        yield oldest, _joined(ranges(), max_bytes)


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


class _Requests:
    """Iterator over requests that keeps an error of the iterator `requests` until `raise_error` is called."""

    def __init__(self, requests: Iterator[Request]) -> None:
        self._requests = requests
        self._error: Exception | None = None

    def next(self) -> Request | None:
        """Return the next request, or None at the end or after an error."""
        try:
            return next(self._requests, None)
        except Exception as error:  # noqa: BLE001 - raised by `raise_error`
            self._error = error
            return None

    def raise_error(self) -> None:
        if self._error is not None:
            raise self._error


def _fetch(
    fetcher: RemoteStorageFetcher, request: Request, pace: StoppablePace, closed: Event, now: Callable[[], float]
) -> tuple[bytes, float]:
    """Fetch the bytes of one request, and return them with the duration in seconds.

    Raises:
        CancelledError: the event `closed` was set before the request was sent.
        StorageError, CorruptDataError: the errors of `fetch_log_segment`, or the fetcher returned another number of
            bytes.
    """
    _, segment, byte_range = request
    if not pace(len(byte_range), closed) or closed.is_set():
        raise CancelledError
    begin = now()
    data = fetcher.fetch_log_segment(segment, byte_range.start, byte_range.end)
    if len(data) != len(byte_range):
        raise CorruptDataError(
            f"{type(fetcher).__name__} gave {len(data)} bytes of segment {segment.segment_id} of "
            f"{segment.topic_partition}, not the {len(byte_range)} of {byte_range}"
        )
    return data, now() - begin
