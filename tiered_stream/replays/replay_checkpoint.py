"""Checkpoint folder of a replay, read and written through Hadoop's file systems in a Spark session."""

from __future__ import annotations

from tiered_stream.delta.checkpoint.checkpoint_folder import CheckpointFolder
from tiered_stream.delta.checkpoint.spark_checkpoint import ReadableFolder, SparkCheckpoint
from tiered_stream.errors import naming
from tiered_stream.model import PartitionOffsets
from tiered_stream.options.offset_ranges import ends_of
from tiered_stream.replays.replay_plan import PLAN, ReplayPlan

FINISHED = "finished.json"


def stored_plan(folder: ReadableFolder) -> ReplayPlan | None:
    """Return the plan that is stored in a replay's checkpoint folder, or None if the replay is new.

    Raises:
        CorruptDataError: the file is not a plan, or has an unknown version.
    """
    text = folder.read(PLAN)
    if text is None:
        return None
    with naming(f"{folder.folder}/{PLAN}"):
        return ReplayPlan.from_json(text)


class ReplayStore(CheckpointFolder):
    """Checkpoint folder of a replay, with the files `replay.json` and `finished.json` in addition to Spark's files.

    `replay.json` has the plan, and is written once. `finished.json` exists after the replay has finished. All methods
    raise TableError if the folder cannot be reached.
    """

    def plan(self) -> ReplayPlan | None:
        """Return the plan that the folder has (see `stored_plan`)."""
        return stored_plan(self)

    def keep(self, plan: ReplayPlan) -> ReplayPlan:
        """Store the plan unless the folder has a plan already; return the plan that the folder has."""
        self.write(PLAN, plan.to_json())
        return self.plan() or plan

    def reached(self, plan: ReplayPlan) -> bool:
        """Return True if the last committed micro-batch ends at the plan's end offsets, or if all ranges are empty."""
        return not plan.offsets or self.committed() == ends_of(plan.ranges)

    def committed(self) -> PartitionOffsets | None:
        """Return the end offsets of the last committed micro-batch, or None if no micro-batch is committed.

        Raises:
            UnsupportedDataError: the checkpoint's offsets have an unknown version.
            CorruptDataError: the checkpoint's offsets are damaged.
        """
        last = SparkCheckpoint(self).committed()
        return None if last is None else last[1].positions

    @property
    def finished(self) -> bool:
        """Return True if `finish` was called for this folder."""
        return self.read(FINISHED) is not None

    def finish(self) -> None:
        """Mark the replay as finished."""
        self.write(FINISHED, b"{}")

    @property
    def begun(self) -> bool:
        """Return True if the replay's query has planned a micro-batch, so that records may have been written."""
        return SparkCheckpoint(self).last_planned() is not None
