"""Builder of a command's Spark session: spark-submit's session or, without spark-submit, a local session with Delta."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tiered_stream.delta.catalog.session_checks import CATALOG, EXTENSION
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.settings_files import note_session_settings, spark_settings

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
    """Return the builder of spark-submit's session, or of a local session if spark-submit has not started the process.

    A local session gets Delta's jars, unless the settings have `spark.jars` or `spark.jars.packages`.

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
    """Keep where the settings of spark-submit's session were written, for errors that name them."""
    if _SUBMITTED not in os.environ:
        return  # `session_builder` knows it
    with suppress(PySparkException, Py4JError):  # a session of Spark Connect has neither a JVM nor a context here
        jvm, settings = spark.sparkContext._jvm, dict(spark.sparkContext.getConf().getAll())
        match = _PROPERTIES_FILE.search(str(jvm.System.getProperty("sun.java.command")) if jvm else "")
        note_session_settings(settings, Path(match[1]) if match else None)
