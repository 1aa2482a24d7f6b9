"""The Spark session of a command: the one that spark-submit has set up, else a local one with Delta."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from tiered_stream.errors import ConfigurationError

log = logging.getLogger(__name__)

_LOCAL = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
}


def command_session(name: str, settings: Mapping[str, str]) -> SparkSession:
    """The session; `settings` are Spark's own.

    Raises:
        ConfigurationError: a local session is needed, and Delta for Spark is not installed.
    """
    builder = SparkSession.builder.appName(name)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        builder = builder.master("local[*]")
        for key, value in _LOCAL.items():
            builder = builder.config(key, value)
        if not {"spark.jars", "spark.jars.packages"} & settings.keys():
            builder = _with_delta(builder)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _with_delta(builder: SparkSession.Builder) -> SparkSession.Builder:
    try:
        from delta import configure_spark_with_delta_pip
    except ImportError as error:
        raise ConfigurationError(
            "Delta for Spark is not installed: pip install 'tiered-stream[delta]', or run the job by spark-submit"
        ) from error
    configured: SparkSession.Builder = configure_spark_with_delta_pip(builder)
    return configured


def end_session(spark: SparkSession) -> None:
    """Stop it, if there is still somebody who can."""
    try:
        spark.stop()
    except (Py4JError, OSError) as error:
        log.info("Spark could not be stopped, it is gone: %s", error)
