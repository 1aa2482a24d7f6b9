"""What the commands `replay` and `verify` have in common: settings, a Spark session, exit codes."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console

from tiered_stream.errors import (
    BrokerAuthorizationError,
    ConfigurationError,
    DataLossError,
    TieredStreamError,
    UnknownTopicError,
)
from tiered_stream.options.given import GivenOptions
from tiered_stream.options.properties_files import parse_assignment, read_settings
from tiered_stream.replay.replay_plan import SUBSCRIPTION, gives, without

log = logging.getLogger(__name__)

DONE, FAILED, REFUSED, DIFFERS, STOPPED = 0, 1, 2, 3, 130
ERRORS = (TieredStreamError, PySparkException, Py4JError)
WRONG_INPUT = (ConfigurationError, UnknownTopicError, BrokerAuthorizationError, DataLossError)
"""Errors that say, before anything runs, that it cannot be as it was asked for."""

_JOB = "ingest."
_OF_THE_JOB = tuple(_JOB + name for name in ("table", "lane", "checkpointLocation", "trigger"))
_LOCAL = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
}


@dataclass(frozen=True, kw_only=True)
class Command:
    """What the command lines of both say: a settings file, which may be the ingest job's, and `name=value` texts.

    `reads`: what to read, as options of the source.
    """

    settings: Path | None
    option: Sequence[str] | None
    reads: Mapping[str, str]
    spark_conf: Sequence[str] | None
    json: bool

    def given(self) -> dict[str, str]:
        """The settings of the file, those of the command line on top.

        Raises:
            ConfigurationError: the file cannot be read, or a text has no `=`.
        """
        own = {**_assignments(self.option), **self.reads}
        from_file = read_settings(self.settings) if self.settings else {}
        # Who says on the command line what to read, does not mean what the file says of it.
        return without(from_file, (*own, *SUBSCRIPTION) if gives(own, SUBSCRIPTION) else own) | own

    @contextmanager
    def session(self, name: str) -> Iterator[SparkSession]:
        """The session that spark-submit has set up, else a local one with Delta; stopped in the end.

        Raises:
            ConfigurationError: a local session is needed, and Delta for Spark is not installed.
        """
        conf = _assignments(self.spark_conf)
        builder = SparkSession.builder.appName(name)
        if "PYSPARK_GATEWAY_PORT" not in os.environ:
            builder = _configured(builder.master("local[*]"), _LOCAL)
            if not {"spark.jars", "spark.jars.packages"} & conf.keys():
                builder = _with_delta(builder)
        spark = _configured(builder, conf).getOrCreate()
        try:
            yield spark
        finally:
            try:
                spark.stop()
            except (Py4JError, OSError) as error:
                log.info("Spark could not be stopped, it is gone: %s", error)


def _assignments(texts: Sequence[str] | None) -> dict[str, str]:
    return dict(map(parse_assignment, texts or ()))


def _configured(builder: SparkSession.Builder, conf: Mapping[str, str]) -> SparkSession.Builder:
    return builder.config(map=dict(conf))


def _with_delta(builder: SparkSession.Builder) -> SparkSession.Builder:
    try:
        from delta import configure_spark_with_delta_pip
    except ImportError as error:
        raise ConfigurationError(
            "Delta for Spark is not installed: pip install 'tiered-stream[delta]', or run the job by spark-submit"
        ) from error
    configured: SparkSession.Builder = configure_spark_with_delta_pip(builder)
    return configured


def of_the_source(settings: Mapping[str, str]) -> dict[str, str]:
    """Without what is the ingest job's own."""
    return without(settings, _OF_THE_JOB)


def of_the_job(settings: Mapping[str, str], name: str) -> str | None:
    """The ingest job's `table` or `lane`; of a table for each topic, as of none, None."""
    value = GivenOptions(settings).with_prefix(_JOB).get(name)
    return None if not value or "{topic}" in value else value


def said(console: Console, error: Exception, code: int) -> int:
    """The code, after the error's words."""
    console.print(str(error), style="red", markup=False)
    return code
