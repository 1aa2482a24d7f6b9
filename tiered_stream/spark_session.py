"""Which Python the session's processes run, and whether the session is one of Spark Connect.

A Python source is planned on the driver and read in tasks, and Spark takes one path of a Python for both
(Spark: `PythonFunction.pythonExec`). That of an environment that is shipped with `--archives` is there in tasks alone.
"""

from __future__ import annotations

import os
import sys
from pathlib import PurePosixPath
from threading import Lock
from urllib.parse import urlsplit

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from tiered_stream.errors import ConfigurationError

TASKS_PYTHON = "spark.sql.execution.pyspark.python"
"""What tasks run instead (Spark: `SQLConf.PYSPARK_PYTHON`): the session's own, which may be set at any time."""
ENVIRONMENT = "environment"
"""The folder in which tasks find a packed environment, where the archive's name does not tell it for one of ours."""
ARCHIVE = "tiered-stream-"
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
        if not spark.conf.get(TASKS_PYTHON, None):
            spark.conf.set(TASKS_PYTHON, tasks_python(spark))
        try:
            # This very Python has the package.
            context.pythonExec = sys.executable
            spark.dataSource.register(source)
        finally:
            context.pythonExec = of_tasks


def tasks_python(spark: SparkSession) -> str:
    """The Python that tasks run: of a packed environment, or as `PYSPARK_PYTHON` or `spark.pyspark.python` say."""
    context = spark.sparkContext
    if str(context.master).partition("[")[0] == "local":
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
