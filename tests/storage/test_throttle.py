"""The token bucket, by a clock of the test's own."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered_stream.storage import throttle
from tiered_stream.storage.throttle import MAX_SAVED_SECONDS, TokenBucket, pace_of


class Clock:
    """The clock of token buckets: time passes only in `sleep`."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        patch.setattr(throttle, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep))

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_what_passes_is_paid_for_by_what_comes_after(clock: Clock) -> None:
    tokens = TokenBucket(1000)
    for size in (5000, 1, 999):
        tokens.take(size)
    assert clock.slept == [5.0, pytest.approx(0.001)]


def test_little_is_saved_up(clock: Clock) -> None:
    tokens = TokenBucket(1000)
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
    with pytest.MonkeyPatch.context() as patch:
        clock, tokens, passed = Clock(patch), TokenBucket(rate), 0
        for idle, size in takes:
            clock.now += idle
            tokens.take(size)
            # Before the last one, which goes into debt.
            assert passed <= (clock.now + MAX_SAVED_SECONDS) * rate * 1.000001
            passed += size


def test_no_second_has_more_requests_than_the_rate_however_long_none_came(clock: Clock) -> None:
    tokens = TokenBucket(100, max_saved_seconds=0)
    made = []
    for _ in range(3):
        for _ in range(150):
            tokens.take(1)
            made.append(clock.now)
        clock.sleep(30)
    assert all(after - before > 0.99 for before, after in zip(made, made[100:], strict=False))
    assert made[149] < 1.5, "and not many fewer"


def test_threads_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(throttle, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=slept.append))
    tokens = TokenBucket(100)
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


def test_bytes_that_are_given_up_while_they_wait_are_not_paid_for(clock: Clock) -> None:
    given_up, tokens = GivenUp(), TokenBucket(1000)
    assert tokens.take(3000)
    assert not tokens.take(50_000, given_up)
    assert given_up.waited == 3.0
    assert tokens.take(1)
    assert clock.slept == [3.0]


def test_tasks_of_a_process_share_one_bucket() -> None:
    assert pace_of("a side", 4) == pace_of("a side", 4)
    assert pace_of("a side", 4) != pace_of("another", 4)
    pace_of("a side", None)(10**12)
