"""Spark session of a command: its builder, its platform, and checks that it can reach a table or a checkpoint.

The checks run before a query starts. Without the checks, Spark would fail in the middle of the query, with hundreds of
lines of Java's stack trace.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyspark
from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tiered_stream.delta.catalog.java_errors import JAVA_ERRORS
from tiered_stream.delta.catalog.platforms import Platform, find_platform
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.settings_files import note_session_settings, spark_settings
from tiered_stream.spark.session import is_connect
from tiered_stream.storage.cloud_endpoints import AZURE_SCHEMES

log = logging.getLogger(__name__)

_SPARK = ".".join(pyspark.__version__.split(".")[:2])
DELTA_PACKAGE = f"io.delta:delta-spark_{_SPARK}_2.13:4.4.0"
HADOOP_AWS, HADOOP_AZURE = "org.apache.hadoop:hadoop-aws", "org.apache.hadoop:hadoop-azure"
GCS_CONNECTOR = "com.google.cloud.bigdataoss:gcs-connector:4.0.4"
GS_SETTINGS = {
    "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
    "fs.AbstractFileSystem.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS",
    "fs.gs.block.size": "67108864",
}
"""Hadoop settings that a session with `GCS_CONNECTOR` needs, because Hadoop 3.5 has defaults for its own connector.

Checkpoints need `fs.AbstractFileSystem.gs.impl`. Hadoop's default block size, `64m`, is no number for gcs-connector.
"""
GS_ADVICE = "set " + ", ".join(f"spark.hadoop.{name}={value}" for name, value in GS_SETTINGS.items())
EXTENSION = ("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
CATALOG = ("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
_DELTA_OF_JAR = "org.apache.spark.sql.delta.sources.DeltaDataSource"
_WASB = "org.apache.hadoop.fs.azure.AzureNativeFileSystemStore"
_FURTHER_CLASSES = {"s3a": "software.amazon.awssdk.services.s3.S3Client", "wasb": _WASB, "wasbs": _WASB}
"""Java class, by URI scheme, that Hadoop's file system for this scheme needs, but loads only when it is opened."""
_LISTED = "spark.jars.packages (where --packages is on the command line, it replaces the file's list)"


def check_table(spark: SparkSession, path: str | None) -> None:
    """Check that the session can write a Delta table; `path` is the table's folder, or None for a table in the catalog.

    With Spark Connect, nothing is checked.

    Raises:
        ConfigurationError: the session lacks Delta, or a file system for the table; the error says what to add.
    """
    check_delta(spark)
    if path is not None:
        check_file_system(spark, "the table", path)


def check_file_system(spark: SparkSession, what: str, path: str) -> None:
    """Check that Spark has a file system for the scheme of `path` (Hadoop: `FileSystem.getFileSystemClass`).

    Nothing is checked for a path without a scheme, or with Spark Connect. `what` says in the error what the path is
    for, such as "the checkpoint".

    Raises:
        ConfigurationError: the session has no such file system; the error says what to add or to write.
    """
    scheme = urlsplit(path).scheme
    if not scheme or is_connect(spark):
        return
    hadoop: Any = spark._jvm and spark._jvm.org.apache.hadoop
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    try:
        hadoop.fs.FileSystem.getFileSystemClass(scheme, conf)
        if scheme in _FURTHER_CLASSES:
            conf.getClassByName(_FURTHER_CLASSES[scheme])
    except JAVA_ERRORS as error:
        why = _missing(scheme, hadoop.util.VersionInfo.getVersion())
        raise ConfigurationError(f"{what} {path} is out of Spark's reach: {why}") from error


def _missing(scheme: str, hadoop_version: str) -> str:
    if scheme == "s3a":
        return (
            f"the session lacks hadoop-aws or the AWS SDK that comes with it. Submit with --properties-file "
            f"conf/spark-s3.conf, or add {HADOOP_AWS}:{hadoop_version} to {_LISTED}"
        )
    if scheme in ("abfs", "abfss"):
        return f"the session lacks hadoop-azure. Add {HADOOP_AZURE}:{hadoop_version} to {_LISTED}"
    if scheme in AZURE_SCHEMES:
        removed = "" if scheme == "az" else ", which Hadoop 3.5 has removed"
        instead = "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/… instead"
        return f"the session knows no {scheme}://{removed}. Write {instead}"
    if scheme == "gs":
        return f"the session lacks Google's connector. Add {GCS_CONNECTOR} to {_LISTED}, and {GS_ADVICE}"
    if scheme in ("s3", "s3n"):
        return f"the session knows no {scheme}://. Write s3a:// instead"
    return f"the session has no file system for {scheme}://. Add its connector to {_LISTED}"


def check_delta(spark: SparkSession) -> None:
    """Check that the session can write Delta tables; with Spark Connect, nothing is checked.

    Raises:
        ConfigurationError: the session lacks Delta's jar, extension or catalog; the error says what to set.
    """
    if is_connect(spark):
        return  # a client cannot see the classes and settings of the server
    sources: Any = spark._jvm and spark._jvm.org.apache.spark.sql.execution.datasources.DataSource
    try:
        data_source = sources.lookupDataSource("delta", spark._jsparkSession.sessionState().conf()).getName()
    except JAVA_ERRORS as error:
        raise ConfigurationError(
            "Spark's session has no Delta. Submit with --properties-file conf/spark-defaults.conf (for tables in S3 "
            f"conf/spark-s3.conf), or add {DELTA_PACKAGE} to {_LISTED}"
        ) from error
    extensions, catalog = (spark.conf.get(name, None) for name, _ in (EXTENSION, CATALOG))
    # Another catalog may include Delta's. Platforms with their own build of Delta need neither setting.
    if data_source == _DELTA_OF_JAR and (EXTENSION[1] not in (extensions or "") or not catalog):
        settings = " and ".join(map("=".join, (EXTENSION, CATALOG)))
        raise ConfigurationError(
            f"Spark's session has Delta's jar, but not all of {settings}: set both, as conf/spark-defaults.conf does"
        )


_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Environment variable that spark-submit sets for the Python process that it starts."""
_PROPERTIES_FILE = re.compile(r" --properties-file (\S+)")
_LOCAL = {
    "spark.master": "local[*]",
    **dict([EXTENSION, CATALOG]),
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
}


def session_builder(
    name: str, properties_file: Path | None = None, spark_conf: Sequence[str] | None = None
) -> SparkSession.Builder:
    """Return a builder of the command's Spark session.

    If spark-submit has started this process, the session is spark-submit's, otherwise a local one. A local session gets
    Delta's jars, unless the settings have `spark.jars` or `spark.jars.packages`.

    Args:
        name: the application's name in Spark.
        properties_file: a file of Spark's settings, only for a local session.
        spark_conf: settings as `name=value` texts, which override the settings in the file.

    Raises:
        ConfigurationError: a local session is needed, but Delta for Spark is not installed. Or the file of Spark's
            settings cannot be read. Or the file is given, but spark-submit has already started the JVM without it.
    """
    conf = spark_settings(properties_file, spark_conf)
    builder = SparkSession.builder.appName(name)
    if _SUBMITTED not in os.environ:
        conf = {**_LOCAL, **conf}
        if not {"spark.jars", "spark.jars.packages"} & conf.keys():
            try:
                from delta import configure_spark_with_delta_pip
            except ImportError as error:
                raise ConfigurationError(
                    "Delta for Spark is not installed: pip install 'tiered-stream[delta]', or run the job by "
                    "spark-submit"
                ) from error
            builder = configure_spark_with_delta_pip(builder)
    elif properties_file:
        raise ConfigurationError("--properties-file is spark-submit's: write it before the job, not behind it")
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder


def note_session(spark: SparkSession) -> None:
    """Remember which file has the settings of a session that spark-submit started, so that errors can name the file.

    For a session that spark-submit has not started, nothing is done.
    """
    if _SUBMITTED not in os.environ:
        return  # `session_builder` knows it
    with suppress(PySparkException, Py4JError):  # a session of Spark Connect has neither a JVM nor a context here
        jvm, settings = spark.sparkContext._jvm, dict(spark.sparkContext.getConf().getAll())
        match = _PROPERTIES_FILE.search(str(jvm.System.getProperty("sun.java.command")) if jvm else "")
        note_session_settings(settings, Path(match[1]) if match else None)


@lru_cache(maxsize=1)
def platform_of(spark: SparkSession) -> Platform | None:
    """Return the managed platform on which the session's driver runs, or None if there is no sign of a known platform.

    With Spark Connect, only the environment variables of this process are looked at, because a client sees nothing of
    the server.
    """
    if is_connect(spark):
        return find_platform(os.environ, lambda _: None, "", lambda _: False)
    jvm: Any = spark._jvm
    return find_platform(
        os.environ,
        lambda name: spark.conf.get(name, None),
        spark.version,
        lambda name: not isinstance(getattr(jvm, name), JavaPackage),
    )


def log_platform(spark: SparkSession) -> None:
    """Log the name and the limits of the managed platform on which the driver runs; log nothing without a platform."""
    if (platform := platform_of(spark)) is not None:
        log.info("the platform is %s", platform)
