"""End of a stream's run: the check of the target under `Trigger.AvailableNow`, and the end by `boundedStreaming`."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace

from tiered_stream.errors import DataLossError
from tiered_stream.model import PartitionOffsets, TopicPartition, listed
from tiered_stream.options.offset_json import KnownEnd, notes_of, offsets_to_json
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
    `written` goes into the notes of each micro-batch's end, so that a restart changes neither a time before now nor an
    end offset.
    """

    def __init__(self, ending: Position, lookup: OffsetLookup) -> None:
        self._lookup = lookup
        self._given = ending
        self._known = KnownEnd(_text(ending))
        self._checked = False
        self._logged = False

    @property
    def written(self) -> KnownEnd | None:
        """Facts about the end that the options do not give; None: there are none."""
        return self._known if self._known.time_ms is not None or self._known.offsets else None

    def within(self, start: PartitionOffsets, latest: PartitionOffsets) -> dict[TopicPartition, int]:
        """Return the lower of `latest` and the stream's end for each partition, but never less than `start`.

        Partitions that the ending options do not name are left out. A log line says once that the stream has ended.

        Raises:
            ConfigurationError: the end names other partitions than the partitions that are read.
            BrokerError, StorageError: the offsets for timestamps cannot be looked up.
        """
        self._continue(notes_of(start).end)
        self._check(start.keys(), latest.keys())
        times = self._times(latest.keys())
        self._find_ends(times, latest)
        ends = {**self._known.offsets, **(self._given.offsets if isinstance(self._given, AtOffsets) else {})}
        named = [partition for partition in latest if partition in ends or partition in times]
        within = {
            partition: min(latest[partition], max(ends.get(partition, latest[partition]), start.get(partition, 0)))
            for partition in named
        }
        if not self._logged and ends.keys() >= within.keys() and within == start:
            self._logged = True
            log.info("the stream has reached its end, and reads no more: %s", offsets_to_json(within))
        return within

    def _continue(self, written: KnownEnd | None) -> None:
        """Take over the end from the notes of the checkpoint, or resolve a time before now if there is none."""
        if written is not None and written.position == self._known.position:
            self._known = replace(written, offsets={**self._known.offsets, **written.offsets})
        elif isinstance(self._given, BeforeNow) and self._known.time_ms is None:
            self._known = replace(self._known, time_ms=self._given.at(self._lookup.now_ms()).timestamp)

    def _check(self, begun: Collection[TopicPartition], partitions: Collection[TopicPartition]) -> None:
        """Check once that the end names the partitions that are read; it need not name one that was added later.

        Args:
            begun: partitions from which the stream has read, or with which it starts.
            partitions: partitions that exist.
        """
        match self._given:
            case AtOffsets(named):
                condition = "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"
            case AtTimestamps(named):
                condition = "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED"
            case _:
                return
        if not self._checked:
            check_assigned(condition, "ending", named, [each for each in partitions if each in begun or each in named])
            self._checked = True

    def _times(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        match self._given:
            case AtTimestamps(timestamps):
                return {partition: timestamps[partition] for partition in partitions if partition in timestamps}
            case AtTimestamp(timestamp):
                return dict.fromkeys(partitions, timestamp)
            case BeforeNow() if self._known.time_ms is not None:
                return dict.fromkeys(partitions, self._known.time_ms)
        return {}

    def _find_ends(self, times: Mapping[TopicPartition, int], latest: PartitionOffsets) -> None:
        """Keep the end of each partition whose time gives one by now."""
        times = {partition: time_ms for partition, time_ms in times.items() if partition not in self._known.offsets}
        if not times:
            return
        now_ms = self._lookup.now_ms()
        offsets = self._lookup.retrying(lambda: self._lookup.reader.for_timestamps(times))
        found = {
            partition: latest[partition] if end is None else end
            for partition, time_ms in times.items()
            if (end := offsets.get(partition)) is not None or time_ms <= now_ms
        }
        if found:
            self._known = replace(self._known, offsets={**self._known.offsets, **found})


def _text(position: Position) -> str:
    """Return the position of an end as text that differs between different positions."""
    match position:
        case AtTimestamps(timestamps):
            return offsets_to_json(timestamps)
        case AtTimestamp(timestamp):
            return str(timestamp)
        case BeforeNow(ago_ms):
            return f"-{ago_ms}"
    return "offsets"
