"""The token bucket, by a clock of the test's own."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered_stream.storage.throttle import MAX_SAVED_SECONDS, TokenBucket, pace_of


class Clock:
    """Time passes only in `sleep`."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.slept.append(seconds)
        self.now += seconds


def bucket(rate: int, clock: Clock) -> TokenBucket:
    return TokenBucket(rate, lambda: clock.now, clock.sleep)


def test_what_passes_is_paid_for_by_what_comes_after() -> None:
    clock = Clock()
    tokens = bucket(1000, clock)
    for size in (5000, 1, 999):
        tokens.take(size)
    assert clock.slept == [5.0, pytest.approx(0.001)]


def test_little_is_saved_up() -> None:
    clock = Clock()
    tokens = bucket(1000, clock)
    clock.now = 3600.0
    tokens.take(1500)
    assert clock.slept == []
    tokens.take(1)
    assert clock.slept == [0.5]


@given(
    st.integers(1, 10**9),
    st.lists(st.tuples(st.floats(0, 100), st.integers(0, 10**9)), max_size=50),
)
def test_never_more_than_the_rate_passes(rate: int, takes: list[tuple[float, int]]) -> None:
    clock = Clock()
    tokens = bucket(rate, clock)
    passed = 0
    for idle, size in takes:
        clock.now += idle
        tokens.take(size)
        # Before the last one, which goes into debt.
        assert passed <= (clock.now + MAX_SAVED_SECONDS) * rate * 1.000001
        passed += size


def test_no_second_has_more_requests_than_the_rate_however_long_none_came() -> None:
    clock = Clock()
    tokens = TokenBucket(100, lambda: clock.now, clock.sleep, max_saved_seconds=0)
    made = []
    for _ in range(3):
        for _ in range(150):
            tokens.take(1)
            made.append(clock.now)
        clock.sleep(30)
    assert all(after - before > 0.99 for before, after in zip(made, made[100:], strict=False))
    assert made[149] < 1.5, "and not many fewer"


def test_threads_wait_for_each_other() -> None:
    slept: list[float] = []
    tokens = TokenBucket(100, lambda: 0.0, slept.append)
    threads = [threading.Thread(target=tokens.take, args=(100,)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(slept) == [1.0, 2.0, 3.0, 4.0]


class GivenUp(threading.Event):
    """Set as soon as somebody waits for it."""

    def wait(self, timeout: float | None = None) -> bool:
        self.waited = timeout
        return True


def test_bytes_that_are_given_up_while_they_wait_are_not_paid_for() -> None:
    clock, given_up = Clock(), GivenUp()
    tokens = bucket(1000, clock)
    assert tokens.take(3000)
    assert not tokens.take(50_000, given_up)
    assert given_up.waited == 3.0
    assert tokens.take(1)
    assert clock.slept == [3.0]


def test_tasks_of_a_process_share_one_bucket() -> None:
    assert pace_of("a side", 4) == pace_of("a side", 4)
    assert pace_of("a side", 4) != pace_of("another", 4)
    pace_of("a side", None)(10**12)
