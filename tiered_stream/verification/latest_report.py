"""Report on a comparison of a table of the latest state with its topics, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

import orjson
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.verification.statistics_report import ComparedStatistics
from tiered_stream.verification.verify_report import ColumnDifference, Kind, VerifyReport, render


@dataclass(frozen=True, slots=True)
class RowDifference:
    """Key whose row in the table differs from the last record of the key in the topics.

    `key` has the key columns, each with its value as text. `copies` is the number of the table's rows with this key.
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
        columns = (
            f"{column.column} is {column.topic} in the topic, {column.table} in the table" for column in self.columns
        )
        why_extra = f"{self.record} deletes it" if self.deletes else "no record in the topic has its key"
        texts = {
            Kind.MISSING: f" is missing from the table: {self.record} has it",
            Kind.EXTRA: f" is in the table, and {why_extra}",
            Kind.DUPLICATE: f" is {self.copies} times in the table",
            Kind.DIFFERENT: f", last in {self.record}: {'; '.join(columns)}",
        }
        return f"row {', '.join(f'{name}={value}' for name, value in self.key)}{texts[self.kind]}"


@dataclass(frozen=True, slots=True)
class ComparedOffsets:
    """Offsets of one partition: `log` are the offsets that the topic has now, and `offsets` the compared ones."""

    partition: TopicPartition
    log: OffsetRange
    offsets: OffsetRange


@dataclass(frozen=True, slots=True)
class LatestReport:
    """Result of comparing one `version` of a table of the latest state with its topics.

    `keys` are the key columns, and `columns` all compared columns. `left_out` are columns of the table that records
    never set. `topic_rows` is the number of rows that the topics' last records give. `table_outside` is the number of
    rows in the table that were not compared, because the last record of their key is outside of the compared offsets.
    `counts` has the number of keys for each kind of difference, and `differences` some keys of each kind.
    """

    table: str
    version: int
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    left_out: tuple[str, ...]
    partitions: tuple[ComparedOffsets, ...]
    topic_rows: int
    table_outside: int
    counts: tuple[tuple[Kind, int], ...] = ()
    differences: tuple[RowDifference, ...] = ()
    changed: bool = False
    """True if the sums differed, and the rows did not differ when they were read again."""
    statistics: ComparedStatistics = field(default_factory=ComparedStatistics)

    @property
    def equal(self) -> bool:
        """Return True if the table has the row of each key's last record, no other row, and no wrong statistics."""
        return not self.counts and not self.changed and not self.statistics.wrong

    def summary(self) -> str:
        """Return one line with the result of the whole comparison and the number of compared rows."""
        where, rows = f"{self.table} (version {self.version})", f"{_rows(self.topic_rows)} compared"
        if self.equal:
            return f"{where} is the latest state of its topics: {rows}"
        if not self.counts and not self.changed:
            return f"{where} has wrong statistics in its log: {rows}, which are the latest state"
        found = ", ".join(f"{count:,} {kind.value}" for kind, count in self.counts)
        return f"{where} is not the latest state of its topics: {found or 'its sums differed'}; {rows}"

    def notes(self) -> Iterator[str]:
        """Yield lines about columns, rows and offsets that were not compared."""
        if self.left_out:
            yield f"not compared, because records never set them: {', '.join(self.left_out)}"
        if self.table_outside:
            yield (
                f"not compared: {_rows(self.table_outside)} of the table, because the last record of the key is not in "
                "the compared offsets"
            )
        for each in self.partitions:
            outside = [
                f"offsets {start} to {end - 1} of the topic"
                for start, end in ((each.log.start, each.offsets.start), (each.offsets.end, each.log.end))
                if start < end
            ]
            if outside:
                yield f"{each.partition}: not compared: {'; '.join(outside)}"
        yield from self.statistics.notes()

    def found(self) -> Iterator[str]:
        """Yield a line for each difference and each wrong statistic that the report names."""
        yield from map(str, self.differences)
        if self.changed:
            yield (
                "the sums differed, and when the rows were read again, they did not: the topic has changed meanwhile; "
                "verify again"
            )
        yield from self.statistics.found()

    def to_json(self) -> str:
        """Return the whole report as JSON."""
        figures = asdict(self) | {"equal": self.equal}
        return orjson.dumps(figures, default=TopicPartition._asdict, option=orjson.OPT_INDENT_2).decode()


def render_verified(report: VerifyReport | LatestReport) -> RenderableType:
    """Render the report of `verify` for a terminal, whichever kind of table was compared."""
    return render_latest(report) if isinstance(report, LatestReport) else render(report)


def render_latest(report: LatestReport) -> RenderableType:
    """Render the report for a terminal: the compared offsets, and lines about differences and notes."""
    table = Table("partition", title=f"{report.table}, version {report.version}")
    table.add_column("offsets compared", justify="right")
    for entry in report.partitions:
        compared = f"{entry.offsets.start:,} to {entry.offsets.end - 1:,}" if len(entry.offsets) else "none"
        table.add_row(str(entry.partition), compared)
    differences = [Text(line, "red") for line in report.found()]
    notes = [Text(note, "yellow") for note in report.notes()]
    return Group(table, *differences, *notes, Text(report.summary(), "green" if report.equal else "red"))


def _rows(count: int) -> str:
    return f"{count:,} {'row' if count == 1 else 'rows'}"
