"""Parts of a random history: the layout of the tables, the steps, and the interruptions of a step."""

from __future__ import annotations

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


# Changes of a table, by hand


@dataclass(frozen=True)
class AddCheck:
    """Add a CHECK constraint. Delta refuses a check that rows of the table break."""

    table: int
    check: str


@dataclass(frozen=True)
class DropChecks:
    """Drop all CHECK constraints."""

    table: int


@dataclass(frozen=True)
class AllowNull:
    """Drop NOT NULL of all columns."""

    table: int


@dataclass(frozen=True)
class Break:
    """Make a table unwritable: `away` moves its folder, `check` adds a CHECK that always holds. -1: dead letters."""

    table: int
    how: str


@dataclass(frozen=True)
class Repair:
    """Make a table writable again."""

    table: int


@dataclass(frozen=True)
class Die:
    """Kill the driver."""


@dataclass(frozen=True)
class RedriveMeanwhile:
    """Redrive with this schema in another driver."""

    schema: tuple[str, ...]


Change = AddCheck | DropChecks | AllowNull | Break | Repair


@dataclass(frozen=True)
class Interruption:
    """Event at a moment within a step."""

    moment: Moment
    event: Change | Die | RedriveMeanwhile


# Steps


@dataclass(frozen=True)
class Produce:
    """Produce records: their number in each partition, and the seed of their values. `spoiled`: no value decodes."""

    records: int
    seed: int
    spoiled: bool = False


@dataclass(frozen=True)
class Land:
    """Start the query and wait for its end."""

    schema: tuple[str, ...]
    lane: str
    commit: str
    limit: int
    parks: bool
    interruptions: tuple[Interruption, ...] = ()


@dataclass(frozen=True)
class Redrive:
    """Redrive all letters of the job."""

    schema: tuple[str, ...]
    interruptions: tuple[Interruption, ...] = ()


@dataclass(frozen=True)
class Replay:
    """Replay a table's topics with --replace, from one offset's time to another's."""

    table: int
    first: int
    end: int
    exact: bool
    schema: tuple[str, ...]
    interruptions: tuple[Interruption, ...] = ()


@dataclass(frozen=True)
class ReplayOn:
    """Resume the unfinished replay, if there is one."""

    schema: tuple[str, ...]
    interruptions: tuple[Interruption, ...] = ()


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


@dataclass(frozen=True)
class History:
    """One random history. The same name gives the same history."""

    name: str
    setup: Setup
    steps: tuple[Step, ...]
    final_schema: tuple[str, ...]
    redrives_at_end: bool

    def __str__(self) -> str:
        """Return the history with a line for each step."""
        steps = (f"  {number}. {step}" for number, step in enumerate(self.steps))
        end = f"  at the end: {self.final_schema}{', redrive' * self.redrives_at_end}"
        return "\n".join([f"history {self.name}: {self.setup}", *steps, end])
