"""Base class of the targets of a replay: a table, folder or topic to which the records are copied."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tiered_stream.delta.checkpoint.query_run import QueryRun
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.settings_files import gives
from tiered_stream.options.spark_options import MAX_BYTES_PER_TRIGGER, MAX_OFFSETS_PER_TRIGGER
from tiered_stream.replays.replay_plan import ReplayPlan

OFFSETS_PER_TASK = 8_000_000
"""Default size of a micro-batch, in offsets for each parallel task.

A resumed replay reads at most one micro-batch again, so this number limits the repeated work.
"""
TOPIC, PARQUET = "kafka:", "parquet:"
"""Prefixes by which a user names a topic or a folder of Parquet files as the target."""
CHECKPOINTS = "_checkpoints"
"""Name of the folder for checkpoints in the target's folder. Spark's readers and VACUUM ignore the leading `_`."""


@dataclass(frozen=True)
class Target(ABC):
    """Target of one replay: a table, folder or topic to which records are copied, and the user's settings.

    The settings are the source's options and the target's own settings (`ingest.*`, `target.*`). `place` is the table's
    path or name, the folder, or the topic's name. `KIND` is the kind of target: `table`, `parquet` or `topic`. `tasks`
    is the maximum number of parallel tasks, or None for as many as Spark runs. Methods raise errors of
    `tiered_stream.errors`.
    """

    spark: SparkSession
    place: str
    user_settings: Mapping[str, str] = field(default_factory=dict, repr=False)  # it may have secrets
    _: KW_ONLY
    tasks: int | None = None

    KIND: ClassVar[str]

    @property
    def keeps_latest(self) -> bool:
        """Return whether the target has only the latest row of each key."""
        return False

    @property
    def source_settings(self) -> Mapping[str, str]:
        """Return the user's settings by which records are read; a target may leave its own settings out."""
        return self.user_settings

    @property
    def described(self) -> str:
        """Return a text with the kind and the place of the target, such as `topic orders-copy`, without secrets."""
        return f"{self.KIND} {self.place}"

    @abstractmethod
    def default_checkpoint(self, name: str) -> str | None:
        """Return the default checkpoint folder of the replay `name`, or None if it is known only after `prepare`.

        Raises:
            ConfigurationError: the target has no default folder.
        """

    @abstractmethod
    def check(self, plan: ReplayPlan) -> None:
        """Check that the target can take the records of a new plan; write nothing.

        Raises:
            ConfigurationError: the target does not fit, or has records of another replay with the same name.
        """

    def check_not_overtaken(self, plan: ReplayPlan) -> None:  # noqa: B027 - not every target has to
        """Check that no other query has written records to the target whose offsets are above the plan's ranges.

        This base method checks nothing, because only a table of the latest state (`ingest.mode=upsert`) depends on the
        order of records.

        Raises:
            TableError: another query has written later records.
        """

    def prepare(self, plan: ReplayPlan) -> None:  # noqa: B027 - not every target has to
        """Create the target if it is missing. This base method creates nothing."""

    @abstractmethod
    def settings(self, plan: ReplayPlan) -> dict[str, str]:
        """Return the settings of the query that runs the plan: the user's settings, with the plan's offsets."""

    @abstractmethod
    def start(self, plan: ReplayPlan, settings: Mapping[str, str], checkpoint: str) -> tuple[StreamingQuery, str]:
        """Start or resume the query that writes the plan's records.

        Return the query, and a line of text about how the query writes the records.
        """

    def in_batches(self, settings: dict[str, str]) -> dict[str, str]:
        """Return the settings with a limit on the size of a micro-batch (see the function `in_batches`)."""
        return in_batches(settings, self.tasks or self.spark.sparkContext.defaultParallelism)

    def run(self, plan: ReplayPlan, checkpoint: str) -> QueryRun:
        """Return the checkpoint, trigger, name and maximum number of tasks of the query that writes the records."""
        return QueryRun(checkpoint, name=plan.transaction_id, tasks=self.tasks)


def in_batches(settings: dict[str, str], tasks: int) -> dict[str, str]:
    """Return the settings with a limit on the size of a micro-batch, unless the user has set such a limit.

    The added limit is `OFFSETS_PER_TASK` offsets for each of the parallel `tasks`.
    """
    limit = MAX_OFFSETS_PER_TRIGGER.name
    is_limited = gives(settings, [limit, MAX_BYTES_PER_TRIGGER.name])
    return settings if is_limited else {**settings, limit: str(tasks * OFFSETS_PER_TASK)}


def kind_and_place(into: str) -> tuple[str, str]:
    """Return the kind and the place (see `Target`) of the target that a user has written as `into`.

    Raises:
        ConfigurationError: the name after the prefix is missing.
    """
    for prefix, kind in ((TOPIC, "topic"), (PARQUET, "parquet")):
        if into == prefix:
            raise ConfigurationError(f"the target {into!r} has no name: write {prefix}NAME")
        if into.startswith(prefix):
            return kind, into.removeprefix(prefix)
    return "table", into


def checkpoint_in(folder: str, name: str) -> str:
    """Return the default checkpoint folder of the replay `name`, inside the target's `folder`."""
    return f"{folder.rstrip('/')}/{CHECKPOINTS}/replay-{name}"


def check_lane(into: str, lane: str) -> None:
    """Check that a lane is given only for a Delta table; `into` is the target as a user has written it.

    Raises:
        ConfigurationError: the target is not a table, and `lane` is not `auto`.
    """
    if lane != "auto" and kind_and_place(into)[0] != "table":
        raise ConfigurationError(f"the lane {lane} is for a Delta table, and the target is {into}")


def byte_rate(bytes_per_second: int, tasks: int) -> int:
    """Return the maximum bytes per second of each task, if `tasks` parallel tasks share `bytes_per_second`.

    Raises:
        ConfigurationError: the rate is less than a byte a second for each task.
    """
    if bytes_per_second < tasks:
        raise ConfigurationError(
            f"{bytes_per_second} bytes a second are not enough for {tasks} parallel tasks: raise the rate, or use "
            "fewer tasks"
        )
    return bytes_per_second // tasks
