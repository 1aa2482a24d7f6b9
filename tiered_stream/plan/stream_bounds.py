"""Start of a stream's first micro-batch, and end of a bounded stream, which Spark's checkpoint does not store.

For a Python source, Spark stores the ends of micro-batches, but not the initial offsets. After a crash it asks for the
initial offsets again, to repeat the first batch. By then the initial offsets may have moved, partitions may have been
added, or a timestamp may no longer have a match. So the first batch's end offsets in Spark's offset log also have a
note with the batch's start (`options.offset_json`). (Spark's `kafka` source stores the start in its own file:
`KafkaSourceInitialOffsetWriter`.)

Spark's `kafka` source and older releases of this package have written ends without notes. An older release planned an
empty first batch if the start could move: its end is the start.

Under `Trigger.AvailableNow`, a run ends at its target: the log ends that its first look-up has found. A stream with
`boundedStreaming=true` ends at the end that the options give.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import inf

from tiered_stream.errors import ConfigurationError, DataLossError
from tiered_stream.model import PartitionOffsets, TopicPartition, listed
from tiered_stream.options.choices import LocatorName
from tiered_stream.options.offset_json import KnownEnd, notes_of, offsets_to_json
from tiered_stream.options.parsing import Options
from tiered_stream.options.positions import AtOffsets, AtTimestamp, AtTimestamps, BeforeNow, LogEnd, Position
from tiered_stream.plan.data_loss import DataLossPolicy
from tiered_stream.plan.offset_lookup import OffsetLookup
from tiered_stream.plan.starting import InitialOffsets, check_assigned, fitted_initial_offsets, initial_offsets

logger = logging.getLogger(__name__)
_ADVICE = "restart the query; if it happens again, topics are being deleted or created again while it runs"


@dataclass(slots=True)
class FirstBatch:
    """First micro-batch of a stream that has no committed micro-batch.

    The batch is either planned in this run, or repeated from an earlier run. `initial` is the start that the options
    mean now. `refused` is the error if the start position in the options does not fit the partitions. The error is
    raised only if the batch is planned in this run, because the checkpoint has the end of a repeated batch.
    """

    initial: InitialOffsets
    refused: ConfigurationError | None = None
    never_reads: bool = False
    """True if the stream starts at the end of an archive, so that it will never read a record."""
    _warned: bool = False

    @classmethod
    def of(cls, options: Options, lookup: OffsetLookup) -> FirstBatch:
        """Return the first batch, with the start that the options now mean.

        Raises:
            BrokerError, StorageError: the offsets cannot be looked up.
        """
        try:
            never_reads = options.locator is LocatorName.ARCHIVE and options.starting is LogEnd.LATEST
            return cls(initial_offsets(options, lookup), never_reads=never_reads)
        except ConfigurationError as error:
            return cls(fitted_initial_offsets(options, lookup), error)

    def check(self) -> None:
        """Check that the batch can be planned in this run. Log a warning once if the stream will never read a record.

        Raises:
            ConfigurationError: the error `refused` of the start position in the options.
        """
        if self.refused is not None:
            raise self.refused
        if self.never_reads and not self._warned:
            self._warned = True
            logger.warning(
                "an archive gets no new records, and the query starts at its end (startingOffsets=latest): nothing is "
                "read. Set startingOffsets=earliest, and take a new checkpoint"
            )

    def start_of(self, end: PartitionOffsets) -> dict[TopicPartition, int]:
        """Return the start of the repeated batch that ends at `end`, if the checkpoint has no note of the start.

        Partitions that were added later are left out. A partition whose start the options name starts there. If the
        options let a partition start at its log end, its start is `end`. Any other partition starts at its current
        initial offset, but not after `end`. A warning names the partitions in which the batch is taken to be empty.
        """
        starts = {
            partition: offset if partition in self.initial.explicit else self._moved_start(partition, end[partition])
            for partition, offset in self.initial.offsets.items()
            if partition in end
        }
        empty = {partition for partition, start in starts.items() if 0 < start == end[partition]}
        if not self._warned and empty - self.initial.explicit:
            self._warned = True
            logger.warning(
                "the first micro-batch was not committed; it is taken to be empty, as older releases of tiered_stream "
                "plan it, in %s. If Spark's kafka source planned it, let that source finish it: its records are not "
                "read here",
                listed(empty - self.initial.explicit),
            )
        return starts

    def check_start(
        self, start: PartitionOffsets, end: PartitionOffsets, earliest: PartitionOffsets, data_loss: DataLossPolicy
    ) -> None:
        """Report data loss if the repeated batch may have had records below the current log start.

        Args:
            start: result of `start_of`.
            end: end of the repeated batch.
            earliest: current log starts.

        Raises:
            DataLossError: the batch may have had such records, and the policy is to fail.
        """
        for partition, offset in sorted(start.items()):
            log_start = earliest.get(partition, offset)
            # An empty batch ended at the log start of that time. If that has moved, the batch's start is unknown.
            known = partition in self.initial.explicit or offset == end[partition] == log_start
            if not known and 0 < offset <= log_start:
                data_loss.report(
                    "COULD_NOT_READ_OFFSET_RANGE",
                    f"the first micro-batch, up to offset {end[partition]} of {partition}, is read again. Where it "
                    f"started is not in the checkpoint, and what it held before offset {log_start}, where the log "
                    "begins now, is gone.",
                )

    def _moved_start(self, partition: TopicPartition, until: int) -> int:
        return until if partition in self.initial.at_end else min(self.initial.offsets[partition], until)


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
    its log's end. While a transaction is open that began before that time, it is read further, until this transaction
    has ended. A partition that the ending options do not name was added after the first look-up, and is not read.

    Spark's offset log stores the property `written` with the end of each micro-batch. So a restart changes neither an
    end offset nor a time that the options give relative to now.
    """

    def __init__(self, ending: Position, lookup: OffsetLookup) -> None:
        self._lookup = lookup
        self._given = ending
        self._known = KnownEnd(_text(ending))
        self._watermarks: dict[TopicPartition, int] = {}
        """Lowest high watermark of each partition that was looked up after the partition's time had come."""
        self._checked = False
        self._logged = False

    @property
    def written(self) -> KnownEnd | None:
        """Time and end offsets of the stream's end that were looked up, for the checkpoint; None: nothing was found."""
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
        self._find_ends(times)
        ends = {**self._known.offsets, **(self._given.offsets if isinstance(self._given, AtOffsets) else {})}
        named = [partition for partition in latest if partition in ends or partition in times]
        within = {
            partition: min(latest[partition], max(ends.get(partition, latest[partition]), start.get(partition, 0)))
            for partition in named
        }
        if not self._logged and within == start and all(within[each] >= ends.get(each, inf) for each in within):
            self._logged = True
            logger.info("the stream has reached its end, and reads no more: %s", offsets_to_json(within))
        return within

    def _continue(self, written: KnownEnd | None) -> None:
        """Take over the known end from the checkpoint's note `written`, if it is for the same ending options.

        Without such a note, an end that the options give as a time before now becomes a fixed time.
        """
        if written is not None and written.position == self._known.position:
            self._known = replace(written, offsets={**self._known.offsets, **written.offsets})
        elif isinstance(self._given, BeforeNow) and self._known.time_ms is None:
            self._known = replace(self._known, time_ms=self._given.at(self._lookup.now_ms()).timestamp)

    def _check(self, begun: Collection[TopicPartition], partitions: Collection[TopicPartition]) -> None:
        """Check once that the end names the partitions that are read; partitions that were added later may be missing.

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

    def _find_ends(self, times: Mapping[TopicPartition, int]) -> None:
        """Look up and keep the end of each partition: the first offset at or after its time.

        If there is no such offset and the time has come, the log's end is kept, unless a transaction is open that began
        before the time. The offsets of such a transaction have no timestamps yet, but its records may be older than the
        time. Transactions that began later are not awaited, because new ones may always begin before others end.

        Args:
            times: time in ms at which a partition ends, by partition.
        """
        times = {partition: time_ms for partition, time_ms in times.items() if partition not in self._known.offsets}
        if not times:
            return
        now_ms = self._lookup.now_ms()  # first, so that the logs' ends are not older than a time that has come
        past = [partition for partition, time_ms in times.items() if time_ms <= now_ms]

        def look_up() -> dict[TopicPartition, int]:
            reader = self._lookup.reader
            for partition, watermark in reader.high_watermarks(past).items():
                self._watermarks[partition] = min(watermark, self._watermarks.get(partition, watermark))
            log_ends = reader.final_ends({partition: self._watermarks[partition] for partition in past})
            offsets = reader.for_timestamps(times)  # last, so that no log's end is beyond a match
            return log_ends | {partition: offset for partition, offset in offsets.items() if offset is not None}

        if found := self._lookup.retrying(look_up):
            self._known = replace(self._known, offsets={**self._known.offsets, **found})


def _text(position: Position) -> str:
    """Return the position of an end as text, by which a restart notices that the user has changed the end.

    All other positions than times have the text `offsets`, because only ends that times give are kept.
    """
    match position:
        case AtTimestamps(timestamps):
            return offsets_to_json(timestamps)
        case AtTimestamp(timestamp):
            return str(timestamp)
        case BeforeNow(ago_ms):
            return f"-{ago_ms}"
    return "offsets"
