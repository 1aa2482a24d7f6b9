"""How many requests are worth having under way, by seconds that a test makes up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered_stream.storage.request_window import FIRST, RequestWindow

SECONDS = st.floats(0, 1e6)


def after(window: RequestWindow, request: float, work: float, times: int = 20, busy: int = 0) -> int:
    for _ in range(times):
        window.taken(request, work, busy)
    return window.size


def test_the_first_requests_of_a_task_are_sent_all_at_once() -> None:
    assert RequestWindow(16).size == FIRST
    assert RequestWindow(1).size == 4


def test_a_storage_that_takes_its_time_is_asked_for_more_at_once() -> None:
    assert after(RequestWindow(16), request=0.19, work=0.03) == 12
    assert after(RequestWindow(16), request=0.38, work=0.02) == 19


def test_a_quick_storage_is_asked_for_little_ahead() -> None:
    assert after(RequestWindow(16), request=0.008, work=0.03) == 3


def test_one_slow_request_is_no_reason_for_more() -> None:
    window = RequestWindow(16)
    after(window, request=0.01, work=0.03)
    window.taken(30.0, 0.03, 0)
    assert window.size == 3


def test_requests_are_larger_where_few_are_needed_and_not_before_that_is_known() -> None:
    window = RequestWindow(1)
    assert window.size == 4
    assert window.request_bytes(10) == 10
    after(window, request=0.01, work=0.03)
    assert window.request_bytes(10) == 20
    slow = RequestWindow(16)
    after(slow, request=0.19, work=0.03)
    assert slow.request_bytes(10) == 10


def test_what_it_learned_it_forgets() -> None:
    window = RequestWindow(16)
    after(window, request=0.01, work=0.03)
    assert after(window, request=0.38, work=0.02) == 19


def test_without_work_to_compare_with_nothing_changes() -> None:
    window = RequestWindow(16)
    window.taken(100.0, None, 0)
    assert window.size == FIRST


def test_a_storage_that_asks_for_fewer_requests_gets_half_and_then_one_more_at_a_time() -> None:
    window = RequestWindow(16)
    assert after(window, request=1.0, work=0.01) == 19
    window.taken(1.0, 0.01, busy_answers=3)
    assert window.size == 9
    window.taken(1.0, 0.01, busy_answers=4)
    assert window.size == 4
    sizes = []
    for _ in range(4 + 5 + 6):
        window.taken(1.0, 0.01, busy_answers=4)
        sizes.append(window.size)
    assert sizes == [4] * 3 + [5] * 5 + [6] * 6 + [7]


def test_what_was_said_before_the_first_response_is_no_news() -> None:
    window = RequestWindow(16)
    window.taken(1.0, None, busy_answers=7)
    assert window.size == FIRST


@given(st.integers(1, 64), st.lists(st.tuples(SECONDS, SECONDS | st.none(), st.integers(0, 9)), max_size=60))
def test_it_stays_within_its_bounds_whatever_is_measured(
    in_flight: int, taken: list[tuple[float, float | None, int]]
) -> None:
    window = RequestWindow(in_flight)
    for each in taken:
        window.taken(*each)
        assert 1 <= window.size <= in_flight + 3


@pytest.mark.parametrize("busy", [1, 2, 64])
def test_a_storage_that_is_always_busy_is_asked_one_by_one(busy: int) -> None:
    window = RequestWindow(16)
    for number in range(20):
        window.taken(1.0, 0.01, number * busy)
    assert window.size == 1
