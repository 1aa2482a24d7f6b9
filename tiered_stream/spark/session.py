"""Checks of a Spark session (Spark Connect, local master), its booleans, and copies of it with other settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tiered_stream.errors import ConfigurationError


def is_connect(spark: SparkSession) -> bool:
    """Return True if the session is a client of Spark Connect, which has neither a JVM nor a SparkContext."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def refuse_connect(spark: SparkSession, operation: str) -> None:
    """Check that the session is not a client of Spark Connect.

    Args:
        operation: name of the operation that cannot run there, for the message.

    Raises:
        ConfigurationError: the session is a client of Spark Connect.
    """
    if is_connect(spark):
        raise ConfigurationError(
            f"{operation} needs the driver's own SparkContext and JVM, which Spark Connect does not give: run it with "
            "spark-submit, or with a session that is made without .remote(…) and SPARK_REMOTE"
        )


def is_local(master: str | None) -> bool:
    """Return True if `master` is Spark's local master, so that tasks run in the driver's JVM."""
    return (master or "").partition("[")[0] == "local"


def boolean(setting: str | None, *, default: bool) -> bool:
    """Return the value of a setting that Spark or Hadoop reads as a boolean; upper case and blanks do not matter.

    The result is `default` if the setting is None, or neither `true` nor `false`.
    """
    return {"true": True, "false": False}.get((setting or "").strip().lower(), default)


def activate(spark: SparkSession) -> None:
    """Make `spark` the JVM's active session of this thread if the thread has none, because Delta uses the active one.

    The thread of a streaming query already has an active session.
    """
    sessions: Any = spark._jvm and spark._jvm.SparkSession
    if sessions.getActiveSession().isEmpty():
        sessions.setActiveSession(spark._jsparkSession)


class _CopiedSession(SparkSession):
    """Copy of a session, which never becomes the thread's active session.

    PySpark's `createDataFrame` makes its own session the active session. Delta and users' code would then use the
    copy's settings.
    """

    def createDataFrame(self, *args: Any, **kwargs: Any) -> DataFrame:  # noqa: N802
        sessions: Any = self._jvm and self._jvm.SparkSession
        before, in_python = sessions.getActiveSession(), SparkSession._activeSession
        try:
            return super().createDataFrame(*args, **kwargs)
        finally:
            SparkSession._activeSession = in_python
            if before.isDefined():
                sessions.setActiveSession(before.get())
            else:
                sessions.clearActiveSession()


def copied_session(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Return a copy of the session with these settings added; the session itself does not get them."""
    activate(spark)  # otherwise the copy would become the active session when Delta needs one
    session = _CopiedSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    for name, value in settings.items():
        session.conf.set(name, value)
    return session
