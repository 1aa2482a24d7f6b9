"""Bounded cache that loads each value once for all threads, and objects that all tasks of a process share."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from threading import Lock
from typing import Generic, TypeVar

from cachetools import LRUCache

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")
T = TypeVar("T")
MAX_OBJECTS = 16
"""Maximum number of objects that one `PerProcess` keeps; if there are more, the least recently used is evicted."""
_DIGEST_KEY = os.urandom(32)
_FILES = (".location", ".file")
"""Suffixes of the names of options whose value is the path of a file with keys or certificates."""


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

        An error of `load` is raised in all threads that wait for the value.
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


class PerProcess(Generic[T]):
    """Process-wide cache of shared objects, with one object for each distinct set of options.

    The cache keeps 16 objects, and evicts the least recently used object. It does not close an evicted object, because
    a task may still use it. Objects close themselves when nothing refers to them any more. A fork has an empty cache.
    """

    def __init__(self) -> None:
        # By process id: a fork must not use its parent's connections, nor a lock that a thread of the parent holds.
        self._caches: dict[int, SingleFlightCache[bytes, T]] = {}

    def get(self, options: object, create: Callable[[], T]) -> T:
        """Return this process's object for `options`; if it does not exist yet, call `create` and keep the result.

        `options` are values, mappings of values, or dataclasses. If an option names a file of keys or certificates, the
        cache key includes the file's inode, size and modification time. So the object is created again when new
        credentials replace the file.
        """
        return self._caches.setdefault(os.getpid(), SingleFlightCache(MAX_OBJECTS)).get(_digest(options), create)


def _digest(options: object) -> bytes:
    """Return a cache key for the options: a keyed hash, which does not reveal secrets in the options."""
    return blake2b(repr(_comparable("", options)).encode(), key=_DIGEST_KEY).digest()


def _comparable(name: str, value: object) -> object:
    """Return the option's value in a form whose `repr` differs for different values; `name` is the option's name.

    A dataclass's own `repr` is not used, because it leaves out secret fields. The path of a file of keys or
    certificates is returned with the file's inode, size and modification time.
    """
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return [(key, _comparable(key, value[key])) for key in sorted(value)]
    return (value, file_state(value)) if isinstance(value, str) and name.endswith(_FILES) else value


def file_state(path: str) -> tuple[int, int, int] | None:
    """Return inode, size and modification time (ns) of a file; None if the file cannot be accessed."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # the code that reads the file reports the error
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
