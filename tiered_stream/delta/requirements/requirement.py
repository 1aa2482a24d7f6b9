"""Entry types of the list of requirements that a table, its columns or the session can set for a writer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """Kind of a requirement for writers, named by the part of a table or of a session that sets the requirement."""

    FEATURE = "table feature"
    PROPERTY = "table property"
    METADATA = "column metadata"
    TYPE = "column type"
    SESSION = "session setting"


class Handling(Enum):
    """Way in which the direct lane handles a requirement."""

    HONOURED = "honours it"
    NOTHING = "nothing: it asks nothing of a writer that appends"
    BY_SPARK = "honours it where delta-spark commits (`ingest.commit`); `auto` then takes it"
    SPARK_LANE = "leaves the table to the Spark lane"


OFF = frozenset({"", "false"})
"""Values of a property or setting, in lower case, with which it requires nothing of writers."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """Entry of the list of requirements: one requirement for writers, and how the direct lane handles it.

    `kind` says what sets the requirement: a table feature, a table property, column metadata, a column type or a
    session setting. `name` is its name. A `name` that ends in `*` stands for all names with this prefix. `handling`
    says what the direct lane does.
    """

    kind: Kind
    name: str
    handling: Handling
    note: str = ""
    """Text for the docs: details of what the direct lane does, or why."""
    label: str = ""
    """Words for the requirement in `ImposedRequirement.reason`, such as "an invariant"; if empty, the name is used."""
    off: frozenset[str] = OFF
    """Values of the property or setting, in lower case, with which it requires nothing."""
    since: str = "0.1.0"
    """Version of tiered_stream that added the entry."""

    def covers(self, kind: Kind, name: str) -> bool:
        """Return whether the entry covers a requirement of this kind and name.

        An entry whose name ends in `*` covers all names with this prefix. Names of features and properties are compared
        without regard to case, as in Delta.
        """
        own = self.name
        if self.kind is not kind:
            return False
        if kind in (Kind.FEATURE, Kind.PROPERTY):
            own, name = own.lower(), name.lower()
        return name.startswith(own[:-1]) if own.endswith("*") else name == own


def entries(
    kind: Kind, handling: Handling, *names: str, note: str = "", off: frozenset[str] = OFF, prefix: str = ""
) -> list[Requirement]:
    """Return one `Requirement` for each of `names`, with `prefix` before the name.

    The other arguments are the fields of each `Requirement`.
    """
    return [Requirement(kind, prefix + name, handling, note, off=off) for name in names]


def find_entry(known: Iterable[Requirement], kind: Kind, name: str) -> Requirement | None:
    """Return the entry for this kind and name among `known`, or None if there is none.

    An entry with exactly this name takes precedence over an entry with a prefix (`*`).
    """
    covering = [entry for entry in known if entry.covers(kind, name)]
    exact = next((entry for entry in covering if not entry.name.endswith("*")), None)
    return exact or next(iter(covering), None)


@dataclass(frozen=True, slots=True)
class ImposedRequirement:
    """Requirement that a table, one of its columns or the session sets, and the list's `entry` that covers it.

    `name` is the full name in the table or session. `column` is the path of the column that sets the requirement; it is
    empty if the table or the session sets it.
    """

    entry: Requirement
    name: str
    column: str = ""

    @property
    def reason(self) -> str:
        """Clause that names the requirement and what sets it, such as `the table has X` or `the column C has X`."""
        of_session = self.entry.kind is Kind.SESSION
        owner = f"the column {self.column}" if self.column else f"the {'session' if of_session else 'table'}"
        verb = "is" if self.entry.kind is Kind.TYPE and not self.entry.label else "has"
        return f"{owner} {verb} {self.entry.label or self.name}"
