"""A replay into a folder of Parquet files, by Spark's own file sink.

The sink commits each micro-batch once, by the log in the folder's `_spark_metadata` (Spark: `FileStreamSink`): who
reads the folder with Spark sees each record once, whatever a crash left behind. Others have to heed that log.
"""

from __future__ import annotations

from collections.abc import Mapping

from tiered_stream.delta.ingest_settings import source_options
from tiered_stream.errors import ConfigurationError
from tiered_stream.replay.replay_plan import ReplayPlan
from tiered_stream.replay.store import ReplayStore
from tiered_stream.replay.target import CHECKPOINTS, Start, Target, checkpoint_in
from tiered_stream.source import register


class ParquetTarget(Target):
    """The folder: a path, or a URI that Spark can write to."""

    KIND = "parquet"

    def default_checkpoint(self, name: str) -> str | None:
        return checkpoint_in(self.place, name)

    def check(self, plan: ReplayPlan) -> None:
        if plan.arguments.replace:
            raise ConfigurationError("--replace is for a Delta table: files cannot be taken out of a folder")
        found = [name for name in ReplayStore(self.spark, self.place).entries() if name != CHECKPOINTS]
        if found:
            # The sink would take its batches for those of whoever wrote that log, and leave them out without a word.
            raise ConfigurationError(
                f"the folder {self.place} is not empty (it has {min(found)}): give a new one, or the --checkpoint of "
                "the replay that wrote there"
            )

    def settings(self, plan: ReplayPlan, given: Mapping[str, str]) -> dict[str, str]:
        return self.in_batches(source_options(plan.stream_options(given)))

    def start(self, plan: ReplayPlan, settings: Mapping[str, str], checkpoint: str) -> Start:
        register(self.spark)
        rows = self.spark.readStream.format("tiered_stream").options(**settings).load()
        writer = self.limited(rows).writeStream.format("parquet").queryName(plan.transaction_id)
        writer = writer.option("path", self.place).option("checkpointLocation", checkpoint)
        return Start(writer.trigger(availableNow=True).start(), "by Spark's file sink")
