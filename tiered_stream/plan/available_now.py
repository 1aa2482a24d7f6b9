"""`Trigger.AvailableNow`: each micro-batch is checked against the target that was fixed at the start of the run.

(Spark: `KafkaMicroBatchStream.verifyEndOffsetForTriggerAvailableNow`.)
"""

from __future__ import annotations

from collections.abc import Iterable

from tiered_stream.errors import DataLossError
from tiered_stream.model import PartitionOffsets, TopicPartition, listed

_ADVICE = "restart the query; if it happens again, topics are being deleted or made anew while it runs"


def check_target(target: PartitionOffsets, end: PartitionOffsets, latest: PartitionOffsets) -> None:
    """`end` keeps within `target`, and what it promises is still there according to `latest`.

    Raises:
        DataLossError: it is not so, whatever `failOnDataLoss` says.
    """
    if end.keys() != target.keys():
        raise _error(
            "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_END_OFFSET_AND_PREFETCHED",
            f"the micro-batch and the run's target differ in {listed(end.keys() ^ target.keys())}",
        )
    beyond = [partition for partition, offset in end.items() if offset > target[partition]]
    if beyond:
        raise _error(
            "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_PREFETCHED",
            f"the micro-batch ends beyond the run's target in {_compared(beyond, end, target)}",
        )
    lost = end.keys() - latest.keys()
    if lost:
        raise _error(
            "LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW",
            f"partitions have been lost during the run: {listed(lost)}",
        )
    beyond = [partition for partition, offset in end.items() if offset > latest[partition]]
    if beyond:
        raise _error(
            "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAILABLENOW",
            f"partitions now end before the micro-batch does: {_compared(beyond, end, latest)}",
        )


def _error(condition: str, reason: str) -> DataLossError:
    return DataLossError(f"[{condition}] {reason}; {_ADVICE}")


def _compared(partitions: Iterable[TopicPartition], end: PartitionOffsets, bound: PartitionOffsets) -> str:
    return ", ".join(f"{partition} ({end[partition]} against {bound[partition]})" for partition in sorted(partitions))
