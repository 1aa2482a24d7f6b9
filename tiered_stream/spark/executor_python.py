"""Choice of the Python programs that plan on the driver and that executors use for tasks.

A Python source is planned on the driver and read in tasks, but Spark has one path of a Python for both (Spark:
`PythonFunction.pythonExec`). The Python of an environment that is shipped with `--archives` exists only in tasks.
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
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from tiered_stream.pythons.forked_python import forked_python
from tiered_stream.spark.session import boolean, is_connect, is_local

TASKS_PYTHON = "spark.sql.execution.pyspark.python"
"""Session setting with the path of the tasks' Python (Spark: `SQLConf.PYSPARK_PYTHON`).

It may be changed at any time, and takes precedence over `SparkContext.pythonExec`.
"""
FORK_SERVER = "spark.tiered_stream.fork.server.enabled"
"""Setting that turns the fork server off (`false`). The server forks Python processes with all imports done.

Without the fork server, each Python process that Spark starts on the driver does all imports again.
"""
ENVIRONMENT = "environment"
"""Folder name after `#` in `--archives` that marks an archive as a packed Python environment, with any file name."""
ARCHIVE = "tiered-stream-"
_EXECUTOR_ENV, _HASH_SEED = "spark.executorEnv.", "PYTHONHASHSEED"
_ARCHIVES = ("spark.archives", "spark.yarn.dist.archives")
_registering = Lock()


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Register the data source class `source` in the session; it replaces a source with the same name.

    The Python of this program then plans queries of the source. Tasks use the Python that the setting `TASKS_PYTHON`
    names. If it is not set, this function sets it (see `tasks_python`). With Spark Connect, the server's Python plans
    and reads.
    """
    if is_connect(spark):
        spark.dataSource.register(source)  # the server has one Python for planning and for tasks
        return
    context = spark.sparkContext
    with _registering:
        tasks_program = context.pythonExec
        fork_program = _fork_program(spark)
        if not spark.conf.get(TASKS_PYTHON, None):
            python = tasks_python(spark)
            if fork_program and is_local(context.master) and _is_this_python(python):
                python = fork_program
            spark.conf.set(TASKS_PYTHON, python)
        try:
            # The Python of this process has the package, so it plans.
            context.pythonExec = fork_program or sys.executable
            try:
                spark.dataSource.register(source)
            except AnalysisException as error:
                if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                    raise
                _forget_installed_source(spark, source.name())
                spark.dataSource.register(source)
        finally:
            context.pythonExec = tasks_program


def start_pythons() -> None:
    """Start the fork server before Spark starts, so that the server imports modules while Spark starts.

    The fork server is a process that forks itself, with all imports done, for each Python that Spark starts on the
    driver. Without spark-submit, this function does nothing, because the environment variables that Spark sets for
    Python are not known yet. `register_source` then starts the server.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return
    SparkContext._ensure_initialized()  # otherwise SparkConf lacks the settings of spark-submit
    conf = dict(SparkConf().getAll())
    executor_settings = {name: value for name, value in conf.items() if name.startswith(_EXECUTOR_ENV)}
    environment = {name.removeprefix(_EXECUTOR_ENV): value for name, value in executor_settings.items()}
    environment[_HASH_SEED] = os.environ.get(_HASH_SEED, "0")  # the same variables as in SparkContext
    if boolean(conf.get(FORK_SERVER), default=True):
        variables = _variables(environment, os.environ.get("PYTHONPATH", ""))
        forked_python(variables, tasks=is_local(conf.get("spark.master", "")))


def forgo_source_lookup(spark: SparkSession) -> None:
    """Make Spark skip the Python process in which it looks for installed Python sources.

    Only a program that needs no installed Python sources may call this. Its first query then starts sooner. Registered
    sources work as before (Spark: `DataSourceManager`). Errors of Spark's internal interface are ignored.
    """
    jvm: Any = spark.sparkContext._jvm
    with suppress(Py4JError, TypeError):  # this is not Spark's public interface, and its failure costs only time
        manager = _scala_object(jvm.org.apache.spark.sql.execution.datasources, "DataSourceManager")
        if manager.dataSourceBuilders().isEmpty():
            none = _scala_object(jvm.scala.collection.immutable, "Map").empty()
            getattr(manager, "dataSourceBuilders_$eq")(jvm.scala.Option.apply(none))


def _forget_installed_source(spark: SparkSession, name: str) -> None:
    """Remove the source `name` from the sources that Spark found installed, which Spark 4.0 refuses to replace.

    Spark keeps these sources in the session's manager, and in a list for later sessions, such as the clone that a
    streaming query gets.
    """
    jvm: Any = spark.sparkContext._jvm
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    field = manager.getClass().getDeclaredField("staticDataSourceBuilders")
    field.setAccessible(True)
    remaining = field.get(manager).removed(name)
    field.set(manager, remaining)
    every_session = _scala_object(jvm.org.apache.spark.sql.execution.datasources, "DataSourceManager")
    getattr(every_session, "dataSourceBuilders_$eq")(jvm.scala.Option.apply(remaining))


def _scala_object(package: Any, name: str) -> Any:
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def _fork_program(spark: SparkSession) -> str | None:
    """Return the path of a program that Spark can start as Python, and that is a fork with all imports done.

    The result is None if the setting `FORK_SERVER` is `false`, or if the fork server cannot be started.
    """
    if not boolean(spark.conf.get(FORK_SERVER, None), default=True):
        return None
    context = spark.sparkContext
    jvm: Any = context._jvm
    spark_path = jvm.org.apache.spark.api.python.PythonUtils.sparkPythonPath()
    environment = {name: str(value) for name, value in context.environment.items()}
    paths = spark_path, environment.get("PYTHONPATH"), jvm.java.lang.System.getenv("PYTHONPATH")
    return forked_python(_variables(environment, os.pathsep.join(filter(None, paths))), tasks=is_local(context.master))


def _variables(environment: Mapping[str, str], path: str) -> dict[str, str]:
    """Return `environment` plus the variables that Spark sets for each Python on the driver (`PythonWorkerFactory`).

    Args:
        environment: environment variables by name.
        path: value of PYTHONPATH.
    """
    return {**environment, "PYTHONPATH": path, "PYTHONUNBUFFERED": "YES"}


def _is_this_python(python: str) -> bool:
    """Return True if the path or command is this process's Python.

    Symbolic links are not resolved, because the Python of a virtual environment is a link.
    """
    return os.path.abspath(which(python) or python) == os.path.abspath(sys.executable)


def tasks_python(spark: SparkSession) -> str:
    """Return the path of the Python that tasks run.

    With a local master and without `PYSPARK_PYTHON`, it is this process's Python. On a cluster, it is the Python of a
    packed environment that was shipped with `--archives`. Otherwise it is the Python that Spark chooses by
    `PYSPARK_PYTHON` or `spark.pyspark.python`.
    """
    context = spark.sparkContext
    if is_local(context.master):
        return context.pythonExec if os.environ.get("PYSPARK_PYTHON") else sys.executable
    archives = (archive for name in _ARCHIVES for archive in (spark.conf.get(name, None) or "").split(","))
    folder = next(filter(None, map(environment_folder, archives)), None)
    return f"./{folder}/bin/python" if folder else context.pythonExec


def environment_folder(archive: str) -> str | None:
    """Return the folder in a task's working directory into which Spark unpacks the packed environment `archive`.

    The folder is the text after `#` in `archive`, or without it the archive's file name (Spark:
    `SparkContext.addArchive`). The result is None if the folder is not named `environment`, and the file name does not
    begin with `tiered-stream-`.
    """
    parts = urlsplit(archive.strip())
    name = PurePosixPath(parts.path).name
    folder = parts.fragment or name
    return folder if folder == ENVIRONMENT or name.startswith(ARCHIVE) else None
