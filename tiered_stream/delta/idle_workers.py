"""Tasks that give their one row at their end, and Spark's limit on how long a Python worker may give nothing.

Spark counts a worker as idle while no byte comes from it (Spark: `BasePythonRunner.ReaderInputStream`). A task of the
direct lane writes files all the while, and would be killed as idle. A Python source has no other way to show that it
is alive: each byte that it sends is part of a row. So our own queries run without the limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from pyspark.sql import SparkSession

IDLE_LIMIT = "spark.sql.execution.pyspark.udf.idleTimeoutSeconds"
KILL_IDLE = "spark.sql.execution.pyspark.udf.killOnIdleTimeout"
_NO_LIMIT = "0"
_starting = Lock()


@contextmanager
def started_without_idle_limit(spark: SparkSession) -> Iterator[None]:
    """Start a streaming query within: it copies the session when it starts, and the copy has no limit.

    The session itself has its limit again afterwards.
    """
    if not _kills_idle(spark):
        yield
        return
    with _starting:  # or one start would restore what another has set
        given = spark._jsparkSession.sessionState().conf().getAllConfs().get(IDLE_LIMIT)
        spark.conf.set(IDLE_LIMIT, _NO_LIMIT)
        try:
            yield
        finally:
            if given.isDefined():
                spark.conf.set(IDLE_LIMIT, given.get())
            else:
                spark.conf.unset(IDLE_LIMIT)


def without_idle_limit(spark: SparkSession) -> SparkSession:
    """A session for a batch query: a copy without the limit, or the same session where Spark kills no idle worker."""
    if not _kills_idle(spark):
        return spark
    copy = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    copy.conf.set(IDLE_LIMIT, _NO_LIMIT)
    return copy


def _kills_idle(spark: SparkSession) -> bool:
    conf: Any = spark._jsparkSession.sessionState().conf()
    return bool(conf.pythonUDFWorkerKillOnIdleTimeout()) and conf.pythonUDFWorkerIdleTimeoutSeconds() > 0
