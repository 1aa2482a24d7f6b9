"""End of a stream's run: the check of the target under `Trigger.AvailableNow`, and the end by `boundedStreaming`."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from tiered_stream.errors import DataLossError
from tiered_stream.model import PartitionOffsets, TopicPartition, listed
from tiered_stream.options.offset_json import offsets_to_json
from tiered_stream.options.positions import AtOffsets, AtTimestamp, AtTimestamps, BeforeNow, Position
from tiered_stream.plan.lookup import OffsetLookup
from tiered_stream.plan.starting import check_assigned

log = logging.getLogger(__name__)

_ADVICE = "restart the query; if it happens again, topics are being deleted or created again while it runs"


def check_target(target: PartitionOffsets, end: PartitionOffsets, latest: PartitionOffsets) -> None:
    """Check a micro-batch's `end` against the run's `target` (`Trigger.AvailableNow`) and the logs' ends in `latest`.

    The end must have the partitions of the target, and must not lie beyond the target or beyond a log's end.

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
    partitions = sorted(partition for partition, offset in end.items() if offset > bound[partition])
    if partitions:
        ends = ", ".join(f"{partition} ({end[partition]} against {bound[partition]})" for partition in partitions)
        raise _error(condition, f"{reason} {ends}")


def _error(condition: str, reason: str) -> DataLossError:
    return DataLossError(f"[{condition}] {reason}; {_ADVICE}")


class StreamEnd:
    """End of a bounded stream: the end offset (exclusive) of each partition, kept once it is known.

    If the stream ends at a time, the end of a partition is its first offset at or after that time. While there is no
    such offset, the partition is read further. If there is still none when that time has come, the partition ends at
    its log's end. A partition that the ending options do not name was added after the first look-up, and is not read.
    """

    def __init__(self, ending: Position, lookup: OffsetLookup) -> None:
        self._lookup = lookup
        self._ending = ending.at(lookup.now_ms()) if isinstance(ending, BeforeNow) else ending
        self._ends: dict[TopicPartition, int] = dict(ending.offsets) if isinstance(ending, AtOffsets) else {}
        self._checked = False
        self._logged = False

    def within(self, start: PartitionOffsets, latest: PartitionOffsets) -> dict[TopicPartition, int]:
        """Return the lower of `latest` and the stream's end for each partition, but never less than `start`.

        Partitions that the ending options do not name are left out. A log line says once that the stream has ended.

        Raises:
            ConfigurationError: the end names other partitions than the partitions that are read.
            BrokerError, StorageError: the offsets for timestamps cannot be looked up.
        """
        self._check(latest.keys())
        times = self._times(latest.keys())
        self._find_ends(
            {partition: time_ms for partition, time_ms in times.items() if partition not in self._ends}, latest
        )
        named = [partition for partition in latest if partition in self._ends or partition in times]
        ends = {
            partition: max(self._ends.get(partition, latest[partition]), start.get(partition, 0)) for partition in named
        }
        within = {partition: min(latest[partition], end) for partition, end in ends.items()}
        if not self._logged and self._ends.keys() >= within.keys() and within == start:
            self._logged = True
            log.info("the stream has reached its end, and reads no more: %s", offsets_to_json(within))
        return within

    def _check(self, partitions: Collection[TopicPartition]) -> None:
        match self._ending:
            case _ if self._checked:
                return
            case AtOffsets(offsets):
                check_assigned("KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED", "ending", offsets, partitions)
            case AtTimestamps(timestamps):
                check_assigned("KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED", "ending", timestamps, partitions)
        self._checked = True

    def _times(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        match self._ending:
            case AtTimestamps(timestamps):
                return {partition: timestamps[partition] for partition in partitions if partition in timestamps}
            case AtTimestamp(timestamp):
                return dict.fromkeys(partitions, timestamp)
        return {}

    def _find_ends(self, times: Mapping[TopicPartition, int], latest: PartitionOffsets) -> None:
        if not times:
            return
        now_ms = self._lookup.now_ms()
        offsets = self._lookup.retrying(lambda: self._lookup.reader.for_timestamps(times))
        for partition, time_ms in times.items():
            end = offsets.get(partition)
            if end is not None or time_ms <= now_ms:
                self._ends[partition] = latest[partition] if end is None else end
