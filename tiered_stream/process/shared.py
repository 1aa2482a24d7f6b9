"""Objects that all tasks of a process share, such as connections, which must outlive a task.

Spark gives a Python worker one task after another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import Generic, TypeVar

from tiered_stream.process.single_flight import SingleFlightCache

T = TypeVar("T")

MAX_OBJECTS = 16
"""Maximum number of objects that one `PerProcess` keeps; beyond it, the least recently used object is evicted."""

_DIGEST_KEY = os.urandom(32)
_FILES = (".location", ".file")
"""Suffixes of the names of options whose value is the path of a file with keys or certificates."""


class PerProcess(Generic[T]):
    """A process-wide cache of shared objects, one per distinct set of options.

    An evicted object is not closed here, because a task may still use it. The objects close themselves when nothing
    refers to them any more, so a caller has nothing to release.
    """

    def __init__(self) -> None:
        # By process id, because a fork must use neither its parent's connections nor a lock that a thread there holds.
        self._caches: dict[int, SingleFlightCache[bytes, T]] = {}

    def get(self, options: object, create: Callable[[], T]) -> T:
        """Return this process's shared object for `options`; call `create` if it does not exist yet.

        Options are values, mappings of values, and dataclasses. If an option names a file of keys or certificates, the
        file's inode, size and time are part of the cache key, because new credentials may replace the file.

        Raises: as `create`.
        """
        return self._caches.setdefault(os.getpid(), SingleFlightCache(MAX_OBJECTS)).get(_digest(options), create)


def _digest(options: object) -> bytes:
    """Return a cache key for the options: a keyed hash, which does not reveal secrets among them."""
    return blake2b(repr(_comparable("", options)).encode(), key=_DIGEST_KEY).digest()


def _comparable(name: str, value: object) -> object:
    """Return the option's value in a form whose `repr` differs for different values; `name` is the option's name.

    A dataclass's own `repr` is not used, because it leaves out secret fields.
    """
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return [(key, _comparable(key, value[key])) for key in sorted(value)]
    return (value, _file_state(value)) if isinstance(value, str) and name.endswith(_FILES) else value


def _file_state(path: str) -> tuple[int, int, int] | None:
    """Return inode, size and modification time (ns) of a file; None if the file cannot be accessed."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # the code that reads the file reports the error
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
