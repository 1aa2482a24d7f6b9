"""Report on a comparison of records from the storage with records from the brokers, as text and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum

import orjson
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tiered_stream.model import OffsetRange, TopicPartition


class Kind(StrEnum):
    """Kind of difference between a record from the storage and the broker's record, which counts as correct."""

    MISSING = "missing"
    EXTRA = "extra"
    DIFFERENT = "different"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class StorageDifference:
    """First difference between storage and broker in a partition.

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
    offsets that differ, and `first` is the first difference. It is None if the partition is equal, or if nothing
    differed when the bucket was read again.
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
        """Return a text about the first difference in this partition. Call it only if the partition is not `equal`."""
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
