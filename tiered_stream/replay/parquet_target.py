"""A replay into a folder of Parquet files, by Spark's own file sink.

The sink commits each micro-batch once, by the log in the folder's `_spark_metadata` (Spark: `FileStreamSink`): who
reads the folder with Spark sees each record once, whatever a crash left behind. Others have to heed that log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from tiered_stream.delta.ingest_settings import source_options
from tiered_stream.errors import ConfigurationError
from tiered_stream.replay.replay_plan import ReplayPlan
from tiered_stream.replay.store import ReplayStore
from tiered_stream.replay.target import CHECKPOINTS, Start, Target, in_batches
from tiered_stream.source import register


@dataclass(frozen=True)
class ParquetTarget(Target):
    """The folder: a path, or a URI that Spark can write to. `tasks`: the most at once."""

    spark: SparkSession
    folder: str
    tasks: int | None = None

    @property
    def described(self) -> str:
        return f"parquet {self.folder}"

    def default_checkpoint(self, name: str) -> str | None:
        return f"{self.folder.rstrip('/')}/{CHECKPOINTS}/replay-{name}"

    def check(self, plan: ReplayPlan) -> None:
        if plan.arguments.replace:
            raise ConfigurationError("--replace is for a Delta table: files cannot be taken out of a folder")
        found = [name for name in ReplayStore(self.spark, self.folder).entries() if name != CHECKPOINTS]
        if found:
            # The sink would take its batches for those of whoever wrote that log, and leave them out without a word.
            raise ConfigurationError(
                f"the folder {self.folder} is not empty (it has {min(found)}): give a new one, or the --checkpoint of "
                "the replay that wrote there"
            )

    def prepare(self, plan: ReplayPlan) -> None:
        """The sink makes the folder."""

    def settings(self, plan: ReplayPlan, given: Mapping[str, str]) -> dict[str, str]:
        """With a limit to micro-batches."""
        tasks = self.tasks or self.spark.sparkContext.defaultParallelism
        return in_batches(source_options(plan.stream_options(given)), tasks)

    def start(self, plan: ReplayPlan, settings: Mapping[str, str], checkpoint: str) -> Start:
        register(self.spark)
        rows = self.spark.readStream.format("tiered_stream").options(**settings).load()
        writer = (rows.coalesce(self.tasks) if self.tasks else rows).writeStream.format("parquet")
        writer = writer.option("path", self.folder).option("checkpointLocation", checkpoint)
        query = writer.queryName(plan.transaction_id).trigger(availableNow=True).start()
        return Start(query, "by Spark's file sink")
