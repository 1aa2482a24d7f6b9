"""Where a replay's records go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tiered_stream.delta.query_evolution import with_named_sink
from tiered_stream.options.command_settings import gives
from tiered_stream.options.spark_options import MAX_BYTES_PER_TRIGGER, MAX_OFFSETS_PER_TRIGGER
from tiered_stream.replay.replay_plan import ReplayPlan

OFFSETS_PER_TASK = 8_000_000
"""Of a micro-batch, for each task at once: what a replay that is stopped has to read again is at most this."""
CHECKPOINTS = "_checkpoints"
"""In the target's folder. Spark's readers, and VACUUM, leave folders alone that begin so."""


@dataclass(frozen=True)
class Target(ABC):
    """One `place` for one replay's records, by the settings `given`; `tasks`: the most at once.

    Errors are of `tiered_stream.errors`.
    """

    spark: SparkSession
    place: str
    given: Mapping[str, str] = field(default_factory=dict)
    _: KW_ONLY
    tasks: int | None = None

    KIND: ClassVar[str]

    @property
    def described(self) -> str:
        """What it is, in a few words and without a secret: one of the replay's arguments."""
        return f"{self.KIND} {self.place}"

    @abstractmethod
    def default_checkpoint(self, name: str) -> str | None:
        """Where the replay `name` keeps its checkpoint unless it is told; None: not before `prepare`."""

    @abstractmethod
    def check(self, plan: ReplayPlan) -> None:
        """Whether the plan, which is new, can be brought there; nothing is written.

        Raises:
            ConfigurationError: it does not fit, or has records of another plan by this name.
        """

    def prepare(self, plan: ReplayPlan) -> None:  # noqa: B027 - not every target has to
        """Make what is missing."""

    @abstractmethod
    def settings(self, plan: ReplayPlan, given: Mapping[str, str]) -> dict[str, str]:
        """Those of the query that reads the plan, made from those that the user gave."""

    @abstractmethod
    def start(self, plan: ReplayPlan, settings: Mapping[str, str], checkpoint: str) -> tuple[StreamingQuery, str]:
        """Start to bring the plan's records there, or go on with it; the query, and in a line how it goes about it."""

    def in_batches(self, settings: dict[str, str]) -> dict[str, str]:
        """The settings, with a limit to a micro-batch's size unless they have one."""
        limit = MAX_OFFSETS_PER_TRIGGER.name
        if gives(settings, [limit, MAX_BYTES_PER_TRIGGER.name]):
            return settings
        tasks = self.tasks or self.spark.sparkContext.defaultParallelism
        return {**settings, limit: str(tasks * OFFSETS_PER_TASK)}

    def limited(self, rows: DataFrame) -> DataFrame:
        """In so many partitions that no more tasks run at once."""
        return rows.coalesce(self.tasks) if self.tasks else rows

    def started(self, writer: DataStreamWriter, plan: ReplayPlan, checkpoint: str) -> StreamingQuery:
        """The query, which ends where the plan does."""
        named = with_named_sink(writer).queryName(plan.transaction_id)
        return named.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()


def checkpoint_in(folder: str, name: str) -> str:
    """Where the replay `name` into the folder keeps its checkpoint unless it is told."""
    return f"{folder.rstrip('/')}/{CHECKPOINTS}/replay-{name}"
