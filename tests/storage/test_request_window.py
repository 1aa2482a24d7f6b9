"""How many requests are worth having under way, and how large, by seconds that a test makes up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered_stream.options.parsing import FetchOptions
from tiered_stream.storage.request_window import FIRST_REQUESTS, RequestWindow

SECONDS = st.floats(0, 1e6)
USUAL = 8


def window_of(in_flight: int = 16, memory: int = 12 * USUAL) -> RequestWindow:
    return RequestWindow(FetchOptions(USUAL, in_flight, memory))


def after(window: RequestWindow, request: float, work: float, size: int = USUAL, times: int = 20) -> None:
    """Let `times` requests of `size` bytes take `request` seconds, and the decoder `work` seconds with each."""
    for _ in range(times):
        window.record_response(size, request, (size, work), 0)


@pytest.mark.parametrize(
    ("taken", "size", "request_bytes"),
    [
        ([], FIRST_REQUESTS, 8),
        ([(0.19, 0.03)], 12, 8),
        ([(0.105, 0.03)], 8, 8),
        ([(0.008, 0.03)], 3, 16),
        ([(0.008, 0.0028, 1)], 7, 8),  # small segments
        ([(0.01, 0.03), (30.0, 0.03, USUAL, 1)], 3, 16),  # one request is slow
        # The storage is quick for large requests, too.
        ([(0.01, 0.03), (0.02, 0.06, 16)], 2, 16),
        ([(0.05, 0.03), (0.1, 0.06, 16)], 4, 16),
        # Memory does not hold as many as are needed. Large requests would take as long as before.
        ([(0.37, 0.02)], 19, 4),
        ([(0.37, 0.02), (0.23, 0.01, 4)], 19, 4),
        # The storage gets quicker, or slower.
        ([(0.37, 0.02), (0.02, 0.01, 4)], 6, 8),
        ([(0.37, 0.02), (0.02, 0.01, 4), (0.002, 0.01, 4)], 3, 16),
        ([(0.01, 0.03), (0.38, 0.02)], 19, 4),
        ([(0.01, 0.03), (0.5, 0.06, 16)], 14, 8),
        ([(0.01, 0.03), (0.5, 0.06, 16), (2.0, 0.06, 16)], 19, 4),
    ],
)
def test_number_and_size_of_requests_follow_storage_and_decoder(
    taken: list[tuple[float, float]], size: int, request_bytes: int
) -> None:
    window = window_of()
    for each in taken:
        after(window, *each)
    assert (window.size, window.request_bytes()) == (size, request_bytes)


def test_requests_in_flight_and_memory_are_limits() -> None:
    assert window_of(1).size == 4
    little, much = window_of(memory=40), window_of(memory=1000)
    after(little, 0.01, 0.03)
    after(much, 0.37, 0.02)
    assert (little.request_bytes(), much.request_bytes()) == (10, 8)


def test_without_work_to_compare_with_nothing_changes() -> None:
    window = window_of(16)
    window.record_response(USUAL, 100.0, None, 0)
    assert window.size == FIRST_REQUESTS
    assert window.request_bytes() == USUAL


def test_a_storage_that_asks_for_fewer_requests_gets_half_and_then_one_more_at_a_time() -> None:
    window = window_of(16)
    after(window, request=1.0, work=0.01)
    assert window.size == 19
    window.record_response(USUAL, 1.0, (USUAL, 0.01), slow_down_responses=3)
    assert window.size == 9
    window.record_response(USUAL, 1.0, (USUAL, 0.01), slow_down_responses=4)
    assert window.size == 4
    sizes = []
    for _ in range(4 + 5 + 6):
        window.record_response(USUAL, 1.0, (USUAL, 0.01), slow_down_responses=4)
        sizes.append(window.size)
    assert sizes == [4] * 3 + [5] * 5 + [6] * 6 + [7]


def test_what_was_said_before_the_first_response_is_no_news() -> None:
    window = window_of(16)
    window.record_response(USUAL, 1.0, None, slow_down_responses=7)
    assert window.size == FIRST_REQUESTS


SIZES = st.integers(0, 100)


@given(
    st.integers(1, 64),
    st.integers(8, 1000),
    st.lists(st.tuples(SIZES, SECONDS, st.tuples(SIZES, SECONDS) | st.none(), st.integers(0, 9)), max_size=60),
)
def test_it_stays_within_its_bounds_whatever_is_measured(
    in_flight: int, memory: int, taken: list[tuple[int, float, tuple[int, float] | None, int]]
) -> None:
    window = window_of(in_flight, memory)
    for each in taken:
        window.record_response(*each)
        assert 1 <= window.size <= in_flight + 3
        assert 4 <= window.request_bytes() <= 16
        assert window.request_bytes() <= max(8, memory // 4)


@pytest.mark.parametrize("busy", [1, 2, 64])
def test_a_storage_that_is_always_busy_is_asked_one_by_one(busy: int) -> None:
    window = window_of(16)
    for number in range(20):
        window.record_response(USUAL, 1.0, (USUAL, 0.01), number * busy)
    assert window.size == 1
