"""Which target a user means, and how fast it may go."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.remote_options import MAX_BYTES_PER_SECOND
from tiered_stream.replay.delta_target import DeltaTarget
from tiered_stream.replay.parquet_target import ParquetTarget
from tiered_stream.replay.target import Target
from tiered_stream.replay.topic_target import TopicTarget

TOPIC, PARQUET = "kafka:", "parquet:"


def target_of(
    spark: SparkSession, text: str, given: Mapping[str, str], *, lane: str = "auto", tasks: int | None = None
) -> Target:
    """`kafka:TOPIC`, `parquet:FOLDER`, or a Delta table by its path or name.

    Raises:
        ConfigurationError: it names no topic or folder, or a lane is given for what has none.
    """
    for prefix in (TOPIC, PARQUET):
        if text == prefix:
            raise ConfigurationError(f"the target {text!r} says no more than what it is: write {prefix}NAME")
        if text.startswith(prefix) and lane != "auto":
            raise ConfigurationError(f"the lane {lane} is for a Delta table, and the target is {text}")
    if text.startswith(TOPIC):
        return TopicTarget(spark, text.removeprefix(TOPIC), given, tasks=tasks)
    if text.startswith(PARQUET):
        return ParquetTarget(spark, text.removeprefix(PARQUET), given, tasks=tasks)
    return DeltaTarget(spark, text, given, lane, tasks=tasks)


def paced(
    spark: SparkSession, given: Mapping[str, str], bytes_per_second: int | None, tasks: int | None
) -> dict[str, str]:
    """The settings, with each task's share of what all may fetch, and write, in a second.

    Raises:
        ConfigurationError: there is not a byte for each task.
    """
    if bytes_per_second is None:
        return dict(given)
    at_once = tasks or spark.sparkContext.defaultParallelism
    if bytes_per_second < at_once:
        raise ConfigurationError(
            f"{bytes_per_second} bytes a second are not enough for {at_once} tasks at once: give more, or fewer tasks"
        )
    return {**given, MAX_BYTES_PER_SECOND.name: str(bytes_per_second // at_once)}
