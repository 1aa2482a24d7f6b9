"""Comparison of the records of tiered offsets, read from the storage and read from the brokers.

Each split is read once from both sides, and the rows' hashes are summed in buckets of 65,536 offsets. If sums differ,
the first differing bucket is read again row by row, and then the first differing record. Brokers serve offsets from
their own disks, and fetch the others from the storage themselves. For those, the comparison checks our reading against
the brokers' reading, indexes and leader epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from tiered_stream.broker.client import open_client
from tiered_stream.broker.list_offsets import BrokerOffsetReader
from tiered_stream.errors import (
    BrokerError,
    ConfigurationError,
    CorruptDataError,
    DataLimitError,
    DataLossError,
    StorageBucketNotFoundError,
    StorageFormatError,
    StorageObjectNotFoundError,
    TieredStreamError,
    UnsupportedDataError,
)
from tiered_stream.locate.locator import Locator
from tiered_stream.locate.log_source import LogSource, open_log_source
from tiered_stream.model import OffsetRange, PartitionRanges, Split, TopicPartition, within
from tiered_stream.options.choices import Fallback, LocatorName, Prefer
from tiered_stream.options.parsing import Options
from tiered_stream.options.remote_options import LOCATOR
from tiered_stream.plan.batch import batch_offsets
from tiered_stream.plan.splits import splits_for
from tiered_stream.process.cores import usable_cores
from tiered_stream.read.split_reader import SplitReader
from tiered_stream.records.row_hash import BATCH_ROWS, BUCKET, HASHED, Numbers, bucket_sums, numbers, row_hashes
from tiered_stream.verification.storage_report import Kind, PartitionComparison, StorageDifference, StorageReport

_UNREADABLE = (StorageObjectNotFoundError, StorageFormatError, CorruptDataError, UnsupportedDataError)
"""Errors of one segment, not of the connection to the storage."""
_NOT_ONE_SEGMENT = (StorageBucketNotFoundError, DataLimitError)
"""Subclasses of the errors in `_UNREADABLE` that the user has to fix, so that the comparison stops."""
_SHOWN = 60

Sums = dict[int, tuple[int, int, int]]
Found = tuple[PartitionComparison, ...]


def compare_storage(options: Options) -> StorageReport:
    """Compare storage and brokers for the tiered part of the offsets that the options of a batch query choose.

    Raises:
        ConfigurationError: there are no brokers to compare with, or no locator says what is tiered; or as `plan_batch`.
        StorageError: the storage as a whole cannot be read.
        BrokerError: the brokers cannot be reached, or do not serve records that they have.
    """
    if options.locator is LocatorName.ARCHIVE:
        raise ConfigurationError(f"option {LOCATOR.name}: an archive has no brokers to compare it with")
    # Neither side may replace the other, and no record may be skipped.
    options = replace(
        options, fallback=Fallback.FAIL, prefer=Prefer.TIERED, fail_on_data_loss=True, include_headers=True
    )
    with closing(open_log_source(options)) as source:
        if source.locator is None:
            raise ConfigurationError(
                f"option {LOCATOR.name}: nobody says what is tiered; give remote.storage.uri, or point "
                "kafka.bootstrap.servers at a gateway"
            )
        comparison = _Comparison(options)
        return StorageReport(tuple(comparison.partitions(source, source.locator)))


@dataclass(frozen=True, slots=True)
class _Compared:
    """Result of comparing one split; `offsets` are the offsets that were compared."""

    offsets: OffsetRange
    records: int = 0
    differing_buckets: int = 0
    first: StorageDifference | None = None


class _Comparison:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._reader = BrokerOffsetReader(open_client(options.kafka), options.isolation_level)

    def partitions(self, source: LogSource, locator: Locator) -> Iterator[PartitionComparison]:
        """Compare all partitions, one after another; the splits of a partition are compared in parallel."""
        ranges, topic_ids = batch_offsets(self._options, source)
        local = self._reader.earliest_local(ranges)
        executor = ThreadPoolExecutor(usable_cores(), thread_name_prefix="compare")
        try:
            for partition, offsets in sorted(ranges.items()):
                plan = partial(splits_for, options=self._options, locator=locator, topic_ids=topic_ids)
                planned = list(_planned(partition, offsets, plan, locator))
                compared = chain.from_iterable(executor.map(self._compared, planned))
                yield _together(partition, offsets, list(compared), local[partition])
        finally:
            executor.shutdown(wait=False, cancel_futures=True)

    def _compared(self, split: Split | _Compared) -> list[_Compared]:
        """Compare a split and return the results; the list is empty if retention has deleted the whole split."""
        if isinstance(split, _Compared):
            return [split]
        left: Split | None = split
        while left is not None:
            try:
                return [self._compare(left)]
            except _NOT_ONE_SEGMENT:
                raise
            except (DataLossError, *_UNREADABLE) as error:
                log_start = self._log_start(split.topic_partition)
                if log_start <= left.offsets.start:
                    return self._segment_by_segment(left, error)
                left = left.rest(log_start)
        return []

    def _segment_by_segment(self, split: Split, error: TieredStreamError) -> list[_Compared]:
        """Compare each segment of a split separately, so that only the unreadable segments are reported as such."""
        if len(split.locations) <= 1:
            return [_unreadable(split.offsets.start, error)]
        parts = (part_of(split, location.offsets) for location in split.locations)
        return [each for part in parts for each in self._compared(part)]

    def _compare(self, split: Split) -> _Compared:
        ours, theirs = self._sums(split), self._broker_sums(replace(split, locations=()))
        differing = sorted(bucket for bucket in ours.keys() | theirs.keys() if ours.get(bucket) != theirs.get(bucket))
        records = sum(count for count, _, _ in theirs.values())
        first = self._first_difference(split, differing[0]) if differing else None
        return _Compared(split.offsets, records, len(differing), first)

    def _broker_sums(self, split: Split) -> Sums:
        try:
            return self._sums(split)
        except (CorruptDataError, UnsupportedDataError) as error:
            raise BrokerError(f"{split.topic_partition}: what the broker gives cannot be read: {error}") from error

    def _sums(self, split: Split) -> Sums:
        found: Sums = {}
        for offsets, hashes in self._hashed(split):
            for bucket, *sums in zip(*(column.tolist() for column in bucket_sums(offsets, hashes)), strict=True):
                count, high, low = found.get(bucket, (0, 0, 0))
                found[bucket] = count + sums[0], high + sums[1], low + sums[2]
        return found

    def _hashed(self, split: Split) -> Iterator[tuple[Numbers, Numbers]]:
        for batch in SplitReader(split, self._options, BATCH_ROWS).batches():
            yield numbers(batch["offset"]), row_hashes(batch, HASHED)

    def _first_difference(self, split: Split, bucket: int) -> StorageDifference | None:
        """Read the bucket again and return its first difference; None if there is no difference any more."""
        here = part_of(split, OffsetRange(bucket * BUCKET, (bucket + 1) * BUCKET))
        ours, theirs = (self._rows(each) for each in (here, replace(here, locations=())))
        found = first_difference(ours, theirs)
        if found is None:
            return None
        offset, kind = found
        record = part_of(split, OffsetRange(offset, offset + 1))
        detail = self._column_difference(record) if kind is Kind.DIFFERENT else ""
        (segment,) = {str(location.segment) for location in record.locations}
        return StorageDifference(offset, kind, detail, segment)

    def _rows(self, split: Split) -> tuple[Numbers, Numbers]:
        parts = list(self._hashed(split)) or [(np.empty(0, np.int64), np.empty(0, np.int64))]
        offsets, hashes = (np.concatenate(column) for column in zip(*parts, strict=True))
        return offsets, hashes

    def _column_difference(self, record: Split) -> str:
        ours, theirs = (self._record(each) for each in (record, replace(record, locations=())))
        differing = (name for name in HASHED if ours[name] != theirs[name])
        return "; ".join(
            f"{name} is {_shown(ours[name])} in the storage, {_shown(theirs[name])} at the broker" for name in differing
        )

    def _record(self, split: Split) -> dict[str, Any]:
        (batch,) = SplitReader(split, self._options).batches()
        at = batch.schema.get_field_index("timestamp")
        (row,) = batch.set_column(at, "timestamp", batch.column(at).cast(pa.int64())).to_pylist()
        return dict(row)

    def _log_start(self, partition: TopicPartition) -> int:
        return self._reader.earliest([partition])[partition]


def part_of(split: Split, offsets: OffsetRange) -> Split:
    """Return the split cut to the offset range."""
    common = split.offsets.intersect(offsets)
    return replace(split, offsets=common, locations=tuple(within(split.locations, common)))


def first_difference(ours: tuple[Numbers, Numbers], theirs: tuple[Numbers, Numbers]) -> tuple[int, Kind] | None:
    """Return the first offset at which two pairs of (offsets, hashes) differ, and how; None if they are equal.

    Both pairs must be sorted by offset.
    """
    common = min(len(ours[0]), len(theirs[0]))
    same = (ours[0][:common] == theirs[0][:common]) & (ours[1][:common] == theirs[1][:common])
    at = common if same.all() else int(np.argmin(same))
    our_offset, their_offset = (int(side[0][at]) if at < len(side[0]) else None for side in (ours, theirs))
    if our_offset is None and their_offset is None:
        return None
    if our_offset == their_offset and our_offset is not None:
        return our_offset, Kind.DIFFERENT
    if their_offset is None or (our_offset is not None and our_offset < their_offset):
        assert our_offset is not None
        return our_offset, Kind.EXTRA
    return their_offset, Kind.MISSING


def _unreadable(start: int, error: TieredStreamError) -> _Compared:
    """Return the result that the storage cannot be read from `start` on because of `error`.

    Raises:
        DataLossError: `error` is one, which means that the broker, not the storage, lacks the records.
    """
    if isinstance(error, DataLossError):
        raise error
    return _Compared(OffsetRange(start, start), 0, 0, StorageDifference(start, Kind.UNREADABLE, str(error)))


def _planned(
    partition: TopicPartition, offsets: OffsetRange, plan: Callable[[PartitionRanges], list[Split]], locator: Locator
) -> Iterator[Split | _Compared]:
    """Yield the splits that are read from storage; if planning fails, an unreadable result for the segment at fault.

    The segment is found by planning halves of the offsets again and again.
    """
    try:
        yield from [split for split in plan({partition: offsets}) if split.locations]
    except _NOT_ONE_SEGMENT:
        raise
    except _UNREADABLE as error:
        ends = [end for end in locator.segment_ends({partition: offsets})[partition] if end < offsets.end]
        if not ends:
            yield _unreadable(offsets.start, error)
            return
        middle = ends[len(ends) // 2]
        for half in OffsetRange(offsets.start, middle), OffsetRange(middle, offsets.end):
            yield from _planned(partition, half, plan, locator)


def _together(
    partition: TopicPartition, offsets: OffsetRange, compared: list[_Compared], local: int | None
) -> PartitionComparison:
    ranges = [each.offsets for each in compared if len(each.offsets)]
    on_disk = [each.end - max(each.start, local) for each in ranges if local is not None and each.end > local]
    return PartitionComparison(
        partition,
        offsets,
        tuple(_joined(ranges)),
        sum(on_disk),
        sum(each.records for each in compared),
        sum(each.differing_buckets for each in compared),
        next((each.first for each in compared if each.first), None),
    )


def _joined(ranges: list[OffsetRange]) -> Iterator[OffsetRange]:
    """Yield the ranges with adjacent ones joined into one."""
    joined: OffsetRange | None = None
    for each in ranges:
        if joined is not None and joined.end == each.start:
            joined = OffsetRange(joined.start, each.end)
            continue
        if joined is not None:
            yield joined
        joined = each
    if joined is not None:
        yield joined


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… (of {len(text):,} characters)"
