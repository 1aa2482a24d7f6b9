"""Log lines of this package in a process, and a way to drop log lines of libraries in one thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

_SPARK_FORMAT, _SPARK_TIME = "%(asctime)s %(levelname)s %(module)s: %(message)s", "%y/%m/%d %H:%M:%S"


def show_log() -> None:
    """Log this package's lines to stderr in Spark's format, unless logging is already set up in this process."""
    own = logging.getLogger("tiered_stream")
    if own.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_SPARK_FORMAT, _SPARK_TIME))
    own.addHandler(handler)
    own.setLevel(logging.INFO)


class _Muted(threading.local):
    """Thread-local list of the packages whose log lines this thread drops."""

    packages: tuple[str, ...] = ()


_muted = _Muted()


@contextmanager
def muted(*packages: str) -> Iterator[None]:
    """Drop the log lines of these packages in this thread during the block; other threads still log them."""
    before = _muted.packages
    _muted.packages = (*before, *_add_filters(packages, len(logging.root.manager.loggerDict)))
    try:
        yield
    finally:
        _muted.packages = before


@cache
def _add_filters(packages: tuple[str, ...], _loggers: int) -> tuple[str, ...]:
    """Add the filter `_is_not_muted` to all loggers of the packages, and return the prefixes of the loggers' names.

    `_loggers`, the number of loggers, is only a cache key: the filters are added again when there are more loggers.
    """
    prefixes = tuple(f"{package}." for package in packages)
    for name in list(logging.root.manager.loggerDict):
        if name.startswith(prefixes):
            # A logger's filter does not see its children's lines, so each logger gets one. A second add does nothing.
            logging.getLogger(name).addFilter(_is_not_muted)
    return prefixes


def _is_not_muted(record: logging.LogRecord) -> bool:
    """Return false for log records of packages that this thread has muted."""
    return not record.name.startswith(_muted.packages)
