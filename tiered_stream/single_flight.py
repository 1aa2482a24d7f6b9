"""A bounded cache that loads each value once, however many threads ask for it at the same time."""

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
    """Keeps the values that were used last, as many as have `max_size` together. What fails to load is not kept."""

    def __init__(self, max_size: int, size_of: Callable[[_V], int] | None = None) -> None:
        self._values: LRUCache[_K, _V] = LRUCache(max_size, size_of)
        self._loading: dict[_K, Future[_V]] = {}
        self._lock = Lock()

    def get(self, key: _K, load: Callable[[], _V]) -> _V:
        """The value, loaded by this call or by the one that is already at it. Raises what `load` raises."""
        with self._lock:
            if key in self._values:
                return self._values[key]
            others = self._loading.get(key)
            if others is None:
                mine = self._loading[key] = Future()
        return self._load(key, load, mine) if others is None else others.result()

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
            with suppress(ValueError):  # it is larger than the whole cache
                self._values[key] = value
        loading.set_result(value)
        return value
