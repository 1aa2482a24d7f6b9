"""What the driver's log is told of a query: where its segments come from, and what each micro-batch cost.

Spark plans a Python source in a process of its own beside the driver's JVM, whose stderr is part of the driver's log.
Nobody sets logging up there, so Python would keep everything below a warning to itself.
"""

from __future__ import annotations

import logging
import os
import socket

from tiered_stream.metrics import MetricsReceiver, ReadMetrics, describe

log = logging.getLogger(__name__)

_SPARK_FORMAT, _SPARK_TIME = "%(asctime)s %(levelname)s %(module)s: %(message)s", "%y/%m/%d %H:%M:%S"


def show_log() -> None:
    """Let stderr have our lines, in the form of Spark's own, unless somebody has set logging up in this process."""
    own = logging.getLogger("tiered_stream")
    if own.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_SPARK_FORMAT, _SPARK_TIME))
    own.addHandler(handler)
    own.setLevel(logging.INFO)


class BatchLog:
    """Logs what a query's tasks send to `address`, added up over each micro-batch."""

    def __init__(self) -> None:
        self._receiver = MetricsReceiver(_own_address())
        self.address = self._receiver.address

    def tell(self) -> None:
        """Log what has come in since the last time, if anything has."""
        spent = self._receiver.take()
        if spent != ReadMetrics():
            log.info("the last micro-batch: %s rows, %s", f"{spent.records:,}", describe(spent))

    def close(self) -> None:
        """Tell what is left, and listen no more."""
        self.tell()
        self._receiver.close()


def _own_address() -> str:
    """Where executors find this machine, by what Spark's driver goes by itself."""
    try:
        return os.environ.get("SPARK_LOCAL_IP") or socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
