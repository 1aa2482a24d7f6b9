"""Which Python the session's processes run, and whether the session is one of Spark Connect.

A Python source is planned on the driver and read in tasks, and Spark takes one path of a Python for both
(Spark: `PythonFunction.pythonExec`). That of an environment that is shipped with `--archives` is there in tasks alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from shutil import which
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from tiered_stream.errors import ConfigurationError
from tiered_stream.forked_python import forked_python

TASKS_PYTHON = "spark.sql.execution.pyspark.python"
"""What tasks run instead (Spark: `SQLConf.PYSPARK_PYTHON`): the session's own, which may be set at any time."""
FORK_SERVER = "spark.tiered_stream.fork.server.enabled"
"""Whether the driver's Pythons are forked with all imports done; `false`: each imports for itself."""
ENVIRONMENT = "environment"
"""The folder in which tasks find a packed environment, where the archive's name does not tell it for one of ours."""
ARCHIVE = "tiered-stream-"
_OF_EXECUTORS, _HASH_SEED = "spark.executorEnv.", "PYTHONHASHSEED"
_ARCHIVES = ("spark.archives", "spark.yarn.dist.archives")
_registering = Lock()


def is_connect(spark: SparkSession) -> bool:
    """Whether it is a client's session: without a JVM of its own, and without a SparkContext."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def refuse_connect(spark: SparkSession, what: str) -> None:
    """Raises ConfigurationError where the session is one of Spark Connect, which does not allow `what`."""
    if is_connect(spark):
        raise ConfigurationError(
            f"{what} needs the driver's own SparkContext and JVM, which Spark Connect does not give: run it with "
            "spark-submit, or with a session that is made without .remote(…) and SPARK_REMOTE"
        )


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Make a Python source known to the session: planned by the driver's own Python, read by that of the tasks."""
    if is_connect(spark):
        spark.dataSource.register(source)  # the server has one Python for both
        return
    context = spark.sparkContext
    with _registering:
        of_tasks = context.pythonExec
        forked = _forked(spark)
        if not spark.conf.get(TASKS_PYTHON, None):
            own = tasks_python(spark)
            spark.conf.set(TASKS_PYTHON, forked if forked and is_local(context) and _is_this(own) else own)
        try:
            # This very Python has the package.
            context.pythonExec = forked or sys.executable
            spark.dataSource.register(source)
        finally:
            context.pythonExec = of_tasks


def start_pythons() -> None:
    """While spark-submit's Spark starts, import what its Pythons are going to need; to be called before it does.

    Without spark-submit there is nothing yet to tell how they are going to be started: `register_source` does it then.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return
    SparkContext._ensure_initialized()  # or a conf has nothing of spark-submit's
    conf = dict(SparkConf().getAll())
    of_executors = {name: value for name, value in conf.items() if name.startswith(_OF_EXECUTORS)}
    given = {name.removeprefix(_OF_EXECUTORS): value for name, value in of_executors.items()}
    given[_HASH_SEED] = os.environ.get(_HASH_SEED, "0")  # as SparkContext has them
    if conf.get(FORK_SERVER) != "false":
        variables = _variables(given, os.environ.get("PYTHONPATH", ""))
        forked_python(variables, tasks=_is_local(conf.get("spark.master", "")))


def forgo_source_lookup(spark: SparkSession) -> None:
    """Spare a program that uses no Python sources but ours the Python process in which Spark looks for others.

    Sources that are registered are known all the same (Spark: `DataSourceManager`).
    """
    jvm: Any = spark.sparkContext._jvm
    with suppress(Py4JError, TypeError):  # it is no part of Spark's interface, and can be done without
        manager = _scala_object(jvm.org.apache.spark.sql.execution.datasources, "DataSourceManager")
        if manager.dataSourceBuilders().isEmpty():
            none = _scala_object(jvm.scala.collection.immutable, "Map").empty()
            getattr(manager, "dataSourceBuilders_$eq")(jvm.scala.Option.apply(none))


def _scala_object(package: Any, name: str) -> Any:
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def _forked(spark: SparkSession) -> str | None:
    """A program that starts this Python with all imports done, if there is one."""
    if spark.conf.get(FORK_SERVER, "true") == "false":
        return None
    context = spark.sparkContext
    jvm: Any = context._jvm
    of_spark = jvm.org.apache.spark.api.python.PythonUtils.sparkPythonPath()
    given = {name: str(value) for name, value in context.environment.items()}
    paths = of_spark, given.get("PYTHONPATH"), jvm.java.lang.System.getenv("PYTHONPATH")
    return forked_python(_variables(given, os.pathsep.join(filter(None, paths))), tasks=is_local(context))


def _variables(given: Mapping[str, str], path: str) -> dict[str, str]:
    """Those with which Spark starts Pythons on the driver, beside its own (Spark: `PythonWorkerFactory`)."""
    return {**given, "PYTHONPATH": path, "PYTHONUNBUFFERED": "YES"}


def is_local(context: SparkContext) -> bool:
    """Whether tasks run in the driver's JVM."""
    return _is_local(str(context.master))


def _is_local(master: str) -> bool:
    return master.partition("[")[0] == "local"


def _is_this(python: str) -> bool:
    """Not by what links lead to: an environment's Python is a link."""
    return os.path.abspath(which(python) or python) == os.path.abspath(sys.executable)


def tasks_python(spark: SparkSession) -> str:
    """The Python that tasks run: of a packed environment, or as `PYSPARK_PYTHON` or `spark.pyspark.python` say."""
    context = spark.sparkContext
    if is_local(context):
        return context.pythonExec if os.environ.get("PYSPARK_PYTHON") else sys.executable
    shipped = (each for name in _ARCHIVES for each in (spark.conf.get(name, None) or "").split(","))
    folder = next(filter(None, map(environment_folder, shipped)), None)
    return f"./{folder}/bin/python" if folder else context.pythonExec


def environment_folder(archive: str) -> str | None:
    """Where Spark unpacks the archive in a task's working directory, if it is a packed environment; else None.

    That is by what stands behind `#`, and without it by the archive's own name (Spark: `SparkContext.addArchive`).
    """
    parts = urlsplit(archive.strip())
    name = PurePosixPath(parts.path).name
    folder = parts.fragment or name
    return folder if folder == ENVIRONMENT or name.startswith(ARCHIVE) else None
