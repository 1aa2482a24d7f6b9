"""An entry of the list of all that a table, its columns and the session may ask of a writer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What asks."""

    FEATURE = "table feature"
    PROPERTY = "table property"
    METADATA = "column metadata"
    TYPE = "column type"
    SCHEMA = "schema"
    SESSION = "session setting"


class Handling(Enum):
    """What the direct lane does about it."""

    HONOURED = "honours it"
    NOTHING = "nothing: it asks nothing of a writer that appends"
    BY_SPARK = "honours it where delta-spark commits (`ingest.commit`); `auto` then takes it"
    SPARK_LANE = "leaves the table to the Spark lane"
    REFUSED = "refuses"


OFF = frozenset({"", "false"})
"""Values of a property, in lower case, by which it asks for nothing."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One entry. A `name` that ends in `*` stands for all that begin so."""

    kind: Kind
    name: str
    handling: Handling
    note: str = ""
    """For the docs: more of what the direct lane does, or why."""
    said: str = ""
    """What the table has, or its column, as a reason has it; without it the name."""
    off: frozenset[str] = OFF
    """Values in lower case by which it asks for nothing."""
    since: str = "0.1.0"
    """The version that knows the entry."""

    def is_of(self, kind: Kind, name: str) -> bool:
        """Whether it is the entry of that name. Delta heeds no case in names of features and properties."""
        own = self.name
        if self.kind is not kind:
            return False
        if kind in (Kind.FEATURE, Kind.PROPERTY):
            own, name = own.lower(), name.lower()
        return name.startswith(own[:-1]) if own.endswith("*") else name == own


@dataclass(frozen=True, slots=True)
class Asked:
    """A requirement that a table or the session has, under the `name` that it has there; `column`: of which column."""

    requirement: Requirement
    name: str
    column: str = ""

    @property
    def reason(self) -> str:
        """What the table or its column has, in one line."""
        said = self.requirement.said or self.name
        if self.requirement.kind is Kind.TYPE and not self.requirement.said:
            return f"the column {self.column} is {said}"
        if self.requirement.kind is Kind.SESSION:
            return f"the session has {said}"
        return f"the column {self.column} has {said}" if self.column else f"the table has {said}"
