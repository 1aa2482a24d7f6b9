"""Read-ahead: the ranged GETs of a task, several at once, their bytes handed over in order."""

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
"""One GET: the position of its part in `parts`, the segment, the bytes."""

_FIRST_REQUESTS = 3
"""Of a consumer who may stop early, before it has let go of all of them but one: 24 MiB where nothing is set."""
_LAYOUTS_AHEAD = 2
"""Parts whose layout is asked for before their requests are wanted: it may have to read a manifest first."""


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
    """The bytes of every part, in order, as pairs of the part's position in `parts` and the next bytes of it.

    All parts share one pipeline, so small segments are pulled as briskly as big ones. As many requests are under way
    as `window` thinks worth it, at most `options.in_flight`, and at most `options.memory_bytes` bytes (but always one
    request) are under way, waiting, or with the consumer, who has let go of one response when it asks for the next.
    Closing the iterator drops what has not begun, and what waits for `pace`; the requests under way end by themselves,
    within the storage's timeouts.

    Args:
        on_fetch: called in the consumer's thread with each request's bytes and seconds.
        pace: called in the request's thread before it is sent.
        may_stop: the consumer may have enough after a few rows, so little is asked for before it is seen to go on.
        window: what was learned of the storage, and is to learn more; without it, nothing is known.
        now: a clock in seconds.

    Raises:
        StorageError, CorruptDataError: at the place in the order where the bytes are missing.
    """
    window = window or RequestWindow(options)
    bytes_ahead = _BytesAhead(options, window, may_stop)
    waiting: deque[tuple[Request, Future[tuple[bytes, float]]]] = deque()
    worked: tuple[int, float] | None = None
    closed = Event()
    # A pool of this call's own: nothing outlives it, and nothing is shared with a forked worker.
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
            del future  # or it would keep the bytes while the consumer is at work on them
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
    """What was asked for and the consumer has not let go of, and how much more that may be."""

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
        """The most bytes of the next one."""
        most = self._window.request_bytes(first=not self._let_go)
        return most if self._goes_on else min(most, self._options.request_bytes)

    @property
    def _goes_on(self) -> bool:
        """Whether the consumer wants more than a first few rows."""
        return self._let_go >= self._first - self._options.request_bytes


def requests_of(fetcher: RemoteStorageFetcher, parts: Sequence[Part], options: FetchOptions) -> Iterator[Request]:
    """The GETs for all parts, in order."""
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
    """The parts with their ranges, neighbours joined; layouts of some parts are asked for while others are read."""
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
    """Neighbours in one, up to as many bytes as `largest` says when wanted, and a short rest with the last."""
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
        # One GET in any layout, so the layout is not asked here, where it might have to read a manifest first.
        return [wanted] if wanted else []
    return fetcher.request_ranges(segment, wanted, max(request_bytes // divided_by, 1))


class _Requests:
    """Requests in order; an error in finding the next one is kept for its place, after those that were found."""

    def __init__(self, requests: Iterator[Request]) -> None:
        self._requests = requests
        self._error: Exception | None = None

    def next(self) -> Request | None:
        """None: there is no more, or the next one was not to be found."""
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
    """The bytes of one request, and how many seconds they took. Raises CancelledError: nobody wants them any more."""
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
