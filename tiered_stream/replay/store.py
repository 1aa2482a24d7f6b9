"""The plan in the replay's checkpoint, written once."""

from __future__ import annotations

import time

import orjson

from tiered_stream.delta.checkpoint_folder import CheckpointFolder
from tiered_stream.delta.spark_checkpoint import SparkCheckpoint
from tiered_stream.errors import CorruptDataError
from tiered_stream.replay.replay_plan import ReplayPlan, ends_of

PLAN, FINISHED = "replay.json", "finished.json"


class ReplayStore(CheckpointFolder):
    """A replay's own files in its checkpoint's folder; where a file is no plan, it raises CorruptDataError."""

    def plan(self) -> ReplayPlan | None:
        """The plan, or None: it is a new replay."""
        text = self.read(PLAN)
        if text is None:
            return None
        try:
            return ReplayPlan.from_json(text)
        except CorruptDataError as error:
            raise CorruptDataError(f"{self.folder}/{PLAN}: {error}") from error

    def keep(self, plan: ReplayPlan) -> ReplayPlan:
        """Write the plan; what is there then, which is another's if two replays begin at once."""
        self.write(PLAN, plan.to_json())
        return self.plan() or plan

    def reached(self, plan: ReplayPlan) -> bool:
        """Whether a micro-batch that ends where the plan does is committed.

        Raises:
            UnsupportedDataError: the checkpoint's offsets have a version that is not known here.
            CorruptDataError: the checkpoint's offsets are damaged.
        """
        if not plan.offsets:
            return True
        checkpoint = SparkCheckpoint(self)
        batch = checkpoint.last_committed()
        found = None if batch is None else checkpoint.ends(batch)
        return found is not None and found.positions == ends_of(plan.ranges)

    @property
    def finished(self) -> bool:
        """Whether the replay came to its end."""
        return self.read(FINISHED) is not None

    def finish(self, records: int) -> None:
        """Say that it did; `records` were read by the last run."""
        self.write(FINISHED, orjson.dumps({"finishedAtMs": time.time_ns() // 1_000_000, "records": records}))

    @property
    def begun(self) -> bool:
        """Whether a micro-batch was planned, so that something may have been written."""
        return SparkCheckpoint(self).last_planned() is not None
