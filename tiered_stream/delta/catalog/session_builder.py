"""Builder of the Spark session for a command: spark-submit's session, or else a local one with Delta."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from tiered_stream.delta.catalog.session_checks import CATALOG, EXTENSION
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.properties_files import parse_assignments, read_spark_properties

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
    """Return the builder of a session; `spark_conf` are `name=value` texts, which override the file.

    Raises:
        ConfigurationError: a local session is needed, but Delta for Spark is not installed; or the file of Spark's
            settings cannot be read, or is given although spark-submit has already started the JVM without it.
    """
    from_file = read_spark_properties(properties_file) if properties_file else {}
    conf = {**from_file, **parse_assignments(spark_conf, "--spark-conf")}
    builder = SparkSession.builder.appName(name)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        conf = {**_LOCAL, **conf}
        if not {"spark.jars", "spark.jars.packages"} & conf.keys():
            builder = _with_delta(builder)
    elif properties_file:
        raise ConfigurationError("--properties-file is spark-submit's: write it before the job, not behind it")
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder


def _with_delta(builder: SparkSession.Builder) -> SparkSession.Builder:
    try:
        from delta import configure_spark_with_delta_pip
    except ImportError as error:
        raise ConfigurationError(
            "Delta for Spark is not installed: pip install 'tiered-stream[delta]', or run the job by spark-submit"
        ) from error
    configured: SparkSession.Builder = configure_spark_with_delta_pip(builder)
    return configured
