"""Reports on comparisons of a table with its topics, as text and as JSON."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, ClassVar

import orjson
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tiered_stream.model import OffsetRange, TopicPartition

_CHANGED = "differed, and when the rows were read again, they did not: the topic has changed meanwhile; verify again"


class Kind(Enum):
    """Kind of difference between table and topic, or between storage and brokers, at one offset."""

    MISSING = "missing"
    EXTRA = "extra"
    DUPLICATE = "doubled"
    DIFFERENT = "different"
    UNREADABLE = "unreadable"
    """The record cannot be read from the storage. Comparisons of tables never have this kind."""


@dataclass(frozen=True, slots=True)
class WrongStatistic:
    """Wrong statistic of a data file in a Delta table's log, by which a reader can skip rows that it needs.

    `name` is `numRecords`, `nullCount`, `minValues` or `maxValues`. `column` is '' for `numRecords`. `log` is the value
    in the table's log, and `rows` the value that was computed from the file's rows, both as texts.
    """

    file: str
    column: str
    name: str
    log: str
    rows: str

    def __str__(self) -> str:
        column = f"column {self.column}: " if self.column else ""
        return f"file {self.file}: {column}{self.name} is {self.log} in the table's log, and {self.rows} in the rows"


@dataclass(frozen=True, slots=True)
class ComparedStatistics:
    """Result of comparing statistics with rows: numbers of files, and the statistics that are wrong.

    `files` is the number of files that were compared, and `skipped` the number of other files. `wrong` is the number of
    wrong statistics, and `named` are some of them. If `repaired` is true, Delta has computed all statistics again, and
    the numbers are from the comparison after that.
    """

    files: int = 0
    skipped: int = 0
    wrong: int = 0
    named: tuple[WrongStatistic, ...] = ()
    repaired: bool = False

    def found(self) -> Iterator[str]:
        """Yield a line for each statistic in `named`, a line with the number of other wrong statistics, and advice."""
        yield from map(str, self.named)
        if self.wrong > len(self.named):
            yield f"{self.wrong - len(self.named):,} more statistics in the table's log are wrong"
        if self.wrong:
            yield "readers that filter by these columns lose rows: stop the table's queries, and verify with --repair"

    def notes(self) -> Iterator[str]:
        """Yield a line about files whose statistics were not compared, and a line about a repair of statistics."""
        if self.skipped:
            yield f"statistics of {self.skipped:,} files were not compared with their rows"
        if self.repaired:
            yield "statistics in the table's log were wrong, and were computed again for all files"


@dataclass(frozen=True, slots=True)
class ColumnDifference:
    """Column in which a record in the topic differs from the same record in the table.

    `topic` and `table` are texts of the two values, shortened for display.
    """

    column: str
    topic: str
    table: str

    def __str__(self) -> str:
        return f"{self.column} is {self.topic} in the topic, {self.table} in the table"


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
        columns = "; ".join(map(str, self.columns))
        texts = {
            Kind.MISSING: " is missing from the table",
            Kind.EXTRA: " is in the table, and not in the topic",
            Kind.DUPLICATE: f" is {self.copies} times in the table",
            Kind.DIFFERENT: f": {columns}",
        }
        return f"offset {self.offset}{texts[self.kind]}"


@dataclass(frozen=True, slots=True)
class ComparedOffsets:
    """Offset ranges of one partition: `log` has the offsets in the topic, and `offsets` the compared offsets."""

    partition: TopicPartition
    log: OffsetRange
    offsets: OffsetRange

    @property
    def compared(self) -> str:
        """Return the compared offsets as text."""
        return f"{self.offsets.start:,} to {self.offsets.end - 1:,}" if len(self.offsets) else "none"

    def not_compared(self) -> Iterator[str]:
        """Yield a text for each range of the topic's offsets that was not compared."""
        for start, end in (self.log.start, self.offsets.start), (self.offsets.end, self.log.end):
            if start < end:
                yield f"offsets {start} to {end - 1} of the topic"


@dataclass(frozen=True, slots=True)
class PartitionReport(ComparedOffsets):
    """Result of comparing one partition.

    `topic_records` and `table_records` are the numbers of compared records, and `table_outside` is the number of table
    rows outside of `offsets`. `differing` is the range from the first to the last bucket of 65,536 offsets that
    differs, or None. `first` is the first difference; `first` is None if the partition is equal, or if the rows were
    equal when they were read again.
    """

    topic_records: int
    table_records: int
    table_outside: int
    differing_buckets: int
    differing: OffsetRange | None
    first: Difference | None

    @property
    def equal(self) -> bool:
        """Return True if table and topic are equal in the compared offsets."""
        return self.differing_buckets == 0

    def not_compared(self) -> Iterator[str]:
        """Yield a text for each range of the topic's offsets that was not compared.

        If the table has rows outside of the compared offsets, yield a text with their number.
        """
        yield from ComparedOffsets.not_compared(self)
        if self.table_outside:
            yield f"{self.table_outside:,} rows of the table"

    def describe(self) -> str:
        """Return `equal`, or a text about the first difference."""
        if self.equal:
            return "equal"
        assert self.differing is not None
        if self.first is None:
            return f"the sums of the offsets {self.differing.start} to {self.differing.end - 1} {_CHANGED}"
        more = self.differing_buckets > 1 or sum(count for _, count in self.first.counts) > 1
        return f"{self.first} (and more, up to offset {self.differing.end - 1})" if more else str(self.first)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport(ABC):
    """Result of comparing one `version` of a table with its topics.

    `columns` are the columns that were compared, and `left_out` the columns that were not.
    """

    table: str
    version: int
    columns: tuple[str, ...]
    left_out: tuple[str, ...]
    partitions: Sequence[ComparedOffsets]
    statistics: ComparedStatistics = field(default_factory=ComparedStatistics)
    WHY_LEFT_OUT: ClassVar[str]

    @property
    @abstractmethod
    def equal(self) -> bool:
        """Return True if the table does not differ from its topics, and no statistic in its log is wrong."""

    @abstractmethod
    def summary(self) -> str:
        """Return one line with the result of the whole comparison and the number of compared records or rows."""

    @abstractmethod
    def differing(self) -> Iterator[str]:
        """Yield a line for each difference that the report names."""

    def outside(self) -> Iterator[str]:
        """Yield lines about rows of the table that were not compared."""
        yield from ()

    def notes(self) -> Iterator[str]:
        """Yield lines about columns, rows and offsets that were not compared."""
        if self.left_out:
            yield f"not compared, because {self.WHY_LEFT_OUT}: {', '.join(self.left_out)}"
        yield from self.outside()
        for entry in self.partitions:
            if texts := list(entry.not_compared()):
                yield f"{entry.partition}: not compared: {'; '.join(texts)}"
        yield from self.statistics.notes()

    def found(self) -> Iterator[str]:
        """Yield a line for each difference and each wrong statistic that the report names."""
        yield from self.differing()
        yield from self.statistics.found()

    def figures(self) -> dict[str, Any]:
        """Return the whole report as a dictionary for JSON."""
        return asdict(self) | {"equal": self.equal}

    def to_json(self) -> str:
        """Return the whole report as JSON."""
        return orjson.dumps(self.figures(), default=TopicPartition._asdict, option=orjson.OPT_INDENT_2).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport(TableReport):
    """Result of comparing one `version` of a table with its topics.

    `columns` are the columns that were compared in addition to the offset. `left_out` are columns of the topics that
    were not compared, because the table does not have them. `not_read` has the partitions of which only the table has
    rows, each with the number of these rows.
    """

    partitions: tuple[PartitionReport, ...]
    not_read: tuple[tuple[TopicPartition, int], ...] = ()
    WHY_LEFT_OUT = "the table has no such column"

    @property
    def equal(self) -> bool:
        """Return True if no partition differs, the table has no rows of other partitions, and no statistic is wrong."""
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

    def outside(self) -> Iterator[str]:
        for partition, rows in self.not_read:
            yield f"{partition}: {rows:,} rows in the table, of a partition that the topic does not have"

    def differing(self) -> Iterator[str]:
        return (f"{entry.partition}: {entry.describe()}" for entry in self.partitions if not entry.equal)

    def figures(self) -> dict[str, Any]:
        partitions = [asdict(report) | {"equal": report.equal} for report in self.partitions]
        return asdict(self) | {"partitions": partitions, "equal": self.equal, "records": self.records}


@dataclass(frozen=True, slots=True)
class RowDifference:
    """Key whose row in the table differs from the last record of the key in the topics.

    `key` has pairs of a key column and its value as text. `copies` is the number of the table's rows with this key.
    `record` names partition and offset of the key's last record, and `deletes` says whether this record deletes the
    row. `record` is '' if no compared record has the key. `columns` are the columns that differ, if `kind` is
    DIFFERENT.
    """

    key: tuple[tuple[str, str], ...]
    kind: Kind
    copies: int
    record: str
    deletes: bool
    columns: tuple[ColumnDifference, ...] = ()

    def __str__(self) -> str:
        columns = "; ".join(map(str, self.columns))
        why_extra = f"{self.record} deletes it" if self.deletes else "no record in the topic has its key"
        texts = {
            Kind.MISSING: f" is missing from the table: {self.record} has it",
            Kind.EXTRA: f" is in the table, and {why_extra}",
            Kind.DUPLICATE: f" is {self.copies} times in the table",
            Kind.DIFFERENT: f", last in {self.record}: {columns}",
        }
        return f"row {', '.join(f'{name}={value}' for name, value in self.key)}{texts[self.kind]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestReport(TableReport):
    """Result of comparing one `version` of a table of the latest state with its topics.

    `keys` are the key columns, and `columns` all compared columns. `left_out` are columns of the table that records
    never set. `topic_rows` is the number of rows that the topics' last records give. `table_outside` is the number of
    rows in the table that were not compared, because the last record of their key is outside of the compared offsets.
    `counts` has the number of keys for each kind of difference, and `differences` some keys of each kind.
    """

    keys: tuple[str, ...]
    topic_rows: int = 0
    table_outside: int = 0
    counts: tuple[tuple[Kind, int], ...] = ()
    differences: tuple[RowDifference, ...] = ()
    changed: bool = False
    """True if the sums of row hashes differed, but the rows did not differ when they were read again."""
    WHY_LEFT_OUT = "records never set them"

    @property
    def equal(self) -> bool:
        """Return True if the table has the row of each key's last record, no other row, and no wrong statistics."""
        return not self.counts and not self.changed and not self.statistics.wrong

    def summary(self) -> str:
        where, rows = f"{self.table} (version {self.version})", f"{_rows(self.topic_rows)} compared"
        if self.equal:
            return f"{where} is the latest state of its topics: {rows}"
        if not self.counts and not self.changed:
            return f"{where} has wrong statistics in its log: {rows}, which are the latest state"
        found = ", ".join(f"{count:,} {kind.value}" for kind, count in self.counts)
        return f"{where} is not the latest state of its topics: {found or 'its sums differed'}; {rows}"

    def outside(self) -> Iterator[str]:
        if self.table_outside:
            yield (
                f"not compared: {_rows(self.table_outside)} of the table, because the last record of the key is not in "
                "the compared offsets"
            )

    def differing(self) -> Iterator[str]:
        yield from map(str, self.differences)
        if self.changed:
            yield f"the sums {_CHANGED}"


def render_verified(report: TableReport) -> RenderableType:
    """Render the report for a terminal: a table of the partitions, and lines about differences and notes."""
    table = Table("partition", title=f"{report.table}, version {report.version}")
    table.add_column("offsets compared", justify="right")
    if isinstance(report, VerifyReport):
        for column in ("records in the topic", "in the table"):
            table.add_column(column, justify="right")
        table.add_column("found")
    for entry in report.partitions:
        cells: list[str | Text] = []
        if isinstance(entry, PartitionReport):
            found = Text("equal") if entry.equal else Text("differs", "red")
            cells = [f"{entry.topic_records:,}", f"{entry.table_records:,}", found]
        table.add_row(str(entry.partition), entry.compared, *cells)
    # Differences get lines of their own, because a narrow table column would break them apart.
    differences = [Text(line, "red") for line in report.found()]
    notes = [Text(note, "yellow") for note in report.notes()]
    return Group(table, *differences, *notes, Text(report.summary(), "green" if report.equal else "red"))


def _rows(count: int) -> str:
    return f"{count:,} {'row' if count == 1 else 'rows'}"
