"""Rate limit for log lines that any client can cause."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

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
