"""A driver process that lands topics on order."""

from __future__ import annotations

import faulthandler
import signal
import threading
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.delta.driver import die_at
from tests.rigs.stack.children import Child, requests
from tests.rigs.stack.processes import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLED = "the driver was killed"
_READY = "ready"


class Driver:
    """The process, seen from the one that starts it; it runs one query at a time.

    Args:
        settings: of its Spark session.
    """

    def __init__(self, log_file: Path, settings: Mapping[str, str]) -> None:
        self.log_file = log_file
        self._child = Child(log_file, _serve, settings)
        assert self.answer() == _READY, log_file.read_text()[-4000:]

    @property
    def pid(self) -> int:
        """Also of its session and its process group."""
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child.process.is_alive()

    @property
    def answered(self) -> bool:
        """Whether the query has ended, or the process has."""
        return self._child.connection.poll()

    def land(self, **arguments: Any) -> None:
        """Start a query with the arguments of `tiered_stream.land`; `answer` tells how it ended."""
        self._order(arguments)

    def die_at(self, point: str) -> None:
        """Die at that point of the next micro-batch (`tests.delta.driver.POINTS`)."""
        self._order(point)

    def answer(self) -> str:
        """How the query ended, when it has: an error, nothing where it ended well, `KILLED` by SIGKILL."""
        wait_until(lambda: self.answered, "the query to end", pause=0.02)
        try:
            return str(self._child.receive())
        except EOFError:
            self._child.process.join()
            self.kill()
            status = self._child.process.exitcode
            return KILLED if status == -signal.SIGKILL else f"the driver ended with status {status}"

    def kill(self) -> None:
        """SIGKILL to its Python, its JVM, and with them the workers."""
        self._child.kill()

    def _order(self, order: Mapping[str, Any] | str) -> None:
        try:
            self._child.connection.send(order)
        except ConnectionError:
            pass  # it is dead, which `answer` tells


def _serve(connection: Connection, settings: Mapping[str, str]) -> None:
    from tests.rigs.stack.spark import SHORT_LIVED, spark_session

    faulthandler.enable()
    spark = spark_session("chaos", ("delta",), {**SHORT_LIVED, **settings})
    connection.send(_READY)
    for order in requests(connection):
        if isinstance(order, str):
            die_at(order)
        else:
            threading.Thread(target=_land, args=(spark, order, connection), daemon=True).start()


def _land(spark: SparkSession, arguments: Mapping[str, Any], connection: Connection) -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from tiered_stream import land
    from tiered_stream.errors import TieredStreamError

    error = ""
    try:
        land(spark, **arguments).awaitTermination()
    except (TieredStreamError, PySparkException, Py4JError) as failure:
        error = "\ncaused by: ".join([f"{type(failure).__name__}: {failure}", *_causes(failure)])
    connection.send(error)


def _causes(failure: Exception) -> Iterator[str]:
    """Those in the JVM: an error of a sink does not say why a task has failed."""
    java = getattr(failure, "_origin", None)
    while java is not None:
        yield java.toString()
        java = java.getCause()
