"""Removal of Spark's time limit for idle Python workers, which would kill tasks of the direct lane while they write.

Spark counts a Python worker as idle while the worker sends no bytes (Spark: `BasePythonRunner.ReaderInputStream`). A
task of the direct lane writes files, and sends its rows only at its end. A Python source cannot show in another way
that it is alive, because each byte that it sends is part of a row. So queries of the direct lane run without the limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from tiered_stream.spark.session import copied_session

IDLE_LIMIT = "spark.sql.execution.pyspark.udf.idleTimeoutSeconds"
KILL_IDLE = "spark.sql.execution.pyspark.udf.killOnIdleTimeout"
_NO_LIMIT = "0"
_starting = Lock()


@contextmanager
def started_without_idle_limit(spark: SparkSession) -> Iterator[None]:
    """Remove the session's time limit for idle Python workers during the `with` block, in which a query is started.

    A streaming query copies the session when it starts, so the query has no limit. The session gets its limit back at
    the end of the block. If the session's settings do not let Spark kill idle workers, the session is not changed.
    """
    if not _kills_idle(spark):
        yield
        return
    with _starting:  # without the lock, one start could restore the value that another start has set
        previous = spark._jsparkSession.sessionState().conf().getAllConfs().get(IDLE_LIMIT)
        spark.conf.set(IDLE_LIMIT, _NO_LIMIT)
        try:
            yield
        finally:
            if previous.isDefined():
                spark.conf.set(IDLE_LIMIT, previous.get())
            else:
                spark.conf.unset(IDLE_LIMIT)


def without_idle_limit(spark: SparkSession) -> SparkSession:
    """Return a copy of the session without the time limit for idle Python workers, for use by a batch query.

    If the session's settings do not let Spark kill idle workers, the session itself is returned.
    """
    if not _kills_idle(spark):
        return spark
    return copied_session(spark, {IDLE_LIMIT: _NO_LIMIT})


def _kills_idle(spark: SparkSession) -> bool:
    """Return whether Spark ends idle workers. Spark 4.0 never does, and lacks the setting."""
    conf: Any = spark._jsparkSession.sessionState().conf()
    try:
        return bool(conf.pythonUDFWorkerKillOnIdleTimeout()) and conf.pythonUDFWorkerIdleTimeoutSeconds() > 0
    except Py4JError:
        return False
