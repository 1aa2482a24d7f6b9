"""Tables that a session's delta-spark has already opened: a look into Delta's cache of `DeltaLog` objects."""

from __future__ import annotations

from functools import cached_property
from typing import Any, cast
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession


class OpenedLogs:
    """A session's cache of opened `DeltaLog` objects.

    The JVM is not called before the first lookup, because the session may have no Delta. Each part of a Java class name
    costs one call to the JVM, so classes are looked up once for all tables.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._session = spark._jsparkSession
        self._java = cast(Any, spark._jvm)

    def key(self, path: str) -> Any:
        """Return the cache key of the table in the folder `path`, for use with `find`."""
        log_path = self._module.logPathFor(path)
        file_system = log_path.getFileSystem(self._session.sessionState().newHadoopConf())
        return self._new_key(file_system.makeQualified(log_path), self._no_options)

    def find(self, key: Any) -> Any:
        """Return the cached `DeltaLog`, as `DeltaLog.forTable` would; None: nobody has opened the table."""
        return self._cache.getIfPresent(key)

    @cached_property
    def _module(self) -> Any:
        return getattr(getattr(self._java.org.apache.spark.sql.delta, "DeltaLog$"), "MODULE$")

    @cached_property
    def _new_key(self) -> Any:
        return getattr(self._java.org.apache.spark.sql.delta, "DeltaLog$DeltaLogCacheKey")

    @cached_property
    def _no_options(self) -> Any:
        return self._java.PythonUtils.toScalaMap(self._java.java.util.HashMap())

    @cached_property
    def _cache(self) -> Any:
        return self._module.getOrCreateCache(self._session.sessionState().conf())


_of_sessions: WeakKeyDictionary[SparkSession, OpenedLogs] = WeakKeyDictionary()


def opened_logs(spark: SparkSession) -> OpenedLogs:
    """Return the session's `OpenedLogs`, one object for each session."""
    return _of_sessions.setdefault(spark, OpenedLogs(spark))
