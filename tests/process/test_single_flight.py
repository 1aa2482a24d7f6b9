from __future__ import annotations

import threading

import pytest

from tiered_stream.process.single_flight import SingleFlightCache

PATIENCE = 10.0


def test_what_was_loaded_is_not_loaded_again_until_others_push_it_out() -> None:
    cache: SingleFlightCache[str, int] = SingleFlightCache(2)
    loads: list[str] = []

    def get(key: str) -> None:
        def load() -> int:
            loads.append(key)
            return len(loads)

        cache.get(key, load)

    for key in ("a", "b", "a", "c", "a", "b"):
        get(key)
    assert loads == ["a", "b", "c", "b"]


def test_threads_that_ask_at_once_wait_for_one_load() -> None:
    cache: SingleFlightCache[str, int] = SingleFlightCache(2)
    begun, go_on = threading.Event(), threading.Event()
    loads, got = [], []

    def load() -> int:
        loads.append(1)
        begun.set()
        assert go_on.wait(PATIENCE)
        return 7

    threads = [threading.Thread(target=lambda: got.append(cache.get("a", load))) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert begun.wait(PATIENCE)
    go_on.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert (got, loads) == ([7] * 4, [1])


def test_what_fails_is_tried_again() -> None:
    cache: SingleFlightCache[str, int] = SingleFlightCache(2)

    def fail() -> int:
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            cache.get("a", fail)
    assert cache.get("a", lambda: 3) == 3
