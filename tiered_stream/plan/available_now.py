"""`Trigger.AvailableNow`: checks each micro-batch against the target that was fixed at the start of the run.

(Spark: `KafkaMicroBatchStream.verifyEndOffsetForTriggerAvailableNow`.)
"""

from __future__ import annotations

from tiered_stream.errors import DataLossError
from tiered_stream.model import PartitionOffsets, listed

_ADVICE = "restart the query; if it happens again, topics are being deleted or made anew while it runs"


def check_target(target: PartitionOffsets, end: PartitionOffsets, latest: PartitionOffsets) -> None:
    """Check that `end` stays within `target`, and that the offsets up to `end` still exist according to `latest`.

    Raises:
        DataLossError: the check fails, regardless of `failOnDataLoss`.
    """
    if end.keys() != target.keys():
        raise _error(
            "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_END_OFFSET_AND_PREFETCHED",
            f"the micro-batch and the run's target differ in {listed(end.keys() ^ target.keys())}",
        )
    _check_ends(
        end, target, "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_PREFETCHED",
        "the micro-batch ends beyond the run's target in",
    )  # fmt: skip
    lost = end.keys() - latest.keys()
    if lost:
        raise _error(
            "LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW",
            f"partitions have been lost during the run: {listed(lost)}",
        )
    _check_ends(
        end, latest, "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAILABLENOW",
        "partitions now end before the micro-batch does:",
    )  # fmt: skip


def _check_ends(end: PartitionOffsets, bound: PartitionOffsets, condition: str, reason: str) -> None:
    beyond = sorted(partition for partition, offset in end.items() if offset > bound[partition])
    if beyond:
        compared = ", ".join(f"{partition} ({end[partition]} against {bound[partition]})" for partition in beyond)
        raise _error(condition, f"{reason} {compared}")


def _error(condition: str, reason: str) -> DataLossError:
    return DataLossError(f"[{condition}] {reason}; {_ADVICE}")
