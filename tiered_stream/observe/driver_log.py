"""Log lines of the driver about the cost of reading each micro-batch.

Spark plans a Python source in a separate process next to the driver's JVM, whose stderr is part of the driver's log.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from contextlib import suppress

from tiered_stream.model import TopicPartition
from tiered_stream.observe.metrics import ReadMetrics, describe
from tiered_stream.observe.metrics_receiver import MetricsReceiver
from tiered_stream.observe.offset_lag import describe_lag

log = logging.getLogger(__name__)

_ALL_ADDRESSES = ("0.0.0.0", "::", "[::]")


class BatchLog:
    """Receiver of the counters that a query's tasks send to `address`; it logs their sum once for each micro-batch."""

    def __init__(self) -> None:
        self._receiver = MetricsReceiver(_own_host(), os.environ.get("SPARK_LOCAL_IP") or None)
        self.address = self._receiver.address
        self.lag: Mapping[TopicPartition, int] = {}
        """Number of unread offsets by partition. The planner sets it when it has looked up the log ends."""

    def report(self) -> None:
        """Log the sum of the counters received since the last call, and `lag`; if none were received, log nothing."""
        spent = self._receiver.take()
        if spent != ReadMetrics():
            lag = f", {describe_lag(self.lag)}" if self.lag else ""
            log.info("the last micro-batch: %s rows, %s%s", f"{spent.records:,}", describe(spent), lag)

    def close(self) -> None:
        """Log the remaining counters, and stop listening."""
        self.report()
        self._receiver.close()


def _own_host() -> str:
    """Return the host name or address by which executors reach this machine (Spark: `Utils.localHostName`)."""
    local_ip = os.environ.get("SPARK_LOCAL_IP", "")
    configured = os.environ.get("SPARK_LOCAL_HOSTNAME") or ("" if local_ip in _ALL_ADDRESSES else local_ip)
    if configured:
        return configured
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError, UnicodeError):
            return str(socket.getaddrinfo(socket.gethostname(), None, family)[0][4][0])
    return "127.0.0.1"
