"""Report on a comparison of a table with its topics, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from enum import Enum

import orjson
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.verification.statistics_report import ComparedStatistics


class Kind(Enum):
    """Kind of difference between table and topic at one offset."""

    MISSING = "missing"
    EXTRA = "extra"
    DUPLICATE = "doubled"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class ColumnDifference:
    """Column in which a record in the topic differs from the same record in the table.

    `topic` and `table` are texts of the two values, shortened for display.
    """

    column: str
    topic: str
    table: str


@dataclass(frozen=True, slots=True)
class Difference:
    """First offset of a partition at which the table differs from the topic, and the kind of difference.

    `copies` is the number of the table's rows with this offset. `columns` are the columns that differ, if `kind` is
    DIFFERENT. `counts` has the number of differing offsets of each kind in the same bucket of 65,536 offsets.
    """

    offset: int
    kind: Kind
    copies: int
    columns: tuple[ColumnDifference, ...]
    counts: tuple[tuple[Kind, int], ...]

    def __str__(self) -> str:
        columns = (
            f"{column.column} is {column.topic} in the topic, {column.table} in the table" for column in self.columns
        )
        texts = {
            Kind.MISSING: " is missing from the table",
            Kind.EXTRA: " is in the table, and not in the topic",
            Kind.DUPLICATE: f" is {self.copies} times in the table",
            Kind.DIFFERENT: f": {'; '.join(columns)}",
        }
        return f"offset {self.offset}{texts[self.kind]}"


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """Result of comparing one partition.

    `log` are the offsets that the topic has now, and `offsets` the compared offsets among them. `topic_records` and
    `table_records` are the numbers of compared records, and `table_outside` is the number of table rows outside of
    `offsets`. `differing` is the range from the first to the last bucket of 65,536 offsets that differs; None: no
    bucket differs. `first` is the first difference; `first` is None if the partition is equal, or if the rows were
    equal when they were read again.
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
        """Return true if table and topic are equal in the compared offsets."""
        return self.differing_buckets == 0

    def not_compared(self) -> Iterator[str]:
        """Yield a text for each range of the topic's offsets that was not compared.

        If the table has rows outside of the compared offsets, yield a text with their number.
        """
        if self.log.start < self.offsets.start:
            yield f"offsets {self.log.start} to {self.offsets.start - 1} of the topic"
        if self.offsets.end < self.log.end:
            yield f"offsets {self.offsets.end} to {self.log.end - 1} of the topic"
        if self.table_outside:
            yield f"{self.table_outside:,} rows of the table"

    def describe(self) -> str:
        """Return `equal`, or a text about the first difference."""
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
    """Result of comparing one `version` of a table with its topics.

    `columns` are the columns that were compared in addition to the offset. `left_out` are columns of the topics that
    were not compared, because the table does not have them. `not_read` has the partitions of which only the table has
    rows, each with the number of these rows.
    """

    table: str
    version: int
    columns: tuple[str, ...]
    left_out: tuple[str, ...]
    partitions: tuple[PartitionReport, ...]
    not_read: tuple[tuple[TopicPartition, int], ...] = ()
    statistics: ComparedStatistics = field(default_factory=ComparedStatistics)

    @property
    def equal(self) -> bool:
        """Return True if no partition differs, no row is of another partition, and all statistics are right."""
        return all(report.equal for report in self.partitions) and not self.not_read and not self.statistics.wrong

    @property
    def records(self) -> int:
        """Return the number of the topics' records that were compared."""
        return sum(report.topic_records for report in self.partitions)

    def summary(self) -> str:
        """Return one line with the result of the whole comparison and the number of compared records."""
        where = f"{self.table} (version {self.version})"
        if self.equal:
            return f"{where} is equal to its topics: {self.records:,} records compared"
        wrong = [report.partition for report in self.partitions if not report.equal]
        wrong += [partition for partition, _ in self.not_read]
        if not wrong:
            return f"{where} has wrong statistics in its log: {self.records:,} records compared, which are equal"
        return f"{where} differs from its topics in {', '.join(map(str, wrong))}: {self.records:,} records compared"

    def notes(self) -> Iterator[str]:
        """Yield lines about columns, rows and offsets that were not compared."""
        if self.left_out:
            yield f"not compared, because the table has no such column: {', '.join(self.left_out)}"
        for partition, rows in self.not_read:
            yield f"{partition}: {rows:,} rows in the table, of a partition that the topic does not have"
        for report in self.partitions:
            outside = list(report.not_compared())
            if outside:
                yield f"{report.partition}: not compared: {'; '.join(outside)}"
        yield from self.statistics.notes()

    def found(self) -> Iterator[str]:
        """Yield a line for each partition that differs, and for wrong statistics."""
        yield from (f"{entry.partition}: {entry.describe()}" for entry in self.partitions if not entry.equal)
        yield from self.statistics.found()

    def to_json(self) -> str:
        """Return the whole report as JSON."""
        partitions = [asdict(report) | {"equal": report.equal} for report in self.partitions]
        figures = asdict(self) | {"partitions": partitions, "equal": self.equal, "records": self.records}
        return orjson.dumps(figures, default=TopicPartition._asdict, option=orjson.OPT_INDENT_2).decode()


def render(report: VerifyReport) -> RenderableType:
    """Render the report for a terminal: a table of the partitions, and lines about differences and notes."""
    table = Table("partition", title=f"{report.table}, version {report.version}")
    for column in ("offsets compared", "records in the topic", "in the table"):
        table.add_column(column, justify="right")
    table.add_column("found")
    for entry in report.partitions:
        compared = f"{entry.offsets.start:,} to {entry.offsets.end - 1:,}" if len(entry.offsets) else "none"
        style = "" if entry.equal else "red"
        counts = f"{entry.topic_records:,}", f"{entry.table_records:,}"
        table.add_row(str(entry.partition), compared, *counts, Text("equal" if entry.equal else "differs", style))
    # Differences get lines of their own, because a narrow table column would break them apart.
    differences = [Text(line, "red") for line in report.found()]
    notes = [Text(note, "yellow") for note in report.notes()]
    return Group(table, *differences, *notes, Text(report.summary(), "green" if report.equal else "red"))
