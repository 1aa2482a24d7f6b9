"""Where a replay's records go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql.streaming.query import StreamingQuery

from tiered_stream.options.spark_options import MAX_OFFSETS_PER_TRIGGER
from tiered_stream.replay.replay_plan import ReplayPlan

OFFSETS_PER_TASK = 8_000_000
"""Of a micro-batch, for each task at once: what a replay that is stopped has to read again is at most this."""
CHECKPOINTS = "_checkpoints"
"""In the target's folder. Spark's readers, and VACUUM, leave folders alone that begin so."""


class Start(NamedTuple):
    """A query that runs, and a line that says how it goes about it."""

    query: StreamingQuery
    how: str


class Target(ABC):
    """One place for one replay's records. Errors are of `tiered_stream.errors`."""

    @property
    @abstractmethod
    def described(self) -> str:
        """What it is, in a few words and without a secret: one of the replay's arguments."""

    @abstractmethod
    def default_checkpoint(self, name: str) -> str | None:
        """Where the replay `name` keeps its checkpoint unless it is told; None: not before `prepare`."""

    @abstractmethod
    def check(self, plan: ReplayPlan) -> None:
        """Whether the plan, which is new, can be brought there; nothing is written.

        Raises:
            ConfigurationError: it does not fit, or has records of another plan by this name.
        """

    @abstractmethod
    def prepare(self, plan: ReplayPlan) -> None:
        """Make what is missing."""

    def settings(self, plan: ReplayPlan, given: Mapping[str, str]) -> dict[str, str]:
        """Those of the query that reads the plan, made from those that the user gave."""
        return plan.stream_options(given)

    @abstractmethod
    def start(self, plan: ReplayPlan, settings: Mapping[str, str], checkpoint: str) -> Start:
        """Start to bring the plan's records there, or go on with it; `settings` are those of the query."""


def in_batches(options: Mapping[str, str], tasks: int) -> dict[str, str]:
    """The options, with a limit to a micro-batch's size unless they have one."""
    limited = any(name.lower() == MAX_OFFSETS_PER_TRIGGER.name.lower() for name in options)
    limit = {} if limited else {MAX_OFFSETS_PER_TRIGGER.name: str(tasks * OFFSETS_PER_TASK)}
    return {**options, **limit}
