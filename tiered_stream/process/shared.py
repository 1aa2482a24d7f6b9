"""Objects that all tasks of a process share, such as connections.

Spark gives a Python worker one task after the other, and these objects stay from task to task.
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
"""Maximum number of objects that one `PerProcess` keeps; if there are more, the least recently used is evicted."""

_DIGEST_KEY = os.urandom(32)
_FILES = (".location", ".file")
"""Suffixes of the names of options whose value is the path of a file with keys or certificates."""


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

        Raises: the errors of `create`, after which nothing is kept.
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
