"""The plan in the replay's checkpoint, written once."""

from __future__ import annotations

import time

import orjson

from tiered_stream.delta.checkpoint_folder import CheckpointFolder
from tiered_stream.errors import CorruptDataError
from tiered_stream.options.offset_json import offsets_from_dict
from tiered_stream.replay.replay_plan import ReplayPlan, ends_of

_OFFSETS_LINE = 2
"""Of a file of Spark's offset log: version, metadata, then a line for each source."""
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
        """Whether a micro-batch that ends where the plan does is committed (Spark: `OffsetSeqLog`, `CommitLog`)."""
        if not plan.offsets:
            return True
        batch = self._last_batch("commits")
        text = None if batch is None else self.read(f"offsets/{batch}")
        if text is None:
            return False
        return offsets_from_dict(orjson.loads(text.splitlines()[_OFFSETS_LINE])) == ends_of(plan.ranges)

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
        return self._last_batch("offsets") is not None

    def _last_batch(self, log: str) -> int | None:
        """The last batch in Spark's log of offsets or of commits."""
        return max((int(name) for name in self.entries(log) if name.isdecimal()), default=None)
