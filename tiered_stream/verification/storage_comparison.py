"""Comparison of the storage with the brokers: tiered offsets are read from both, and their records are compared.

Each split is read once from the storage and once from the brokers. Its row hashes are added up in buckets of 65,536
offsets. If sums differ, the first differing bucket is read again row by row, and then the first differing record.

Brokers have some of the offsets on their own disks, and fetch the other offsets from the storage. For the offsets from
the storage, the comparison checks this package's reading against the brokers' reading, indexes and leader epochs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import orjson
import pyarrow as pa
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tiered_stream import errors
from tiered_stream.broker.client import open_client
from tiered_stream.broker.list_offsets import BrokerOffsetReader
from tiered_stream.locate.locator import Locator
from tiered_stream.locate.log_source import LogSource, open_log_source
from tiered_stream.model import OffsetRange, PartitionRanges, Split, TopicPartition, within
from tiered_stream.options.choices import Fallback, LocatorName, Prefer
from tiered_stream.options.parsing import Options
from tiered_stream.options.remote_options import LOCATOR
from tiered_stream.plan.batch import batch_offsets
from tiered_stream.plan.splits import splits_for
from tiered_stream.process.resources import usable_cores
from tiered_stream.read.split_reader import SplitReader
from tiered_stream.records.row_hash import BATCH_ROWS, BUCKET, HASHED, Numbers, bucket_sums, numbers, row_hashes
from tiered_stream.verification.verify_report import Kind


@dataclass(frozen=True, slots=True)
class StorageDifference:
    """First difference between storage and broker in a partition. The broker's record counts as correct.

    `offset` is the first offset that differs, or the first offset that cannot be read from the storage (`UNREADABLE`).
    `detail` has the differing values or the error. `segment` names the segment, if it is known.
    """

    offset: int
    kind: Kind
    detail: str
    segment: str | None = None

    def __str__(self) -> str:
        texts = {
            Kind.MISSING: f"offset {self.offset} is at the broker, and not in the storage",
            Kind.EXTRA: f"offset {self.offset} is in the storage, and not at the broker",
            Kind.DIFFERENT: f"offset {self.offset}: {self.detail}",
            Kind.UNREADABLE: f"from offset {self.offset} on the storage does not give them: {self.detail}",
        }
        return texts[self.kind] + (f" ({self.segment})" if self.segment else "")


@dataclass(frozen=True, slots=True)
class PartitionComparison:
    """Result of comparing one partition.

    `asked` are the requested offsets, and `compared` the tiered offsets among them. `on_disk` is the number of compared
    offsets that the broker has on its own disk; the broker fetches the other offsets from the storage. `records` is the
    number of the broker's records at the compared offsets. `differing_buckets` is the number of buckets of 65,536
    offsets that differ, and `first` is the first difference. `first` is None if no bucket differs, or if nothing
    differed when the first differing bucket was read again.
    """

    partition: TopicPartition
    asked: OffsetRange
    compared: tuple[OffsetRange, ...]
    on_disk: int
    records: int
    differing_buckets: int
    first: StorageDifference | None

    @property
    def equal(self) -> bool:
        """True if no difference was found in this partition."""
        return not self.differing_buckets and self.first is None

    @property
    def offsets(self) -> int:
        """Number of offsets that were compared."""
        return sum(map(len, self.compared))

    def describe(self) -> str:
        """Return a text about the first difference. Call this method only if the property `equal` is false."""
        return str(self.first or f"{self.differing_buckets} buckets differed when they were first read, and then not")


@dataclass(frozen=True, slots=True)
class StorageReport:
    """Results of comparing the storage with the brokers, for all partitions."""

    partitions: tuple[PartitionComparison, ...]

    @property
    def equal(self) -> bool:
        """True if no difference was found in any partition."""
        return all(result.equal for result in self.partitions)

    @property
    def records(self) -> int:
        """Number of the brokers' records that were compared."""
        return sum(result.records for result in self.partitions)

    def summary(self) -> str:
        """Return one line with the result of the whole comparison and the number of compared records."""
        if self.equal:
            return f"the storage gives what the brokers give: {self.records:,} records compared"
        wrong = ", ".join(str(result.partition) for result in self.partitions if not result.equal)
        return f"the storage differs from the brokers in {wrong}: {self.records:,} records compared"

    def to_json(self) -> str:
        """Return the whole report as JSON."""
        partitions = [asdict(result) | {"equal": result.equal} for result in self.partitions]
        figures = {"partitions": partitions, "equal": self.equal, "records": self.records}
        return orjson.dumps(figures, default=TopicPartition._asdict, option=orjson.OPT_INDENT_2).decode()


_FETCHED = (
    "Brokers read records that are not on their disks from the same storage. For these records the comparison shows "
    "that both read them alike, and not that they are the produced records."
)


def render_storage(report: StorageReport) -> RenderableType:
    """Render the comparison of storage and brokers as a table and lines for a terminal."""
    table = Table("partition", "offsets compared", title="the storage against the brokers")
    for column in ("records", "offsets on brokers' disks"):
        table.add_column(column, justify="right")
    table.add_column("found")
    for result in report.partitions:
        compared = ", ".join(f"{part.start:,} to {part.end - 1:,}" for part in result.compared)
        compared = compared or ("none is tiered" if result.equal else "none")
        verdict = Text("equal") if result.equal else Text("differs", "red")
        table.add_row(str(result.partition), compared, f"{result.records:,}", f"{result.on_disk:,}", verdict)
    lines = [Text(f"{part.partition}: {part.describe()}", "red") for part in report.partitions if not part.equal]
    if any(result.on_disk < result.offsets for result in report.partitions):
        lines.append(Text(_FETCHED))
    return Group(table, *lines, Text(report.summary(), "green" if report.equal else "red"))


_UNREADABLE = (
    errors.StorageObjectNotFoundError,
    errors.StorageFormatError,
    errors.CorruptDataError,
    errors.UnsupportedDataError,
)
"""Errors that mean that one segment cannot be read, while other segments may be readable."""
_FATAL = (errors.StorageBucketNotFoundError, errors.DataLimitError)
"""Subclasses of `_UNREADABLE` that concern all segments, so that the comparison stops."""
_SHOWN = 60

Sums = dict[int, tuple[int, int, int]]
"""Sums of row hashes by bucket number: the number of rows, and the sums of their hashes' upper and lower 32 bits.

The number of a bucket is its first offset divided by 65,536.
"""


def compare_storage(options: Options) -> StorageReport:
    """Compare the records in the storage with the brokers' records, and return a report.

    The compared offsets are the tiered offsets that a batch query with these options would read.

    Raises:
        ConfigurationError: the options name an archive, no locator finds tiered segments, or the offset range is
            malformed.
        StorageError: the storage as a whole cannot be read.
        DataLimitError: data exceeds a limit that an option sets.
        DataLossError: the brokers lack records that their logs should have.
        BrokerError: the brokers cannot be reached, or do not serve records that they have.
    """
    if options.locator is LocatorName.ARCHIVE:
        raise errors.ConfigurationError(f"option {LOCATOR.name}: an archive has no brokers to compare it with")
    # Neither side may replace the other, and no record may be skipped.
    options = replace(
        options, fallback=Fallback.FAIL, prefer=Prefer.TIERED, fail_on_data_loss=True, include_headers=True
    )
    nobody_says = (
        f"option {LOCATOR.name}: nothing says what is tiered; set remote.storage.uri, or point "
        "kafka.bootstrap.servers at a gateway"
    )
    if options.locator is LocatorName.NONE:  # no broker needs to be asked
        raise errors.ConfigurationError(nobody_says)
    with closing(open_log_source(options)) as source:
        if source.locator is None:
            raise errors.ConfigurationError(nobody_says)
        comparison = _Comparison(options)
        return StorageReport(tuple(comparison.partitions(source, source.locator)))


@dataclass(frozen=True, slots=True)
class _Compared:
    """Result of comparing the `offsets` of one split.

    `records` is the number of the broker's records in the split. `differing_buckets` is the number of buckets of 65,536
    offsets that differ. `first` is the first difference. `first` is None if no bucket differs, or if nothing differed
    when the first differing bucket was read again.
    """

    offsets: OffsetRange
    records: int = 0
    differing_buckets: int = 0
    first: StorageDifference | None = None


class _Comparison:
    """Comparison of storage and brokers with the options of one batch query."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._reader = BrokerOffsetReader(open_client(options.kafka), options.isolation_level)

    def partitions(self, source: LogSource, locator: Locator) -> Iterator[PartitionComparison]:
        """Compare one partition after another, and yield the results.

        The splits of a partition are compared in parallel.
        """
        ranges, topic_ids = batch_offsets(self._options, source)
        local = self._reader.earliest_local(ranges)
        executor = ThreadPoolExecutor(usable_cores(), thread_name_prefix="compare")
        try:
            for partition, offsets in sorted(ranges.items()):
                plan = partial(splits_for, options=self._options, locator=locator, topic_ids=topic_ids)
                planned = list(_planned(partition, offsets, plan, locator))
                compared = chain.from_iterable(executor.map(self._compared, planned))
                yield _partition_result(partition, offsets, list(compared), local[partition])
        finally:
            executor.shutdown(wait=False, cancel_futures=True)

    def _compared(self, split: Split | _Compared) -> list[_Compared]:
        """Compare a split (offsets of one partition) and return the results.

        The list is empty if retention has deleted the whole split. If retention has deleted only the first offsets of
        the split, the other offsets are compared. If segments cannot be read, there is one result for each segment. If
        the argument is already a result (`_Compared`), it is returned unchanged.
        """
        if isinstance(split, _Compared):
            return [split]
        try:
            return [self._compare(split)]
        except _FATAL:
            raise
        except (errors.DataLossError, *_UNREADABLE) as error:
            log_start = self._reader.earliest([split.topic_partition])[split.topic_partition]
            if log_start > split.offsets.start:
                rest = split.rest(log_start)
                return [] if rest is None else self._compared(rest)
            if len(split.locations) <= 1:
                return [_unreadable(split.offsets.start, error)]
        parts = (part_of(split, location.offsets) for location in split.locations)
        return [result for part in parts for result in self._compared(part)]

    def _compare(self, split: Split) -> _Compared:
        """Read a split from its locations in the storage, and again from the broker; compare both."""
        ours, theirs = self._sums(split), self._broker_sums(replace(split, locations=()))
        differing = sorted(bucket for bucket in ours.keys() | theirs.keys() if ours.get(bucket) != theirs.get(bucket))
        records = sum(count for count, _, _ in theirs.values())
        first = self._first_difference(split, differing[0]) if differing else None
        return _Compared(split.offsets, records, len(differing), first)

    def _broker_sums(self, split: Split) -> Sums:
        try:
            return self._sums(split)
        except (errors.CorruptDataError, errors.UnsupportedDataError) as error:
            raise errors.BrokerError(
                f"{split.topic_partition}: the broker's response cannot be read: {error}"
            ) from error

    def _sums(self, split: Split) -> Sums:
        """Read a split, and return the number of its rows and the sums of their hashes, by bucket."""
        bucket_totals: Sums = {}
        for offsets, hashes in self._hashed(split):
            for bucket, *sums in zip(*(column.tolist() for column in bucket_sums(offsets, hashes)), strict=True):
                count, high, low = bucket_totals.get(bucket, (0, 0, 0))
                bucket_totals[bucket] = count + sums[0], high + sums[1], low + sums[2]
        return bucket_totals

    def _hashed(self, split: Split) -> Iterator[tuple[Numbers, Numbers]]:
        for batch in SplitReader(split, self._options, BATCH_ROWS).batches():
            yield numbers(batch["offset"]), row_hashes(batch, HASHED)

    def _first_difference(self, split: Split, bucket: int) -> StorageDifference | None:
        """Read one bucket of the split again, and return its first difference, or None if nothing differs any more.

        Args:
            bucket: number of the bucket, which is the first offset divided by 65,536.
        """
        bucket_split = part_of(split, OffsetRange(bucket * BUCKET, (bucket + 1) * BUCKET))
        ours, theirs = (self._rows(side) for side in (bucket_split, replace(bucket_split, locations=())))
        difference = first_difference(ours, theirs)
        if difference is None:
            return None
        offset, kind = difference
        record = part_of(split, OffsetRange(offset, offset + 1))
        detail = self._column_difference(record) if kind is Kind.DIFFERENT else ""
        (segment,) = {str(location.segment) for location in record.locations}
        return StorageDifference(offset, kind, detail, segment)

    def _rows(self, split: Split) -> dict[int, list[int]]:
        """Read a split, and return the hashes of its rows, by offset."""
        rows = defaultdict[int, list[int]](list)
        for offsets, hashes in self._hashed(split):
            for offset, row_hash in zip(offsets.tolist(), hashes.tolist(), strict=True):
                rows[offset].append(row_hash)
        return rows

    def _column_difference(self, record: Split) -> str:
        ours, theirs = (self._records(side) for side in (record, replace(record, locations=())))
        return "; ".join(
            f"{name} is {_shown(our[name])} in the storage, {_shown(their[name])} at the broker"
            for our, their in zip(ours, theirs, strict=False)  # a damaged log may have several rows at one offset
            for name in HASHED
            if our[name] != their[name]
        )

    def _records(self, split: Split) -> list[dict[str, Any]]:
        """Read a split, and return the values of each record by column; timestamps are in microseconds."""
        rows: list[dict[str, Any]] = []
        for batch in SplitReader(split, self._options).batches():
            at = batch.schema.get_field_index("timestamp")
            rows += batch.set_column(at, "timestamp", batch.column(at).cast(pa.int64())).to_pylist()
        return rows


def part_of(split: Split, offsets: OffsetRange) -> Split:
    """Return a copy of the split that has only its offsets within `offsets`, and the locations that hold them."""
    common = split.offsets.intersect(offsets)
    return replace(split, offsets=common, locations=tuple(within(split.locations, common)))


def first_difference(ours: Mapping[int, list[int]], theirs: Mapping[int, list[int]]) -> tuple[int, Kind] | None:
    """Return the first offset at which storage and broker differ, and the kind of difference; None if they are equal.

    Args:
        ours: hashes of the rows that were read from the storage, by offset. An offset may have several rows, because a
            damaged log may have a record twice.
        theirs: hashes of the rows that were read from the broker, by offset.
    """
    offsets = ours.keys() | theirs.keys()
    offset = min((offset for offset in offsets if ours.get(offset) != theirs.get(offset)), default=None)
    if offset is None:
        return None
    our_count, their_count = len(ours.get(offset, ())), len(theirs.get(offset, ()))
    if our_count == their_count:
        return offset, Kind.DIFFERENT
    return offset, Kind.EXTRA if our_count > their_count else Kind.MISSING


def _unreadable(start: int, error: errors.TieredStreamError) -> _Compared:
    """Return a result that reports the storage as unreadable from offset `start` on because of `error`.

    Raises:
        DataLossError: `error` is a DataLossError, which is raised again.
    """
    if isinstance(error, errors.DataLossError):
        raise error
    return _Compared(OffsetRange(start, start), 0, 0, StorageDifference(start, Kind.UNREADABLE, str(error)))


def _planned(
    partition: TopicPartition, offsets: OffsetRange, plan: Callable[[PartitionRanges], list[Split]], locator: Locator
) -> Iterator[Split | _Compared]:
    """Plan how to read `offsets` from the storage, and yield the splits that have locations there.

    For a segment that cannot be planned, yield a result that reports the segment as unreadable. To find the segment,
    the two halves of the offsets are planned separately, and so on, until one segment is left.

    Args:
        plan: returns the splits of offset ranges by partition, or raises an error.
    """
    try:
        yield from [split for split in plan({partition: offsets}) if split.locations]
    except _FATAL:
        raise
    except _UNREADABLE as error:
        segments = locator.segments({partition: offsets})[partition]
        ends = [segment.offsets.end for segment in segments if segment.offsets.end < offsets.end]
        if not ends:
            yield _unreadable(offsets.start, error)
            return
        middle = ends[len(ends) // 2]
        for half in OffsetRange(offsets.start, middle), OffsetRange(middle, offsets.end):
            yield from _planned(partition, half, plan, locator)


def _partition_result(
    partition: TopicPartition, offsets: OffsetRange, compared: list[_Compared], local: int | None
) -> PartitionComparison:
    ranges = [result.offsets for result in compared if len(result.offsets)]
    on_disk = [tiered.end - max(tiered.start, local) for tiered in ranges if local is not None and tiered.end > local]
    return PartitionComparison(
        partition,
        offsets,
        _joined(ranges),
        sum(on_disk),
        sum(result.records for result in compared),
        sum(result.differing_buckets for result in compared),
        next((result.first for result in compared if result.first), None),
    )


def _joined(ranges: list[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Return the ascending `ranges`, with adjacent ranges joined into one range."""
    joined: list[OffsetRange] = []
    for offsets in ranges:
        if joined and joined[-1].end == offsets.start:
            joined[-1] = OffsetRange(joined[-1].start, offsets.end)
        else:
            joined.append(offsets)
    return tuple(joined)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… (of {len(text):,} characters)"
