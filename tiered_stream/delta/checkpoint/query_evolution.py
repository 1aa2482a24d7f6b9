"""Names of a query's source and sink, for sessions that require them (`spark.sql.streaming.queryEvolution.*`).

Spark finds a named source's offsets in the checkpoint by the source's name. A source with a different name starts again
from the beginning, without an error. So a source of this package takes the name that is in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tiered_stream.delta.checkpoint.checkpoint_folder import CheckpointFolder
from tiered_stream.delta.checkpoint.spark_checkpoint import SparkCheckpoint
from tiered_stream.errors import ConfigurationError
from tiered_stream.spark.session import is_connect

NAME = "tiered_stream"
_NAMES_SOURCES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


def stream_of(spark: SparkSession, source: str, options: Mapping[str, str], checkpoint: str) -> DataFrame:
    """Return a streaming DataFrame of the data source `source`, for the query that uses the checkpoint.

    If the session requires names of sources (`spark.sql.streaming.queryEvolution.enableSourceEvolution`), the source
    gets its name from the checkpoint. Its name is `NAME` if the checkpoint has no name yet, or with Spark Connect.
    Without this requirement, the checkpoint is not read.

    Raises:
        ConfigurationError: the checkpoint has offsets of several sources, or Spark has no file system for it.
        TableError, CorruptDataError, UnsupportedDataError: the checkpoint cannot be read.
    """
    reader = spark.readStream.format(source).options(**options)
    if (spark.conf.get(_NAMES_SOURCES, None) or "").strip().lower() == "true":
        reader = reader.name(NAME if is_connect(spark) else _source_name(spark, checkpoint))
    return reader.load()


def with_named_sink(writer: DataStreamWriter) -> DataStreamWriter:
    """Name the writer's sink `NAME` and return the writer; Spark uses the name only if the session requires names.

    Spark Connect has no way to name a sink. If the session requires a name there, Spark refuses the query.
    """
    private: Any = writer  # Python's DataStreamWriter has no name() in Spark 4.2.
    if hasattr(private, "_jwrite"):
        with suppress(Py4JError):  # If Spark needs the name, Spark itself raises an error.
            private._jwrite = private._jwrite.name(NAME)
    return writer


def _source_name(spark: SparkSession, checkpoint: str) -> str:
    reader = SparkCheckpoint(CheckpointFolder(spark, checkpoint))
    last = reader.last_planned()
    ends = None if last is None else reader.ends(last)
    if ends is None or not ends.has_ids:
        return NAME
    if len(ends.by_source) != 1:
        raise ConfigurationError(
            f"the checkpoint {checkpoint} has offsets of the sources {', '.join(sorted(ends.by_source))}, and this "
            "query reads one: name another checkpoint"
        )
    return next(iter(ends.by_source))
