"""Checks that a replay into a table of the latest state (`ingest.mode=upsert`) leaves the latest state there.

A MERGE of older records writes older rows, and brings back rows that a later record has deleted. The result is right
again as soon as the replay has read all later records, too. So a replay must read as far as the table has records.
"""

from __future__ import annotations

from collections.abc import Mapping

from tiered_stream.delta.commit.landed_offsets import LandedOffsets
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.replay.replay_plan import ReplayPlan

_NO_OFFSETS = OffsetRange(0, 0)


def why_not_latest(plan: ReplayPlan, landed: LandedOffsets, *, has_rows: bool, ordered: bool) -> str | None:
    """Return why a replay cannot leave the latest state in an existing table, and what to do; None: it can.

    Args:
        plan: the replay's plan.
        landed: offsets that the table has.
        has_rows: True if the table has rows.
        ordered: True if a column orders the records (`ingest.orderBy`), so that a key may be in several partitions.
    """
    if landed.is_complete and not landed.ranges and not has_rows:
        return None
    if plan.arguments.exact:
        return (
            "--exact leaves out records by their timestamps, and one of them may have changed or deleted a row since. "
            "Leave --exact out, or replay into a new table"
        )
    ends_early = plan.times.to_ms is not None
    unknown = (has_rows and not landed.ranges) or not landed.is_complete
    for partition, offsets in plan.ranges.items():
        known = landed.ranges.get(partition)
        if known is None and unknown and ends_early:
            return (
                f"its commits do not say up to which offset of {partition} it has records, and a later record may have "
                "changed or deleted a row. Leave --to out, so that the replay reads up to the end of the log"
            )
        if known is not None and offsets.end < known.end and (len(offsets) or ordered):
            advice = "Leave --to out, so that the replay reads these records, too"
            return (
                f"the replay ends at offset {offsets.end} of {partition}, and the table has records up to offset "
                f"{known.end - 1}: a later record may have changed or deleted a row that the replay would write again. "
                + (advice if ends_early else "Replay from a log that has these records, or into a new table")
            )
    return None


def overtaken(plan: ReplayPlan, landed: Mapping[TopicPartition, OffsetRange]) -> str | None:
    """Return a text about records in the table that are later than all records of the replay; None: there are none.

    Another query has written them since the replay was planned.
    """
    for partition, offsets in plan.ranges.items():
        end = landed.get(partition, _NO_OFFSETS).end
        if len(offsets) and end > offsets.end:
            return (
                f"another query has brought records up to offset {end - 1} of {partition} into it, and the replay "
                f"{plan.name} reads up to offset {offsets.end - 1}: older records may replace newer rows. Stop the "
                "other query, and replay again with another --name"
            )
    return None
