"""Rate limit for log lines that any client can cause."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

_SECONDS = 10.0


class LogRateLimit(logging.Filter):
    """Log filter that passes one line per format string in 10 s; the next line states how many were dropped."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._passed: dict[object, float] = {}
        self._left_out: dict[object, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind, now = record.msg, self._clock()
        if now - self._passed.get(kind, float("-inf")) < _SECONDS:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return False
        self._passed[kind] = now
        left_out = self._left_out.pop(kind, 0)
        if left_out:
            record.msg, record.args = f"{record.getMessage()} (and {left_out} more since the last line like it)", None
        return True
