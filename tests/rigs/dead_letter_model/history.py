"""Parts of a random history: the layout of the tables, the steps, and the interruptions of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tests.rigs.dead_letter_model.shapes import Shape

DEAD_LETTERS = "set_aside"
"""Name of the table for dead letters. No other path or statement contains this word."""
COLUMNS = ("a", "b", "c")
"""Fields of a value next to its `id`. Each may be missing or of a wrong type."""


class Layout(Enum):
    """Assignment of topics to tables."""

    ONE_TABLE = "one table"
    BY_TOPIC = "a table for each topic"
    ROUTED = "tables by ingest.route"


class Place(Enum):
    """Kind of a write."""

    LETTERS = "the dead-letter table"
    ROWS = "a table"
    NOTE = "a file of the checkpoint"
    BATCH = "the micro-batch as a whole"


@dataclass(frozen=True)
class Moment:
    """Moment before or after the write number `number` of this kind within a step, counted from 1."""

    place: Place
    number: int
    after: bool

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} write {self.number} of {self.place.value}"


# Changes of a table, by hand


@dataclass(frozen=True)
class AddCheck:
    """Add a CHECK constraint. Delta refuses a check that rows of the table break."""

    table: int
    check: str

    def __str__(self) -> str:
        return f"add CHECK ({self.check}) to table {self.table}"


@dataclass(frozen=True)
class DropChecks:
    """Drop all CHECK constraints."""

    table: int

    def __str__(self) -> str:
        return f"drop the checks of table {self.table}"


@dataclass(frozen=True)
class AllowNull:
    """Drop NOT NULL of all columns."""

    table: int

    def __str__(self) -> str:
        return f"allow NULL in table {self.table}"


@dataclass(frozen=True)
class Break:
    """Make a table unwritable: `away` moves its folder, `check` adds a CHECK that always holds. -1: dead letters."""

    table: int
    how: str

    def __str__(self) -> str:
        name = f"table {self.table}" if self.table >= 0 else "the dead-letter table"
        return f"move {name} away" if self.how == "away" else f"add a CHECK that always holds to {name}"


@dataclass(frozen=True)
class Repair:
    """Make a table writable again."""

    table: int

    def __str__(self) -> str:
        return f"repair {f'table {self.table}' if self.table >= 0 else 'the dead-letter table'}"


@dataclass(frozen=True)
class Die:
    """Kill the driver."""

    def __str__(self) -> str:
        return "kill the driver"


@dataclass(frozen=True)
class RedriveMeanwhile:
    """Redrive with this schema in another driver."""

    schema: tuple[str, ...]

    def __str__(self) -> str:
        return f"redrive meanwhile with {ddl(self.schema)}"


Change = AddCheck | DropChecks | AllowNull | Break | Repair


@dataclass(frozen=True)
class Interruption:
    """Event at a moment within a step."""

    moment: Moment
    event: Change | Die | RedriveMeanwhile

    def __str__(self) -> str:
        return f"{self.moment}: {self.event}"


# Steps


@dataclass(frozen=True)
class Produce:
    """Produce records: their number in each partition, and the seed of their values. `spoiled`: no value decodes."""

    records: int
    seed: int
    spoiled: bool = False

    def __str__(self) -> str:
        what = "records that do not decode" if self.spoiled else "records"
        return f"produce {self.records} {what} in each partition (seed {self.seed})"


@dataclass(frozen=True)
class Land:
    """Start the query and wait for its end."""

    schema: tuple[str, ...]
    lane: str
    commit: str
    limit: int
    parks: bool
    interruptions: tuple[Interruption, ...] = ()

    def __str__(self) -> str:
        how = [f"lane {self.lane}", f"commit {self.commit}", f"{self.limit} offsets a batch", *["park"] * self.parks]
        return f"land {ddl(self.schema)}: {', '.join(how)}{_said(self.interruptions)}"


@dataclass(frozen=True)
class Redrive:
    """Redrive all letters of the job."""

    schema: tuple[str, ...]
    interruptions: tuple[Interruption, ...] = ()

    def __str__(self) -> str:
        return f"redrive with {ddl(self.schema)}{_said(self.interruptions)}"


@dataclass(frozen=True)
class Replay:
    """Replay a table's topics with --replace, from one offset's time to another's."""

    table: int
    first: int
    end: int
    exact: bool
    schema: tuple[str, ...]
    interruptions: tuple[Interruption, ...] = ()

    def __str__(self) -> str:
        exact = ", exact" if self.exact else ""
        given = f"offsets {self.first} to {self.end}{exact} with {ddl(self.schema)}"
        return f"replay --replace into table {self.table}: {given}{_said(self.interruptions)}"


@dataclass(frozen=True)
class ReplayOn:
    """Resume the unfinished replay, if there is one."""

    schema: tuple[str, ...]
    interruptions: tuple[Interruption, ...] = ()

    def __str__(self) -> str:
        return f"go on with the replay with {ddl(self.schema)}{_said(self.interruptions)}"


Step = Produce | Land | Redrive | Replay | ReplayOn | Change
Run = Land | Redrive | Replay | ReplayOn


@dataclass(frozen=True)
class Setup:
    """Properties of a history that do not change.

    `not_null`: columns that are NOT NULL in tables made beforehand; None: the query makes its tables.
    """

    layout: Layout
    topics: tuple[str, ...]
    partitions: int
    not_null: tuple[str, ...] | None
    by_pattern: bool
    day_column: bool
    shape: Shape = Shape.DECODED
    text_limit: int | None = None
    """Length of the computed text's VARCHAR in tables made beforehand; None: it is a STRING."""

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables' folders."""
        match self.layout:
            case Layout.ONE_TABLE:
                return ("main",)
            case Layout.BY_TOPIC:
                return self.topics
            case Layout.ROUTED:
                return ("routed", "main")[: len(self.topics)]

    def table_of(self, topic: str) -> str:
        """Return the name of the table for a topic's rows."""
        match self.layout:
            case Layout.ONE_TABLE:
                return "main"
            case Layout.BY_TOPIC:
                return topic
            case Layout.ROUTED:
                return "routed" if topic == self.topics[0] else "main"

    def topics_of(self, table: str) -> tuple[str, ...]:
        """Return the topics of a table."""
        return tuple(topic for topic in self.topics if self.table_of(topic) == table)

    def __str__(self) -> str:
        made = (
            "made by the query"
            if self.not_null is None
            else f"made before, NOT NULL: {', '.join(self.not_null) or 'none'}"
        )
        said = [f"{', '.join(self.topics)} x {self.partitions}", made]
        said += ["subscribePattern"] * self.by_pattern + ["day column"] * self.day_column
        said += [self.shape.value] + ([] if self.text_limit is None else [f"VARCHAR({self.text_limit})"])
        return f"{self.layout.value}; {'; '.join(said)}"


@dataclass(frozen=True)
class History:
    """One random history. The same name gives the same history."""

    name: str
    setup: Setup
    steps: tuple[Step, ...]
    final_schema: tuple[str, ...]
    redrives_at_end: bool

    def __str__(self) -> str:
        lines = [
            f"history {self.name}: {self.setup}",
            *(f"  {number}. {step}" for number, step in enumerate(self.steps)),
        ]
        return "\n".join([*lines, f"  at the end: {ddl(self.final_schema)}{', redrive' * self.redrives_at_end}"])


def ddl(schema: Sequence[str]) -> str:
    """Return the schema of values with these fields."""
    return ", ".join(f"{name} BIGINT" for name in ("id", *schema))


def _said(interruptions: Sequence[Interruption]) -> str:
    return "".join(f"\n       {each}" for each in interruptions)
