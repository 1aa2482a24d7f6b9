"""What a comparison of a table with its topics found; as text, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import Enum

import orjson
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tiered_stream.model import OffsetRange, TopicPartition


class Kind(Enum):
    """What is wrong with an offset of the table."""

    MISSING = "missing"
    EXTRA = "extra"
    DOUBLED = "doubled"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class ColumnDifference:
    """A column of one record, as the topic and as the table has it, each in short."""

    column: str
    topic: str
    table: str


@dataclass(frozen=True, slots=True)
class Difference:
    """The first offset of a partition at which the table is not as the topic.

    `copies` are those in the table. `counts` says how many offsets of each kind there are in the bucket (65,536
    offsets) of this one.
    """

    offset: int
    kind: Kind
    copies: int
    columns: tuple[ColumnDifference, ...]
    counts: tuple[tuple[Kind, int], ...]

    def __str__(self) -> str:
        columns = (f"{each.column} is {each.topic} in the topic, {each.table} in the table" for each in self.columns)
        how = {
            Kind.MISSING: " is missing from the table",
            Kind.EXTRA: " is in the table, and not in the topic",
            Kind.DOUBLED: f" is {self.copies} times in the table",
            Kind.DIFFERENT: f": {'; '.join(columns)}",
        }
        return f"offset {self.offset}{how[self.kind]}"


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """What was found of one partition.

    `log` is what the topic holds now, `offsets` what of it was compared. `topic_records` and `table_records` are those
    compared; `table_outside` rows of the table lie outside. `differing` are the offsets, by whole buckets, from the
    first to the last bucket that differs.
    """

    partition: TopicPartition
    log: OffsetRange
    offsets: OffsetRange
    topic_records: int
    table_records: int
    table_outside: int
    differing_buckets: int
    differing: OffsetRange | None
    first: Difference | None

    @property
    def equal(self) -> bool:
        """Whether the table has what the topic has."""
        return self.differing_buckets == 0

    def not_compared(self) -> Iterator[str]:
        """What lies outside."""
        if self.log.start < self.offsets.start:
            yield f"offsets {self.log.start} to {self.offsets.start - 1} of the topic"
        if self.offsets.end < self.log.end:
            yield f"offsets {self.offsets.end} to {self.log.end - 1} of the topic"
        if self.table_outside:
            yield f"{self.table_outside:,} rows of the table"

    def found(self) -> str:
        """In a sentence, how it stands."""
        if self.equal:
            return "equal"
        assert self.differing is not None
        if self.first is None:
            return (
                f"the sums of the offsets {self.differing.start} to {self.differing.end - 1} differed, and when the "
                "rows were read again, they did not: the topic has changed meanwhile; verify again"
            )
        more = self.differing_buckets > 1 or sum(count for _, count in self.first.counts) > 1
        return f"{self.first} (and more, up to offset {self.differing.end - 1})" if more else str(self.first)


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was found: `columns` were compared beside the offset, `left_out` are not in the table.

    `not_read` are partitions of which the table has rows, and the topics do not exist there; `version` is the table's.
    """

    table: str
    version: int
    columns: tuple[str, ...]
    left_out: tuple[str, ...]
    partitions: tuple[PartitionReport, ...]
    not_read: tuple[tuple[TopicPartition, int], ...] = ()

    @property
    def equal(self) -> bool:
        """Whether no partition differs."""
        return all(each.equal for each in self.partitions) and not self.not_read

    @property
    def records(self) -> int:
        """How many of the topics' records were compared."""
        return sum(each.topic_records for each in self.partitions)

    def summary(self) -> str:
        """The verdict in one line."""
        where = f"{self.table} (version {self.version})"
        if self.equal:
            return f"{where} is equal to its topics: {self.records:,} records compared"
        wrong = [each.partition for each in self.partitions if not each.equal]
        wrong += [partition for partition, _ in self.not_read]
        return f"{where} differs from its topics in {', '.join(map(str, wrong))}: {self.records:,} records compared"

    def notes(self) -> Iterator[str]:
        """What was not compared."""
        if self.left_out:
            yield f"not compared, because the table has no such column: {', '.join(self.left_out)}"
        for partition, rows in self.not_read:
            yield f"{partition}: {rows:,} rows in the table, of a partition that the topic does not have"
        for each in self.partitions:
            outside = list(each.not_compared())
            if outside:
                yield f"{each.partition}: not compared: {'; '.join(outside)}"

    def to_json(self) -> str:
        """The whole of it, for programs."""
        partitions = [asdict(each) | {"equal": each.equal} for each in self.partitions]
        found = asdict(self) | {"partitions": partitions, "equal": self.equal, "records": self.records}
        return orjson.dumps(found, default=TopicPartition._asdict, option=orjson.OPT_INDENT_2).decode()


def render(report: VerifyReport) -> RenderableType:
    """The report for a terminal."""
    table = Table("partition", title=f"{report.table}, version {report.version}")
    for column in ("offsets compared", "records in the topic", "in the table"):
        table.add_column(column, justify="right")
    table.add_column("found")
    for each in report.partitions:
        compared = f"{each.offsets.start:,} to {each.offsets.end - 1:,}" if len(each.offsets) else "none"
        style = "" if each.equal else "red"
        counts = f"{each.topic_records:,}", f"{each.table_records:,}"
        table.add_row(str(each.partition), compared, *counts, Text("equal" if each.equal else "differs", style))
    # Lines of their own: in a narrow column, as that of a log, they would be torn apart.
    found = [Text(f"{each.partition}: {each.found()}", "red") for each in report.partitions if not each.equal]
    notes = [Text(note, "yellow") for note in report.notes()]
    return Group(table, *found, *notes, Text(report.summary(), "green" if report.equal else "red"))
