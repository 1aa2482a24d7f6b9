"""Entries of the list of requirements that a table, its columns or the session can set for a writer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """Places in a table or a session where a requirement for writers can be set."""

    FEATURE = "table feature"
    PROPERTY = "table property"
    METADATA = "column metadata"
    TYPE = "column type"
    SCHEMA = "schema"
    SESSION = "session setting"


class Handling(Enum):
    """Ways in which the direct lane handles a requirement."""

    HONOURED = "honours it"
    NOTHING = "nothing: it asks nothing of a writer that appends"
    BY_SPARK = "honours it where delta-spark commits (`ingest.commit`); `auto` then takes it"
    SPARK_LANE = "leaves the table to the Spark lane"
    REFUSED = "refuses"


OFF = frozenset({"", "false"})
"""Values of a property, in lower case, that turn its requirement off."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """Entry of the list of requirements. A `name` that ends in `*` stands for all names with this prefix."""

    kind: Kind
    name: str
    handling: Handling
    note: str = ""
    """Text for the docs: details of what the direct lane does, or why."""
    label: str = ""
    """Words for the requirement in `ImposedRequirement.reason`, such as "an invariant"; empty: the name is used."""
    off: frozenset[str] = OFF
    """Values, in lower case, that turn the requirement off."""
    since: str = "0.1.0"
    """Version of tiered_stream that added the entry."""

    def covers(self, kind: Kind, name: str) -> bool:
        """Return whether the entry covers this kind and name; names of features and properties ignore case (Delta)."""
        own = self.name
        if self.kind is not kind:
            return False
        if kind in (Kind.FEATURE, Kind.PROPERTY):
            own, name = own.lower(), name.lower()
        return name.startswith(own[:-1]) if own.endswith("*") else name == own


def entries(
    kind: Kind, handling: Handling, *names: str, note: str = "", off: frozenset[str] = OFF
) -> list[Requirement]:
    """Return one entry of the list for each name, all with the same kind, handling, note and `off`."""
    return [Requirement(kind, name, handling, note, off=off) for name in names]


@dataclass(frozen=True, slots=True)
class ImposedRequirement:
    """Requirement that a table or the session sets, with its full `name` there; `column` is the column that has it.

    `column` is empty for a requirement of the whole table or of the session.
    """

    entry: Requirement
    name: str
    column: str = ""

    @property
    def reason(self) -> str:
        """Text that says what the table, its column or the session has, such as `the session has X`."""
        label = self.entry.label or self.name
        if self.entry.kind is Kind.TYPE and not self.entry.label:
            return f"the column {self.column} is {label}"
        if self.entry.kind is Kind.SESSION:
            return f"the session has {label}"
        return f"the column {self.column} has {label}" if self.column else f"the table has {label}"
