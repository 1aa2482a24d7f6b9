"""A bounded cache that loads each entry once, however many threads ask for it at the same time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock
from typing import Generic, TypeVar

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class SingleFlightCache(Generic[_K, _V]):
    """Keeps the `capacity` entries that were used last. What fails to load is not kept."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: OrderedDict[_K, Future[_V]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: _K, load: Callable[[], _V]) -> _V:
        """The entry, loaded by this call or by the one that is already at it. Raises what `load` raises."""
        with self._lock:
            entry = self._entries.get(key)
            if found := entry is not None:
                self._entries.move_to_end(key)
            else:
                entry = self._entries[key] = Future()
                if len(self._entries) > self._capacity:
                    self._entries.popitem(last=False)
        if not found:
            self._load(key, entry, load)
        return entry.result()

    def _load(self, key: _K, entry: Future[_V], load: Callable[[], _V]) -> None:
        try:
            entry.set_result(load())
        except BaseException as error:  # noqa: BLE001 - the threads that wait must hear of it, whatever it is
            with self._lock:
                if self._entries.get(key) is entry:
                    del self._entries[key]
            entry.set_exception(error)
