"""From what the user said (`startingOffsets`, timestamps, …) to offsets: a stream's start, a batch query's ranges.

(Spark: `KafkaOffsetReaderAdmin.fetchSpecificOffsets`, `fetchSpecificTimestampBasedOffsets`, `KafkaSourceProvider`.)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tiered_stream.broker.offset_reader import OffsetReader
from tiered_stream.errors import ConfigurationError
from tiered_stream.model import OffsetRange, PartitionOffsets, TopicPartition, listed
from tiered_stream.options.offset_json import EARLIEST, LATEST
from tiered_stream.options.parsing import Options
from tiered_stream.options.positions import AtGroup, AtOffsets, AtTimestamp, AtTimestamps, BeforeNow, LogEnd, Position
from tiered_stream.plan.data_loss import DataLossPolicy
from tiered_stream.plan.lookup import OffsetLookup, check_decided
from tiered_stream.plan.partitions import within_log


@dataclass(frozen=True, slots=True)
class InitialOffsets:
    """Where a stream without a checkpoint starts.

    `given` are the partitions whose offset the user named, `at_end` those that start at their end; the others start
    at their log start or at a timestamp. What is not given may be another offset when it is asked for again.
    """

    offsets: dict[TopicPartition, int]
    given: frozenset[TopicPartition]
    at_end: frozenset[TopicPartition]


def initial_offsets(options: Options, lookup: OffsetLookup) -> InitialOffsets:
    """The first offset to read of every assigned partition.

    Raises:
        ConfigurationError: the position names other partitions than those assigned, or a timestamp has no match, or a
            group no committed offset.
        BrokerError, StorageError: the offsets cannot be looked up.
    """
    return lookup.retrying(lambda: _initial(options.starting, lookup, _no_match(options)))


def fitted_initial_offsets(options: Options, lookup: OffsetLookup) -> InitialOffsets:
    """As `initial_offsets`, where that raises ConfigurationError: what has no position starts at its end.

    Raises:
        BrokerError, StorageError: the offsets cannot be looked up.
    """
    return lookup.retrying(lambda: _initial(options.starting, lookup, "latest", fitted=True))


def _no_match(options: Options) -> str:
    """What becomes of a partition of which the start says nothing."""
    return options.group_strategy if isinstance(options.starting, AtGroup) else options.timestamp_strategy


def _initial(starting: Position, lookup: OffsetLookup, no_match: str, *, fitted: bool = False) -> InitialOffsets:
    partitions, reader = lookup.assigned().partitions, lookup.reader
    starting = _fitted(starting, partitions) if fitted else starting
    starts = _positions(starting, partitions, lookup, "starting", no_match)
    named = {each for each, at in starts.items() if at not in (EARLIEST, LATEST)}
    return InitialOffsets(
        offsets=_bound(starts, *_log_ends(partitions, reader)),
        given=frozenset(named) if isinstance(starting, AtOffsets) else frozenset(),
        at_end=frozenset(each for each, at in starts.items() if at == LATEST),
    )


def _fitted(starting: Position, partitions: Collection[TopicPartition]) -> Position:
    """`starting` for these partitions and no others."""
    match starting:
        case AtOffsets(offsets, topics):
            words = {partition: topics.get(partition.topic, LATEST) for partition in partitions}
            return AtOffsets({partition: offsets.get(partition, word) for partition, word in words.items()})
        case AtTimestamps(timestamps):
            return AtTimestamps({partition: timestamps.get(partition, LATEST) for partition in partitions})
        case LogEnd() | AtTimestamp() | BeforeNow() | AtGroup():
            return starting


def batch_ranges(options: Options, lookup: OffsetLookup) -> dict[TopicPartition, OffsetRange]:
    """What a batch query reads; earliest and latest are those of this moment.

    Raises:
        ConfigurationError: as `initial_offsets`, or a start lies beyond its end.
        DataLossError: a range reaches out of its log, and the query is to fail then.
        OpenTransactionError: an end lies beyond the first offset of a transaction that is open.
        BrokerError, StorageError: the offsets cannot be looked up.
    """

    def ask() -> dict[TopicPartition, OffsetRange]:
        partitions, reader = lookup.assigned().partitions, lookup.reader
        starts = _positions(options.starting, partitions, lookup, "starting", _no_match(options))
        ends = _positions(options.ending, partitions, lookup, "ending", "latest")
        earliest, latest = _log_ends(partitions, reader)  # last, so that no match of a timestamp lies beyond
        starts = _bound(starts, earliest, latest)
        # What starts beyond an open transaction's first offset has nothing to read yet, and ends where it starts.
        held = {**latest, **{each: starts[each] for each in lookup.undecided(latest, starts)}}
        ranges = _ranges(starts, _bound(ends, earliest, held))
        wanted = {partition: offsets.end for partition, offsets in ranges.items() if len(offsets)}
        check_decided(lookup.undecided(latest, wanted), wanted)
        return within_log(ranges, earliest, held, DataLossPolicy(options.fail_on_data_loss))

    return lookup.retrying(ask)


def _positions(
    position: Position, partitions: Collection[TopicPartition], lookup: OffsetLookup, which: str, no_match: str
) -> dict[TopicPartition, int]:
    """By partition an offset, EARLIEST or LATEST; `no_match` (of a timestamp, a group): an `error`, or one of these."""
    reader = lookup.reader
    position = position.at(lookup.now_ms()) if isinstance(position, BeforeNow) else position
    match position:
        case LogEnd():
            return dict.fromkeys(partitions, position.value)
        case AtOffsets(offsets, topics):
            words = {partition: topics[partition.topic] for partition in partitions if partition.topic in topics}
            named = {**offsets, **words}
            check_assigned("KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED", which, named, partitions)
            return named
        case AtTimestamps(timestamps):
            check_assigned("KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED", which, timestamps, partitions)
            return _offsets_for(timestamps, reader, no_match)
        case AtTimestamp(timestamp):
            return _offsets_for(dict.fromkeys(partitions, timestamp), reader, no_match)
        case AtGroup(group):
            return _offsets_of(group, partitions, reader, no_match)


def _offsets_of(
    group: str, partitions: Collection[TopicPartition], reader: OffsetReader, no_match: str
) -> dict[TopicPartition, int]:
    """By partition what the group has committed."""
    committed = reader.committed(group, partitions)
    without = [partition for partition, offset in committed.items() if offset is None]
    if without and no_match == "error":
        raise ConfigurationError(
            f"the consumer group {group!r} has committed no offset for {listed(without)}: is it the right group? To "
            "start such partitions at an end of theirs, set startingOffsetsByGroupStrategy to earliest or latest"
        )
    rest = LogEnd[no_match.upper()].value if without else LATEST
    return {partition: rest if offset is None else offset for partition, offset in committed.items()}


def _offsets_for(
    timestamps: Mapping[TopicPartition, int], reader: OffsetReader, no_match: str
) -> dict[TopicPartition, int]:
    """By partition the first offset at or after its timestamp; as in Kafka, -1 and -2 stand for latest and earliest."""
    words = {partition: timestamp for partition, timestamp in timestamps.items() if timestamp in (EARLIEST, LATEST)}
    times = {partition: timestamp for partition, timestamp in timestamps.items() if partition not in words}
    found = reader.for_timestamps(times) if times else {}
    unmatched = [partition for partition in times if found.get(partition) is None]
    if unmatched and no_match == "error":
        raise ConfigurationError(
            f"no offset matched the starting timestamp in {listed(unmatched)}: nothing there is as new; give an "
            "earlier one, or set startingOffsetsByTimestampStrategy to latest to start them at their end"
        )
    matched = {partition: offset for partition, offset in found.items() if offset is not None}
    return {**words, **dict.fromkeys(unmatched, LATEST), **matched}


def check_assigned(
    condition: str, which: str, specified: Collection[TopicPartition], partitions: Collection[TopicPartition]
) -> None:
    """The position names every partition that is read, and no other. Raises ConfigurationError: it does not."""
    missing, extra = set(partitions) - set(specified), set(specified) - set(partitions)
    if missing or extra:
        raise ConfigurationError(
            f"[{condition}] the {which} position must name every partition that is read, and no other"
            + (f"; not named: {listed(missing)}" if missing else "")
            + (f"; named but not read: {listed(extra)}" if extra else "")
        )


def _log_ends(
    partitions: Collection[TopicPartition], reader: OffsetReader
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    return (reader.earliest(partitions), reader.latest(partitions)) if partitions else ({}, {})


def _bound(
    positions: PartitionOffsets, earliest: PartitionOffsets, latest: PartitionOffsets
) -> dict[TopicPartition, int]:
    """`positions` with EARLIEST and LATEST replaced by what they are."""
    words = {EARLIEST: earliest, LATEST: latest}
    return {partition: words[at][partition] if at in words else at for partition, at in positions.items()}


def _ranges(starts: PartitionOffsets, ends: PartitionOffsets) -> dict[TopicPartition, OffsetRange]:
    for partition, start in sorted(starts.items()):
        if start > ends[partition]:
            raise ConfigurationError(
                f"[RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET] {partition}: the start resolves to {start}, beyond "
                f"the end, which resolves to {ends[partition]}; give an earlier start or a later end"
            )
    return {partition: OffsetRange(start, ends[partition]) for partition, start in starts.items()}
