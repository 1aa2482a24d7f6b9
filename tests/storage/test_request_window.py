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


def after(window: RequestWindow, request: float, work: float, times: int = 20, busy: int = 0, size: int = USUAL) -> int:
    """The window's size once so many requests of `size` bytes took so long, and the decoder with each."""
    for _ in range(times):
        window.record_response(size, request, (size, work), busy)
    return window.size


def test_the_first_requests_of_a_task_are_sent_all_at_once() -> None:
    assert window_of(16).size == FIRST_REQUESTS
    assert window_of(1).size == 4


def test_a_storage_that_takes_its_time_is_asked_for_more_at_once() -> None:
    assert after(window_of(16), request=0.19, work=0.03) == 12
    assert after(window_of(16), request=0.38, work=0.02) == 19


def test_a_quick_storage_is_asked_for_little_ahead() -> None:
    assert after(window_of(16), request=0.008, work=0.03) == 3


def test_of_small_segments_more_are_asked_for() -> None:
    assert after(window_of(16), request=0.008, work=0.0028, size=1) == 7


def test_of_larger_requests_than_usual_fewer_are_asked_for() -> None:
    assert after(window_of(16), request=0.008, work=0.03, size=2 * USUAL) == 2


def test_one_slow_request_is_no_reason_for_more() -> None:
    window = window_of(16)
    after(window, request=0.01, work=0.03)
    window.record_response(USUAL, 30.0, (USUAL, 0.03), 0)
    assert window.size == 3


def test_before_anything_is_known_requests_are_of_the_usual_size() -> None:
    assert window_of().request_bytes() == 8


def test_a_quick_storage_is_asked_for_twice_as_much_at_once() -> None:
    window = window_of()
    after(window, request=0.01, work=0.03)
    assert window.request_bytes() == 16
    after(window, request=0.02, work=0.06, size=16)
    assert window.request_bytes() == 16


def test_where_memory_is_short_requests_do_not_get_larger() -> None:
    window = window_of(memory=40)
    after(window, request=0.01, work=0.03)
    assert window.request_bytes() == 10


def test_a_storage_that_is_hardly_slower_than_the_decoder_is_asked_as_ever() -> None:
    window = window_of()
    after(window, request=0.1, work=0.03)
    assert window.request_bytes() == 8


def test_requests_that_are_large_stay_so_while_their_own_size_comes_quickly() -> None:
    window = window_of()
    after(window, request=0.05, work=0.03)
    after(window, request=0.1, work=0.06, size=16)
    assert window.request_bytes() == 16


def test_requests_are_small_where_more_are_needed_than_memory_holds() -> None:
    window = window_of()
    after(window, request=0.37, work=0.02)
    assert window.request_bytes() == 4
    after(window, request=0.23, work=0.01, size=4)
    assert window.request_bytes() == 4  # large ones would take as long as they did
    assert window.size == 19
    assert window_of(memory=1000).request_bytes() == 8


def test_a_storage_that_gets_quicker_is_asked_for_more_at_once_again() -> None:
    window = window_of()
    after(window, request=0.37, work=0.02)
    after(window, request=0.02, work=0.01, size=4)
    assert window.request_bytes() == 8
    after(window, request=0.002, work=0.01, size=4)
    assert window.request_bytes() == 16


def test_a_storage_that_gets_slower_is_asked_for_less_at_once_again() -> None:
    window = window_of()
    after(window, request=0.01, work=0.03)
    after(window, request=0.5, work=0.06, size=16)
    assert window.request_bytes() == 8
    after(window, request=2.0, work=0.06, size=16)
    assert window.request_bytes() == 4


def test_what_it_learned_it_forgets() -> None:
    window = window_of(16)
    after(window, request=0.01, work=0.03)
    assert after(window, request=0.38, work=0.02) == 19


def test_without_work_to_compare_with_nothing_changes() -> None:
    window = window_of(16)
    window.record_response(USUAL, 100.0, None, 0)
    assert window.size == FIRST_REQUESTS
    assert window.request_bytes() == USUAL


def test_a_storage_that_asks_for_fewer_requests_gets_half_and_then_one_more_at_a_time() -> None:
    window = window_of(16)
    assert after(window, request=1.0, work=0.01) == 19
    window.record_response(USUAL, 1.0, (USUAL, 0.01), busy_answers=3)
    assert window.size == 9
    window.record_response(USUAL, 1.0, (USUAL, 0.01), busy_answers=4)
    assert window.size == 4
    sizes = []
    for _ in range(4 + 5 + 6):
        window.record_response(USUAL, 1.0, (USUAL, 0.01), busy_answers=4)
        sizes.append(window.size)
    assert sizes == [4] * 3 + [5] * 5 + [6] * 6 + [7]


def test_what_was_said_before_the_first_response_is_no_news() -> None:
    window = window_of(16)
    window.record_response(USUAL, 1.0, None, busy_answers=7)
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
