"""Read-ahead: send several of a task's ranged GETs at once, and hand over their bytes in order."""

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
from tiered_stream.storage.request_window import SMALLEST, RequestWindow
from tiered_stream.storage.throttle import StoppablePace, unpaced

Part = tuple[RemoteLogSegment, ByteRange]
Request = tuple[int, RemoteLogSegment, ByteRange]
"""One GET: the position of its part in `parts`, the segment, and the bytes of the segment."""

_FIRST_REQUESTS = 3
"""Number of requests sent at first for a consumer that may stop early; 24 MiB by default.

More are sent after the consumer has released all but one of them.
"""
_LAYOUTS_AHEAD = 2
"""Number of parts whose layout is read before their requests are needed, because a layout may need a manifest."""


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
    """Yield the bytes of all parts in order, as pairs of the part's position in `parts` and its next bytes.

    All parts share one pipeline, so small segments are read as fast as large ones. The number of requests in flight is
    chosen by `window`, and is at most `options.in_flight`. At most `options.memory_bytes` bytes (but always one
    request) are in flight, waiting, or held by the consumer, which releases one response when it asks for the next one.
    Closing the iterator cancels requests that have not begun or that wait for `pace`. Requests in flight end by
    themselves, within the storage's timeouts.

    Args:
        on_fetch: called in the consumer's thread with the bytes and seconds of each request.
        pace: called in the request's thread before the request is sent.
        may_stop: the consumer may stop after a few rows, so few bytes are requested until it is seen to continue.
        window: speeds that were measured before, and that this call adds to; None: nothing is known yet.
        now: a clock in seconds.

    Raises:
        StorageError, CorruptDataError: raised at the point in the order where the bytes are missing.
    """
    window = window or RequestWindow(options)
    bytes_ahead = _BytesAhead(options, window, may_stop)
    waiting: deque[tuple[Request, Future[tuple[bytes, float]]]] = deque()
    worked: tuple[int, float] | None = None
    closed = Event()
    # The pool belongs to this call: no thread outlives the call or is shared with a forked worker.
    pool = ThreadPoolExecutor(options.in_flight, thread_name_prefix="tiered-stream-fetch")
    try:
        requests = _Requests(_in_order(_looked_up(pool, fetcher, parts, options, bytes_ahead.largest_request)))
        upcoming = requests.next()
        while upcoming or waiting:
            while upcoming and len(waiting) < window.size and bytes_ahead.has_room(len(upcoming[2])):
                waiting.append((upcoming, pool.submit(_fetch, fetcher, upcoming, pace, closed, now)))
                bytes_ahead.asked(len(upcoming[2]))
                upcoming = requests.next()
            (part, _, byte_range), future = waiting.popleft()
            data, seconds = future.result()
            del future  # so that `future` does not keep the bytes while the consumer works on them
            window.taken(len(data), seconds, worked, fetcher.busy_answers())
            on_fetch(len(data), seconds)
            began = now()
            yield part, data
            worked = len(data), now() - began
            del data
            bytes_ahead.let_go(len(byte_range))
        requests.raise_error()
    finally:
        closed.set()
        pool.shutdown(wait=False, cancel_futures=True)


class _BytesAhead:
    """Counter of the bytes that were requested and not yet released by the consumer, and the limit of these bytes."""

    def __init__(self, options: FetchOptions, window: RequestWindow, may_stop: bool) -> None:
        self._options = options
        self._window = window
        self._first = _FIRST_REQUESTS * options.request_bytes if may_stop else 0
        self._held = self._let_go = 0

    def asked(self, size: int) -> None:
        self._held += size

    def let_go(self, size: int) -> None:
        self._held -= size
        self._let_go += size

    def has_room(self, size: int) -> bool:
        most = self._options.memory_bytes
        return not self._held or self._held + size <= (most if self._goes_on else min(self._first - self._let_go, most))

    def largest_request(self) -> int:
        """Return the maximum number of bytes of the next request."""
        most = self._window.request_bytes(first=not self._let_go)
        return most if self._goes_on else min(most, self._options.request_bytes)

    @property
    def _goes_on(self) -> bool:
        """True if the consumer wants more than a first few rows."""
        return self._let_go >= self._first - self._options.request_bytes


def requests_of(fetcher: RemoteStorageFetcher, parts: Sequence[Part], options: FetchOptions) -> Iterator[Request]:
    """Return an iterator over the GETs for all parts, in order."""
    ranges = (_ranges_of(fetcher, part, options.request_bytes) for part in parts)
    return _in_order(zip(parts, ranges, strict=True))


def _in_order(parts: Iterator[tuple[Part, Iterable[ByteRange]]]) -> Iterator[Request]:
    return chain.from_iterable(
        ((number, segment, each) for each in ranges) for number, ((segment, _), ranges) in enumerate(parts)
    )


def _looked_up(
    pool: ThreadPoolExecutor,
    fetcher: RemoteStorageFetcher,
    parts: Sequence[Part],
    options: FetchOptions,
    largest: Callable[[], int],
) -> Iterator[tuple[Part, Iterator[ByteRange]]]:
    """Yield the parts with their ranges, adjacent ranges joined; read the layouts of a few parts ahead."""
    asked: deque[tuple[Part, Callable[[], Sequence[ByteRange]]]] = deque()
    for part in parts:
        ask = partial(_ranges_of, fetcher, part, options.request_bytes, SMALLEST)
        asked.append((part, ask if len(part[1]) <= options.request_bytes else pool.submit(ask).result))
        if len(asked) > _LAYOUTS_AHEAD:
            oldest, ranges = asked.popleft()
            yield oldest, _joined(ranges(), largest)
    for oldest, ranges in asked:
        yield oldest, _joined(ranges(), largest)


def _joined(ranges: Sequence[ByteRange], largest: Callable[[], int]) -> Iterator[ByteRange]:
    """Yield the ranges, adjacent ones joined up to `largest()` bytes; a short rest is joined to the last range.

    `largest` is called when a range is wanted.
    """
    upcoming = deque(ranges)
    while upcoming:
        start, end = upcoming[0].start, upcoming.popleft().end
        most = largest()
        while upcoming and upcoming[0].end - start <= most:
            end = upcoming.popleft().end
        if upcoming and upcoming[-1].end - end <= most // 2:
            end = upcoming[-1].end
            upcoming.clear()
        yield ByteRange(start, end)


def _ranges_of(
    fetcher: RemoteStorageFetcher, part: Part, request_bytes: int, divided_by: int = 1
) -> Sequence[ByteRange]:
    segment, wanted = part
    if len(wanted) <= request_bytes:
        # A short part is one GET in any layout. So do not ask the layout, which might have to read a manifest first.
        return [wanted] if wanted else []
    return fetcher.request_ranges(segment, wanted, max(request_bytes // divided_by, 1))


class _Requests:
    """Iterator over requests that keeps an error in finding the next request until the earlier ones are done."""

    def __init__(self, requests: Iterator[Request]) -> None:
        self._requests = requests
        self._error: Exception | None = None

    def next(self) -> Request | None:
        """Return the next request, or None if there is none or finding it failed."""
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
    """Return the bytes of one request and the seconds it took. Raises CancelledError if the iterator was closed."""
    _, segment, wanted = request
    if not pace(len(wanted), closed) or closed.is_set():
        raise CancelledError
    begin = now()
    data = fetcher.fetch_log_segment(segment, wanted.start, wanted.end)
    if len(data) != len(wanted):
        raise CorruptDataError(
            f"{type(fetcher).__name__} gave {len(data)} bytes of segment {segment.segment_id} of "
            f"{segment.topic_partition}, not the {len(wanted)} of {wanted}"
        )
    return data, now() - begin
