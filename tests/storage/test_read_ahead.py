from __future__ import annotations

import threading
from collections.abc import Collection, Generator, Sequence
from time import monotonic

import pytest

from tests.storage.segment import segment
from tiered_stream.errors import CorruptDataError, StorageObjectNotFoundError
from tiered_stream.model import ByteRange, RemoteLogSegment
from tiered_stream.options.parsing import FetchOptions
from tiered_stream.storage.fetcher import IndexType, RemoteStorageFetcher
from tiered_stream.storage.read_ahead import Part, read_ahead, requests_of
from tiered_stream.storage.request_window import FIRST_REQUESTS, RequestWindow
from tiered_stream.storage.throttle import StoppablePace

PATIENCE = 10.0


@pytest.fixture
def standing_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clock stand still, so that what a window knows is not changed by what a read-ahead measures."""
    monkeypatch.setattr("tiered_stream.storage.read_ahead.perf_counter", lambda: 0.0)


class MemoryFetcher(RemoteStorageFetcher):
    """Segments whose byte at position p is p modulo 251. A test may hold requests back, or let one fail."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.fail_at: dict[int, Exception] = {}
        self.begun: list[int] = []
        self.running = self.most_running = self.bytes_out = 0
        self.changed = threading.Condition()
        self.busy = 0

    def slow_down_responses(self) -> int:
        return self.busy

    def fetch_log_segment(self, segment: RemoteLogSegment, start: int, end: int = -1) -> bytes:
        with self.changed:
            self.begun.append(start)
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            self.changed.notify_all()
        assert self.gate.wait(PATIENCE)
        with self.changed:
            self.running -= 1
            self.bytes_out += end - start
            self.changed.notify_all()
        if start in self.fail_at:
            raise self.fail_at[start]
        return bytes(position % 251 for position in range(start, end))

    def fetch_indexes(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> dict[IndexType, bytes]:
        return {}

    def wait_until_begun(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.begun) >= count, PATIENCE)


def options(request_bytes: int = 10, in_flight: int = 4, memory_bytes: int = 1000) -> FetchOptions:
    return FetchOptions(request_bytes, in_flight, memory_bytes)


def fetch_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("tiered-stream-fetch")]


def wait_until_no_fetch_thread_is_left() -> None:
    deadline = monotonic() + PATIENCE
    for thread in fetch_threads():
        thread.join(deadline - monotonic())
    assert fetch_threads() == []


def test_the_bytes_of_all_parts_come_in_order() -> None:
    parts = [(segment(95), ByteRange(5, 95)), (segment(7), ByteRange(0, 7)), (segment(300), ByteRange(100, 131))]
    got = dict.fromkeys(range(len(parts)), b"")
    seen = []
    for part, data in read_ahead(MemoryFetcher(), parts, options()):
        got[part] += data
        seen.append(part)
    assert seen == sorted(seen)
    assert [got[part] for part in range(len(parts))] == [
        bytes(position % 251 for position in range(byte_range.start, byte_range.end)) for _, byte_range in parts
    ]


class KnownStorage(RequestWindow):
    """What it takes is known: so many times as long as to decode. A test's clock says nothing."""

    def __init__(self, times: float, given: FetchOptions) -> None:
        super().__init__(given)
        super().record_response(given.request_bytes, times, (given.request_bytes, 1.0), 0)

    def record_response(
        self, size: int, seconds: float, work: tuple[int, float] | None, slow_down_responses: int
    ) -> None:
        pass


def known(times: float, given: FetchOptions, parts: Sequence[Part]) -> list[int]:
    """The bytes of each request to such a storage."""
    read = list(read_ahead(MemoryFetcher(), parts, given, window=KnownStorage(times, given)))
    assert b"".join(data for _, data in read) == b"".join(
        bytes(position % 251 for position in range(len(wanted))) for _, wanted in parts
    )
    return [len(data) for _, data in read]


def test_a_quick_storage_is_asked_for_neighbours_together_up_to_twice_the_wanted_size() -> None:
    parts = [(segment(95), ByteRange(0, 95)), (segment(20), ByteRange(0, 20)), (segment(5), ByteRange(0, 5))]
    assert known(0.01, options(memory_bytes=80), parts) == [20, 20, 20, 20, 15, 20, 5]
    assert known(0.01, options(memory_bytes=40), parts) == [10] * 8 + [15, 10, 10, 5]


def test_where_memory_does_not_hold_what_a_slow_storage_needs_requests_are_smaller() -> None:
    parts = [(segment(95), ByteRange(0, 95))]
    assert known(10.0, options(8, memory_bytes=80), parts) == [4] * 22 + [7]


def test_larger_requests_bring_a_consumer_who_may_stop_no_more_bytes_ahead() -> None:
    fetcher, given = MemoryFetcher(), options()
    pieces = read_ahead(
        fetcher, [(segment(90), ByteRange(0, 90))], given, window=KnownStorage(0.01, given), may_stop=True
    )
    sizes = [len(next(pieces)[1])]
    wait_until_idle(fetcher, 1)
    assert fetcher.begun == [0]
    assert [*sizes, *(len(data) for _, data in pieces)] == [20, 20, 20, 30]


@pytest.mark.usefixtures("standing_clock")
def test_requests_are_of_the_wanted_size_before_anything_is_known() -> None:
    read = read_ahead(MemoryFetcher(), [(segment(45), ByteRange(0, 45))], options())
    assert [len(data) for _, data in read] == [10, 10, 10, 15]


def test_an_empty_part_and_no_part_at_all_ask_nothing() -> None:
    fetcher = MemoryFetcher()
    assert list(read_ahead(fetcher, [(segment(9), ByteRange(4, 4))], options())) == []
    assert list(read_ahead(fetcher, [], options())) == []
    assert fetcher.begun == []


def test_small_segments_are_fetched_at_once_but_no_more_than_in_flight() -> None:
    fetcher = MemoryFetcher()
    fetcher.gate.clear()
    parts = [(segment(5, base_offset=10 * part), ByteRange(0, 5)) for part in range(20)]
    consumer = threading.Thread(target=lambda: list(read_ahead(fetcher, parts, options(in_flight=3))))
    consumer.start()
    fetcher.wait_until_begun(3)
    fetcher.gate.set()
    consumer.join(PATIENCE)
    assert len(fetcher.begun) == 20
    assert fetcher.most_running == 3


@pytest.mark.usefixtures("standing_clock")
def test_what_is_under_way_waiting_and_with_the_consumer_stays_within_the_memory() -> None:
    fetcher = MemoryFetcher()
    parts = [(segment(200), ByteRange(0, 200))]
    consumed = 0
    for _, data in read_ahead(fetcher, parts, options(in_flight=8, memory_bytes=30)):
        with fetcher.changed:
            # This piece is still held, so of what came after it only what fits beside it may have been asked for.
            assert 10 * len(fetcher.begun) <= consumed + 30
        consumed += len(data)
    assert consumed == 200


def test_a_request_larger_than_the_memory_is_made_alone() -> None:
    pieces = list(read_ahead(MemoryFetcher(), [(segment(95), ByteRange(0, 95))], options(memory_bytes=5)))
    assert sum(len(data) for _, data in pieces) == 95


def test_an_error_comes_at_its_place_and_later_requests_are_dropped() -> None:
    fetcher = MemoryFetcher()
    fetcher.fail_at[20] = StorageObjectNotFoundError("gone")
    got = []
    with pytest.raises(StorageObjectNotFoundError, match="gone"):
        for _, data in read_ahead(
            fetcher, [(segment(1000), ByteRange(0, 1000))], options(in_flight=1, memory_bytes=50)
        ):
            got.append(data)
    assert b"".join(got) == bytes(range(20))
    wait_until_no_fetch_thread_is_left()
    assert len(fetcher.begun) < 10


def test_closing_drops_what_has_not_begun_and_leaves_no_thread() -> None:
    fetcher = MemoryFetcher()
    pieces = read_ahead(fetcher, [(segment(1000), ByteRange(0, 1000))], options(in_flight=2))
    next(pieces)
    fetcher.gate.clear()
    pieces.close()  # type: ignore[attr-defined]
    fetcher.gate.set()
    wait_until_no_fetch_thread_is_left()
    assert fetcher.running == 0


def test_a_fetcher_that_gives_fewer_bytes_than_asked_for_is_caught() -> None:
    class ShortFetcher(MemoryFetcher):
        def fetch_log_segment(self, segment: RemoteLogSegment, start: int, end: int = -1) -> bytes:
            return super().fetch_log_segment(segment, start, end)[:-1]

    with pytest.raises(CorruptDataError, match="9 bytes"):
        list(read_ahead(ShortFetcher(), [(segment(10), ByteRange(0, 10))], options()))


def test_each_request_is_counted_with_its_bytes_and_seconds() -> None:
    counted: list[tuple[int, float]] = []
    list(
        read_ahead(MemoryFetcher(), [(segment(25), ByteRange(0, 25))], options(), lambda *fetch: counted.append(fetch))
    )
    assert [size for size, _ in counted] == [10, 15]
    assert all(seconds >= 0 for _, seconds in counted)


def test_each_request_is_paced_before_it_is_sent() -> None:
    fetcher = MemoryFetcher()
    told: list[tuple[int, int]] = []
    parts = [(segment(95), ByteRange(5, 95)), (segment(7), ByteRange(0, 7))]
    one_at_a_time = options(in_flight=1)

    def note(size: int, _given_up: threading.Event | None = None, /) -> bool:
        told.append((size, len(fetcher.begun)))
        return True

    pieces = list(read_ahead(fetcher, parts, one_at_a_time, pace=note))
    assert [size for size, _ in told] == [len(data) for _, data in pieces]
    assert [begun for _, begun in told] == list(range(len(pieces)))


def with_requests_that_wait(
    fetcher: MemoryFetcher, waiting: threading.Semaphore, pace: StoppablePace
) -> Generator[tuple[int, bytes], None, None]:
    """Begin a read of which the first request, of 5 bytes, is made, and seven others wait for the pace."""
    parts = [(segment(5), ByteRange(0, 5)), (segment(1000), ByteRange(0, 1000))]
    pieces = read_ahead(fetcher, parts, options(in_flight=7), pace=pace)
    next(pieces)
    for _ in range(7):
        assert waiting.acquire(timeout=PATIENCE)
    return pieces


def test_closing_a_paced_read_ends_the_wait_and_sends_no_more_requests() -> None:
    fetcher, waiting = MemoryFetcher(), threading.Semaphore(0)

    def pace(size: int, given_up: threading.Event | None = None, /) -> bool:
        if size == 5:  # the first request
            return True
        waiting.release()
        assert given_up is not None
        return not given_up.wait(PATIENCE)

    pieces = with_requests_that_wait(fetcher, waiting, pace)
    pieces.close()
    wait_until_no_fetch_thread_is_left()
    assert len(fetcher.begun) == 1


def test_a_request_whose_turn_comes_after_the_read_was_closed_is_not_sent() -> None:
    fetcher, waiting, turn = MemoryFetcher(), threading.Semaphore(0), threading.Event()

    def pace(size: int, _given_up: threading.Event | None = None, /) -> bool:
        if size != 5:
            waiting.release()
            assert turn.wait(PATIENCE)
        return True

    pieces = with_requests_that_wait(fetcher, waiting, pace)
    pieces.close()
    turn.set()
    wait_until_no_fetch_thread_is_left()
    assert len(fetcher.begun) == 1


@pytest.mark.usefixtures("standing_clock")
@pytest.mark.parametrize("in_flight", [1, 4])
def test_of_a_consumer_who_may_stop_three_small_requests_are_made_until_two_are_taken(in_flight: int) -> None:
    fetcher = MemoryFetcher()
    parts, given = [(segment(1000), ByteRange(0, 1000))], options(in_flight=in_flight, memory_bytes=40)
    pieces = read_ahead(fetcher, parts, given, may_stop=True)
    sizes = [len(next(pieces)[1]), len(next(pieces)[1])]
    wait_until_idle(fetcher, 3)
    assert sorted(fetcher.begun) == [0, 10, 20]  # of two fetch threads either may be the first
    sizes += [len(data) for _, data in pieces]
    assert sizes == [10] * 100
    planned = requests_of(fetcher, parts, given)
    assert [len(wanted) for _, _, wanted in planned] == sizes


def test_small_segments_too_are_fetched_little_by_little_for_a_consumer_who_may_stop() -> None:
    fetcher = MemoryFetcher()
    parts = [(segment(4, base_offset=10 * part), ByteRange(0, 4)) for part in range(30)]
    pieces = read_ahead(fetcher, parts, options(in_flight=8), may_stop=True)
    next(pieces)
    wait_until_idle(fetcher, 7)
    assert len(fetcher.begun) == 7  # 28 bytes
    assert [part for part, _ in pieces] == list(range(1, 30))


def test_the_first_requests_are_sent_all_at_once() -> None:
    fetcher = MemoryFetcher()
    fetcher.gate.clear()
    pieces = read_ahead(fetcher, [(segment(1000), ByteRange(0, 1000))], options(in_flight=16))
    consumer = threading.Thread(target=lambda: next(pieces))
    consumer.start()
    fetcher.wait_until_begun(FIRST_REQUESTS)
    fetcher.gate.set()
    consumer.join(PATIENCE)
    pieces.close()


@pytest.mark.usefixtures("standing_clock")
@pytest.mark.parametrize("request_seconds,most_begun", [(0.01, 3), (1.0, 19)])
def test_as_many_requests_are_ahead_as_come_while_the_consumer_works(request_seconds: float, most_begun: int) -> None:
    window = RequestWindow(options(in_flight=16))
    for _ in range(20):
        window.record_response(10, request_seconds, (10, 0.05), 0)
    fetcher = MemoryFetcher()
    pieces = read_ahead(fetcher, [(segment(1000), ByteRange(0, 1000))], options(), window=window)
    next(pieces)
    wait_until_idle(fetcher, most_begun)
    assert len(fetcher.begun) == most_begun
    pieces.close()


@pytest.mark.usefixtures("standing_clock")
def test_a_storage_that_asks_for_fewer_requests_is_heeded() -> None:
    window = RequestWindow(options(in_flight=16))
    fetcher = MemoryFetcher()
    pieces = read_ahead(fetcher, [(segment(1000), ByteRange(0, 1000))], options(), window=window)
    next(pieces)
    before = window.size
    fetcher.busy = 1
    next(pieces)
    assert window.size <= before // 2
    assert sum(len(data) for _, data in pieces) == 1000 - 20


class ChunkedFetcher(MemoryFetcher):
    """Has to read a manifest before it can tell its chunks."""

    def __init__(self) -> None:
        super().__init__()
        self.missing: set[int] = set()
        self.asked: list[int] = []

    def request_ranges(self, segment: RemoteLogSegment, wanted: ByteRange, request_bytes: int) -> Sequence[ByteRange]:
        with self.changed:
            self.asked.append(segment.base_offset)
            self.changed.notify_all()
        if segment.base_offset in self.missing:
            raise StorageObjectNotFoundError("no manifest")
        return super().request_ranges(segment, wanted, request_bytes)


def test_the_layout_of_the_next_segments_is_asked_for_before_their_requests_are_wanted() -> None:
    fetcher = ChunkedFetcher()
    parts = [(segment(100, base_offset=10 * part), ByteRange(0, 100)) for part in range(5)]
    pieces = read_ahead(fetcher, parts, options(memory_bytes=20))
    next(pieces)
    with fetcher.changed:
        assert fetcher.changed.wait_for(lambda: set(fetcher.asked) == {0, 10, 20}, PATIENCE)
    pieces.close()


def test_a_layout_that_cannot_be_had_is_an_error_at_its_place() -> None:
    fetcher = ChunkedFetcher()
    fetcher.missing = {10}
    parts = [(segment(100, base_offset=10 * part), ByteRange(0, 100)) for part in range(3)]
    got = []
    with pytest.raises(StorageObjectNotFoundError, match="no manifest"):
        for part, _ in read_ahead(fetcher, parts, options()):
            got.append(part)
    assert got == [0] * 10


def wait_until_idle(fetcher: MemoryFetcher, begun: int) -> None:
    """Until so many requests were begun, and none is under way."""
    with fetcher.changed:
        assert fetcher.changed.wait_for(lambda: len(fetcher.begun) >= begun and not fetcher.running, PATIENCE)
