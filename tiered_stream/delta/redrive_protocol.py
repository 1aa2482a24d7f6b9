"""How a redrive brings marked letters to their end, though others run at the same time and may have crashed.

1. A redrive marks letters with a number that is never used again, all in one commit. From then on nobody adds a letter
   to the number or takes one from it, until the number has an outcome.
2. The outcome of a number is the version of its application transaction in the table of the rows. Delta lets one
   commit of it through. It is either the append of the rows, or a commit without rows that gives the number up.
3. The outcome decides what becomes of the letters: they are deleted, or the mark is cleared.

Every redrive brings numbers of others to their end first. The second step may be tried twice, and the third done twice.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

from tiered_stream.errors import TableError

ATTEMPTS = 10
"""Attempts to commit a change that other commits make impossible. Each attempt reads the newest version."""


class Outcome(IntEnum):
    """What became of marked letters. The values are versions of the application transaction."""

    APPENDED = 1
    """Their rows are in the table: the letters are to be deleted."""
    GIVEN_UP = 2
    """Their rows are not, and never will be under this number: the mark is to be cleared."""


class MarkedLetters(Protocol):
    """Letters of one topic that have the mark of one number, and the table that their rows go to."""

    def outcome(self) -> Outcome | None:
        """The number's outcome, as the table of the rows has it by now."""
        ...

    def decode(self) -> bool:
        """Whether all of the letters decode by today's settings."""
        ...

    def append(self) -> int:
        """Commit the outcome `APPENDED` with the rows, unless there is an outcome; number of rows.

        0: another commit came first.
        """
        ...

    def give_up(self) -> None:
        """Commit the outcome `GIVEN_UP`, unless there is an outcome, or another commit comes first."""
        ...

    def delete(self) -> None:
        """Delete the letters."""
        ...

    def clear(self) -> None:
        """Take the mark off the letters."""
        ...


def finish(letters: MarkedLetters, table: str) -> int:
    """Bring marked letters to their end; number of rows that this has appended.

    Raises:
        TableError: other commits came first at each attempt.
    """
    rows = 0
    for _ in range(ATTEMPTS):
        outcome = letters.outcome()
        if outcome is Outcome.APPENDED:
            letters.delete()
            return rows
        if outcome is Outcome.GIVEN_UP:
            letters.clear()
            return 0
        if letters.decode():
            rows = letters.append()
        else:
            letters.give_up()
    raise another_redrive(table)


def another_redrive(table: str) -> TableError:
    """Return the error of a redrive that others kept from going on."""
    return TableError(
        f"the table {table} was changed by others at each of {ATTEMPTS} attempts: another redrive is running. Run this "
        "one again when the other one has ended. No letter is lost"
    )
