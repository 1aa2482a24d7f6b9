"""What the driver's log is told of a query: where its segments come from, and what each micro-batch cost.

Spark plans a Python source in a process of its own beside the driver's JVM, whose stderr is part of the driver's log.
Nobody sets logging up there, so Python would keep everything below a warning to itself.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from contextlib import suppress

from tiered_stream.model import TopicPartition
from tiered_stream.observe.behind import describe_lag
from tiered_stream.observe.metrics import ReadMetrics, describe
from tiered_stream.observe.metrics_receiver import MetricsReceiver

log = logging.getLogger(__name__)

_ALL_ADDRESSES = ("0.0.0.0", "::", "[::]")


class BatchLog:
    """Logs what a query's tasks send to `address`, added up over each micro-batch."""

    def __init__(self) -> None:
        self._receiver = MetricsReceiver(_own_host(), os.environ.get("SPARK_LOCAL_IP") or None)
        self.address = self._receiver.address
        self.lag: Mapping[TopicPartition, int] = {}
        """Of the query after the last micro-batch, when its topics were last looked at."""

    def tell(self) -> None:
        """Log what has come in since the last time, if anything has, and `lag`, where that is known."""
        spent = self._receiver.take()
        if spent != ReadMetrics():
            lag = f", {describe_lag(self.lag)}" if self.lag else ""
            log.info("the last micro-batch: %s rows, %s%s", f"{spent.records:,}", describe(spent), lag)

    def close(self) -> None:
        """Tell what is left, and listen no more."""
        self.tell()
        self._receiver.close()


def _own_host() -> str:
    """Where executors find this machine, by what Spark's driver goes by itself (Spark: `Utils.localHostName`)."""
    local_ip = os.environ.get("SPARK_LOCAL_IP", "")
    given = os.environ.get("SPARK_LOCAL_HOSTNAME") or ("" if local_ip in _ALL_ADDRESSES else local_ip)
    if given:
        return given
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError, UnicodeError):
            return str(socket.getaddrinfo(socket.gethostname(), None, family)[0][4][0])
    return "127.0.0.1"
