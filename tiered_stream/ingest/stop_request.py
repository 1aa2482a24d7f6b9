"""Request to stop an ingest job, by SIGTERM or Ctrl-C: running queries finish their micro-batches first.

Under `spark-submit`, the JVM is the parent process, and schedulers send SIGTERM to it. The JVM would end Spark at once.
So a shutdown hook of the JVM requests the stop, and waits until the job has stopped. Hadoop runs such hooks one after
another, and Spark's own hook comes later (Hadoop: `ShutdownHookManager`; Spark: `SPARK_SHUTDOWN_PRIORITY`).
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from py4j.protocol import Py4JError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from tiered_stream.spark.session import is_connect

log = logging.getLogger(__name__)

_PRIORITY = 100
"""Priority of the hook. Hadoop runs hooks of higher priorities first, and Spark's hook has 40."""
_SECONDS_TO_END = 10.0
"""Further seconds that the JVM waits for the queries' ends after the timeout for their micro-batches."""


class StopRequest:
    """Request to stop an ingest job. `signal` is the number of the signal, or 0 as long as no stop is requested.

    Running micro-batches have `timeout_s` seconds to end after the request.
    """

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.signal = 0
        self._has_stopped = threading.Event()

    def on_signal(self, number: int, _: FrameType | None) -> None:
        """Request the stop. A second signal does not wait for the micro-batches: it raises KeyboardInterrupt."""
        if self.signal:
            raise KeyboardInterrupt
        self.signal = number

    def run(self) -> None:
        """Request the stop as SIGTERM would, and wait until the job has stopped, at most `timeout_s` plus 10 s.

        The JVM calls this method when it shuts down.
        """
        self.signal = self.signal or signal.SIGTERM
        self._has_stopped.wait(self.timeout_s + _SECONDS_TO_END)

    def end(self) -> None:
        """End the wait of `run`, because the job has stopped."""
        self._has_stopped.set()

    class Java:
        """Interface by which py4j lets the JVM call the object."""

        implements = ("java.lang.Runnable",)


@contextmanager
def stop_requests(spark: SparkSession, timeout_s: float) -> Iterator[StopRequest]:
    """Yield a `StopRequest`. SIGTERM, Ctrl-C or a shutdown of the JVM during the `with` block sets its `signal`.

    Only the main thread handles signals. In another thread, only the shutdown of the JVM requests a stop.

    Args:
        timeout_s: seconds that running micro-batches have to end after the request.
    """
    request = StopRequest(timeout_s)
    is_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGTERM, signal.SIGINT) if is_main else ()
    before = {number: signal.signal(number, request.on_signal) for number in numbers}
    hook = None if is_connect(spark) else _added_hook(spark, request)
    try:
        yield request
    finally:
        request.end()
        if hook is not None:
            with suppress(Py4JError):  # the JVM is shutting down, or is gone
                _hooks(spark).removeShutdownHook(hook)
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None: a handler in C, which Python cannot restore


def _hooks(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.hadoop.util.ShutdownHookManager.get()


def _added_hook(spark: SparkSession, request: StopRequest) -> Any:
    """Add a shutdown hook to the JVM that calls `request.run`; return the hook, or None if the JVM refuses it."""
    jvm: Any = spark._jvm
    try:
        ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
        hook = jvm.java.lang.Thread(request)
        seconds = int(request.timeout_s + _SECONDS_TO_END) + 1
        _hooks(spark).addShutdownHook(hook, _PRIORITY, seconds, jvm.java.util.concurrent.TimeUnit.SECONDS)
    except Py4JError as error:
        log.info("the end of the JVM does not wait for micro-batches: %s", error)
        return None
    return hook
