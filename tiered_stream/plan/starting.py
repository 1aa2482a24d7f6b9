"""Start offsets of a stream and ranges of a batch query, by the positions in the options (`startingOffsets`, …).

(Spark: `KafkaOffsetReaderAdmin.fetchSpecificOffsets`, `fetchSpecificTimestampBasedOffsets`, `KafkaSourceProvider`.)
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tiered_stream.broker.offset_reader import OffsetReader
from tiered_stream.errors import ConfigurationError
from tiered_stream.model import OffsetRange, PartitionOffsets, TopicPartition, listed
from tiered_stream.options.offset_json import EARLIEST, LATEST
from tiered_stream.options.parsing import Options
from tiered_stream.options.positions import AtGroup, AtOffsets, AtTimestamp, AtTimestamps, BeforeNow, LogEnd, Position
from tiered_stream.plan.data_loss import DataLossPolicy, within_log
from tiered_stream.plan.offset_lookup import OffsetLookup, check_decided

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class InitialOffsets:
    """Offsets at which a stream without a checkpoint starts, by partition.

    `explicit` are the partitions whose offset the options name. `at_end` are the partitions that start at their log
    end. Other partitions start at their log start or at a timestamp. Offsets of partitions that are not in `explicit`
    may differ when they are looked up again.
    """

    offsets: dict[TopicPartition, int]
    explicit: frozenset[TopicPartition]
    at_end: frozenset[TopicPartition]


def initial_offsets(options: Options, lookup: OffsetLookup) -> InitialOffsets:
    """Return the first offset to read of each partition of the subscription, by the start position in the options.

    Raises:
        ConfigurationError: the position names other partitions than the assigned ones, a timestamp has no match, or a
            group has no committed offset.
        BrokerError, StorageError: the offsets cannot be looked up.
    """
    return lookup.retrying(lambda: _initial(options.starting, lookup, _no_match(options)))


def fitted_initial_offsets(options: Options, lookup: OffsetLookup) -> InitialOffsets:
    """Return the initial offsets even if `initial_offsets` would raise a ConfigurationError for them.

    Partitions that the start position (`startingOffsets` or one of its alternatives) names but that are not assigned
    are left out. An assigned partition starts at its log end if the position names neither it nor its topic. It
    also starts at its log end if its timestamp has no match, or the consumer group has committed no offset for it.

    Raises:
        BrokerError, StorageError: the offsets cannot be looked up.
    """
    return lookup.retrying(lambda: _initial(options.starting, lookup, "latest", fitted=True))


def _no_match(options: Options) -> str:
    """Return the value of the option that applies if the start position gives no offset for a partition.

    The option is `startingOffsetsByGroupStrategy` for the position of a consumer group, and otherwise
    `startingOffsetsByTimestampStrategy`. The value is `error`, `earliest` or `latest`.
    """
    return options.group_strategy if isinstance(options.starting, AtGroup) else options.timestamp_strategy


def _initial(starting: Position, lookup: OffsetLookup, no_match: str, *, fitted: bool = False) -> InitialOffsets:
    partitions, reader = lookup.assigned().partitions, lookup.reader
    starting = _fitted(starting, partitions) if fitted else starting
    starts = _positions(starting, partitions, lookup, "starting", no_match)
    named = {partition for partition, at in starts.items() if at not in (EARLIEST, LATEST)}
    return InitialOffsets(
        offsets=_bound(starts, *_log_ends(partitions, reader)),
        explicit=frozenset(named) if isinstance(starting, AtOffsets) else frozenset(),
        at_end=frozenset(partition for partition, at in starts.items() if at == LATEST),
    )


def _fitted(starting: Position, partitions: Collection[TopicPartition]) -> Position:
    """Return `starting`; if it names partitions, return a position that names exactly `partitions`.

    A partition that `starting` does not name then gets the position of its topic in `starting`, or else LATEST.
    """
    match starting:
        case AtOffsets(offsets, topics):
            words = {partition: topics.get(partition.topic, LATEST) for partition in partitions}
            return AtOffsets({partition: offsets.get(partition, word) for partition, word in words.items()})
        case AtTimestamps(timestamps):
            return AtTimestamps({partition: timestamps.get(partition, LATEST) for partition in partitions})
        case LogEnd() | AtTimestamp() | BeforeNow() | AtGroup():
            return starting


def batch_ranges(options: Options, lookup: OffsetLookup) -> dict[TopicPartition, OffsetRange]:
    """Return by partition the offset range of a batch query; `earliest` and `latest` mean current log starts and ends.

    Raises:
        ConfigurationError: a position does not fit the partitions, or a start lies beyond its end.
        DataLossError: a range reaches beyond its log, and `failOnDataLoss` is true.
        OpenTransactionError: an end lies beyond the first offset of an open transaction, and `failOnDataLoss` is true.
            Otherwise the range ends there, with a warning, as with Spark's `kafka` source.
        BrokerError, StorageError: the offsets cannot be looked up.
    """

    def request() -> dict[TopicPartition, OffsetRange]:
        partitions, reader = lookup.assigned().partitions, lookup.reader
        starts = _positions(options.starting, partitions, lookup, "starting", _no_match(options))
        ends = _positions(options.ending, partitions, lookup, "ending", "latest")
        earliest, latest = _log_ends(partitions, reader)  # last, so that no offset of a timestamp lies beyond them
        starts = _bound(starts, earliest, latest)
        # Spark's `kafka` source, too, refuses a start beyond the last stable offset if the end is `latest`.
        ranges = _ranges(starts, _bound(ends, earliest, latest))
        # A range that begins beyond an open transaction's first offset is within the log all the same.
        log_ends = {**latest, **{partition: starts[partition] for partition in lookup.undecided(latest, starts)}}
        range_ends = {partition: offsets.end for partition, offsets in ranges.items() if len(offsets)}
        undecided = lookup.undecided(latest, range_ends)
        if options.fail_on_data_loss:
            check_decided(undecided, range_ends)
        else:
            ranges |= _decided(ranges, undecided)
        return within_log(ranges, earliest, log_ends, DataLossPolicy(options.fail_on_data_loss))

    return lookup.retrying(request)


def _decided(
    ranges: Mapping[TopicPartition, OffsetRange], undecided: PartitionOffsets
) -> dict[TopicPartition, OffsetRange]:
    """Return the ranges of the partitions in `undecided`, cut at their last stable offsets, and log warnings.

    `undecided` has last stable offsets, by partition.
    """
    for partition, stable_offset in sorted(undecided.items()):
        logger.warning(
            "offsets up to %d of %s were requested, but a transaction is open from offset %d on (last stable offset). "
            "failOnDataLoss is false, so the query reads up to there. Read the rest when the transaction has ended.",
            ranges[partition].end,
            partition,
            stable_offset,
        )
    return {
        partition: OffsetRange(ranges[partition].start, max(ranges[partition].start, stable_offset))
        for partition, stable_offset in undecided.items()
    }


def _positions(
    position: Position, partitions: Collection[TopicPartition], lookup: OffsetLookup, which: str, no_match: str
) -> dict[TopicPartition, int]:
    """Return by partition the offset that `position` means, or EARLIEST (-2) or LATEST (-1).

    Args:
        which: `starting` or `ending`, for errors.
        no_match: result for a partition for which a timestamp or group gives no offset: `error`, `earliest` or
            `latest`.
    """
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
    """Return by partition the offset that the consumer group `group` has committed.

    A partition without a committed offset gets EARLIEST or LATEST if `no_match` is `earliest` or `latest`.

    Raises:
        ConfigurationError: a partition has no committed offset, and `no_match` is `error`.
    """
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
    """Return by partition the first offset at or after its timestamp (ms).

    As in Kafka, the timestamp -1 gives LATEST, and -2 gives EARLIEST. A partition without such an offset gets LATEST.

    Raises:
        ConfigurationError: a partition has no such offset, and `no_match` is `error`.
    """
    words = {partition: timestamp for partition, timestamp in timestamps.items() if timestamp in (EARLIEST, LATEST)}
    times = {partition: timestamp for partition, timestamp in timestamps.items() if partition not in words}
    offsets = reader.for_timestamps(times) if times else {}
    unmatched = [partition for partition in times if offsets.get(partition) is None]
    if unmatched and no_match == "error":
        raise ConfigurationError(
            f"no offset matched the starting timestamp in {listed(unmatched)}: nothing there is as new; give an "
            "earlier one, or set startingOffsetsByTimestampStrategy to latest to start them at their end"
        )
    matched = {partition: offset for partition, offset in offsets.items() if offset is not None}
    return {**words, **dict.fromkeys(unmatched, LATEST), **matched}


def check_assigned(
    condition: str, which: str, specified: Collection[TopicPartition], partitions: Collection[TopicPartition]
) -> None:
    """Check that a position names all `partitions` that are read, and no other partition.

    Args:
        condition: Spark's name of the error.
        which: `starting` or `ending`.
        specified: the partitions that the position names.

    Raises:
        ConfigurationError: the partitions differ; the message names them.
    """
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
    """Return the log start offsets and the log end offsets (exclusive) of `partitions`, by partition."""
    return (reader.earliest(partitions), reader.latest(partitions)) if partitions else ({}, {})


def _bound(
    positions: PartitionOffsets, earliest: PartitionOffsets, latest: PartitionOffsets
) -> dict[TopicPartition, int]:
    """Return `positions` with EARLIEST and LATEST replaced by the offsets in `earliest` and `latest`."""
    words = {EARLIEST: earliest, LATEST: latest}
    return {partition: words[at][partition] if at in words else at for partition, at in positions.items()}


def _ranges(starts: PartitionOffsets, ends: PartitionOffsets) -> dict[TopicPartition, OffsetRange]:
    for partition, start in sorted(starts.items()):
        if start > ends[partition]:
            raise ConfigurationError(
                f"[RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET] {partition}: the start resolves to {start}, beyond "
                f"the end, which resolves to {ends[partition]}; give an earlier start or a later end. With "
                "read_committed, latest is the last stable offset"
            )
    return {partition: OffsetRange(start, ends[partition]) for partition, start in starts.items()}
