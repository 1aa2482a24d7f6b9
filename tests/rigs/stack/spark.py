"""A local SparkSession with the resolved jars."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from tests.rigs.stack.build import ROOT as ROOT
from tests.rigs.stack.build import SPARK_CLASSES
from tests.rigs.stack.jars import jar_paths
from tests.rigs.stack.java import SHORT_LIVED_JVM, java_executable
from tiered_stream import register

SPARK_SUBMIT = Path(sys.executable).with_name("spark-submit")
WAREHOUSE = f"{tempfile.gettempdir()}/tiered-stream-warehouse-{os.getpid()}"
atexit.register(shutil.rmtree, WAREHOUSE, ignore_errors=True)
LOCAL = {
    "spark.master": "local[2]",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.warehouse.dir": WAREHOUSE,
}
SHORT_LIVED_JAVA = " ".join(SHORT_LIVED_JVM)
_ARCHIVED = f' "-XX:SharedArchiveFile={SPARK_CLASSES}" -Xlog:cds*=off' if SPARK_CLASSES.exists() else ""
SHORT_LIVED = {"spark.driver.extraJavaOptions": SHORT_LIVED_JAVA + _ARCHIVED}
FEW_ROWS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""For tests with tables of a few rows: Spark then takes two fifths less CPU, because it takes longer to generate and
compile code than to interpret a plan. Jobs that are submitted do without these settings."""
UNCHECKED_ARROW = {
    "spark.driver.extraJavaOptions": "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
}
"""As docs/tuning.md has it, where the driver is the executor."""
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
}


def spark_session(
    name: str, groups: tuple[str, ...] = ("delta", "spark-kafka"), config: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark in this process, or return the session that runs already (whose jars then stay as they are).

    Args:
        groups: groups of jars: `delta` (tables), `spark-kafka` (Spark's own `kafka` source), `s3a` (tables in S3).
        config: more Spark settings; they override the settings above.
    """
    java_executable()
    os.environ.update(spark_environment())
    jars = ",".join(str(path) for path in jar_paths(*groups))
    builder = SparkSession.builder.appName(name)
    for key, value in {**LOCAL, **(DELTA if "delta" in groups else {}), "spark.jars": jars, **(config or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    register(session)
    return session


def write_conf(file: Path, settings: Mapping[str, str]) -> None:
    """Write a file for `spark-submit --properties-file`."""
    file.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))


def spark_environment() -> dict[str, str]:
    """The environment in which Spark, its Python workers and spark-submit find this Python and the project."""
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **os.environ,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),  # spark-submit does not find it in a path with a blank
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
    }


def run_program(source: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program to its end in a process of its own, with more variables in its environment."""
    return subprocess.run(
        [sys.executable, "-c", source, *arguments], cwd=ROOT, env={**spark_environment(), **variables},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@contextmanager
def configured(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """The session with the settings, for a while."""
    before = {name: session.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, old)
