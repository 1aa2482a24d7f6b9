"""Bounded cache that loads each value once, even if many threads ask for it at the same time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from threading import Lock
from typing import Generic, TypeVar

from cachetools import LRUCache

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class SingleFlightCache(Generic[_K, _V]):
    """Bounded cache that evicts the least recently used values, and loads each value once for all threads.

    The sum of the sizes of all values is at most `max_size`. `size_of` returns the size of a value; None: each value
    has size 1. A value that is larger than `max_size` is not cached. If a load fails, its error is not cached either.
    """

    def __init__(self, max_size: int, size_of: Callable[[_V], int] | None = None) -> None:
        self._values: LRUCache[_K, _V] = LRUCache(max_size, size_of)
        self._loading: dict[_K, Future[_V]] = {}
        self._lock = Lock()

    def get(self, key: _K, load: Callable[[], _V]) -> _V:
        """Return the cached value of `key`. If there is none, call `load`, or wait if another thread is loading it.

        Raises: the errors of `load`, also if another thread has called `load`.
        """
        with self._lock:
            if key in self._values:
                return self._values[key]
            other_load = self._loading.get(key)
            if other_load is None:
                own_load = self._loading[key] = Future()
        return self._load(key, load, own_load) if other_load is None else other_load.result()

    def _load(self, key: _K, load: Callable[[], _V], loading: Future[_V]) -> _V:
        try:
            value = load()
        except BaseException as error:
            with self._lock:
                del self._loading[key]
            loading.set_exception(error)
            raise
        with self._lock:
            del self._loading[key]
            with suppress(ValueError):  # the value is larger than the whole cache
                self._values[key] = value
        loading.set_result(value)
        return value
