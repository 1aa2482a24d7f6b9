"""Log output of this package in a process: a way to drop log records of libraries in one thread, and a rate limit."""

from __future__ import annotations

import logging
import os
import stat
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import ioctl
from functools import cache

_SPARK_FORMAT, _SPARK_TIME = "%(asctime)s %(levelname)s %(module)s: %(message)s", "%y/%m/%d %H:%M:%S"


def show_log() -> None:
    """Write this package's log to standard error in Spark's format, from level INFO on.

    Do nothing if the root logger or this package's logger already has a handler.
    """
    own = logging.getLogger("tiered_stream")
    if own.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_SPARK_FORMAT, _SPARK_TIME))
    own.addHandler(handler)
    own.setLevel(logging.INFO)


def await_reader(seconds: float = 1.0) -> None:
    """Wait until what was printed to standard error has been read, if it is a pipe; wait at most `seconds`.

    When Spark ends a Python process, Java closes the pipe at once, and what Spark has not read from it is lost.
    """
    pipe, deadline = sys.__stderr__, time.monotonic() + seconds
    if pipe is None or pipe.closed or not stat.S_ISFIFO(os.fstat(pipe.fileno()).st_mode):
        return
    pipe.flush()
    # Linux has no event for the writer of a pipe that is read. FIONREAD is the number of unread bytes.
    while struct.unpack("i", ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0] and time.monotonic() < deadline:
        time.sleep(0.002)


class _Muted(threading.local):
    """Thread-local names of the packages whose log records this thread drops: prefixes such as `botocore.`."""

    packages: tuple[str, ...] = ()


_muted = _Muted()


@contextmanager
def muted(*packages: str) -> Iterator[None]:
    """Drop the records that these packages log in this thread during the `with` block; other threads still log."""
    before = _muted.packages
    _muted.packages = (*before, *_add_filters(packages, len(logging.root.manager.loggerDict)))
    try:
        yield
    finally:
        _muted.packages = before


@cache
def _add_filters(packages: tuple[str, ...], _loggers: int) -> tuple[str, ...]:
    """Add the filter `_is_not_muted` to all loggers below the packages, and return the prefixes of the loggers' names.

    `_loggers`, the number of loggers, is only a cache key: if there are more loggers, the filter is added to them too.
    """
    prefixes = tuple(f"{package}." for package in packages)
    for name in list(logging.root.manager.loggerDict):
        if name.startswith(prefixes):
            # A logger's filter does not see the records of its children, so each logger gets the filter, at most once.
            logging.getLogger(name).addFilter(_is_not_muted)
    return prefixes


def _is_not_muted(record: logging.LogRecord) -> bool:
    """Filter of loggers: return false for a log record of a package that the current thread has muted."""
    return not record.name.startswith(_muted.packages)


_INTERVAL_SECONDS = 10.0


class LogRateLimit(logging.Filter):
    """Log filter that passes at most one line every 10 s for each format string.

    The next line that passes states how many lines were dropped. `clock` returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._passed: dict[object, float] = {}
        self._dropped: dict[object, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text, now = record.msg, self._clock()
        if now - self._passed.get(text, float("-inf")) < _INTERVAL_SECONDS:
            self._dropped[text] = self._dropped.get(text, 0) + 1
            return False
        self._passed[text] = now
        dropped = self._dropped.pop(text, 0)
        if dropped:
            record.msg, record.args = f"{record.getMessage()} (and {dropped} more since the last line like it)", None
        return True
