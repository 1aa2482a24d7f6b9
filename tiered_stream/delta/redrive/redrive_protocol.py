"""Protocol by which a redrive finishes marked dead letters while other redrives run or have crashed.

1. A redrive marks all dead letters in one commit, with a number (column `redrive`) that is never used again. Until
   this number has an outcome, no further dead letter gets the number, and no marked dead letter loses it.
2. The number has its own application transaction in the table that gets the rows, and the version of this transaction
   is the number's outcome. Delta accepts only one commit with this transaction. The commit either appends the rows, or
   has no rows and gives the number up.
3. The outcome decides what happens to the marked dead letters: they are deleted if the rows were appended, or else
   their column `redrive` becomes null again.

Every redrive first does steps 2 and 3 for numbers that other redrives have left without them. So two redrives may try
step 2 for the same number, and both may do step 3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from tiered_stream.errors import TableError

ATTEMPTS = 10
"""Maximum number of attempts at a change that conflicts with other commits; each attempt reads the newest version."""


class Outcome(IntEnum):
    """Outcome of all dead letters that are marked with one number.

    The value is the version of the number's application transaction in the table that gets the rows.
    """

    APPENDED = 1
    """The rows are in the table, so the dead letters are deleted next."""
    GIVEN_UP = 2
    """The rows were not appended, and no commit for this number can append them. Next, `redrive` becomes null."""


@dataclass(frozen=True, slots=True)
class MarkedDeadLetters:
    """Functions for the dead letters of one topic with one number in their column `redrive`, and for their table."""

    outcome: Callable[[], Outcome | None]
    """Return the outcome of the number in the column `redrive`; None: it has no outcome yet.

    The outcome is read from the newest version of the table that gets the rows.
    """
    decode: Callable[[], bool]
    """Return whether all of the dead letters decode with the settings of this redrive."""
    append: Callable[[], int]
    """Append the rows to their table in a commit that gives the dead letters the outcome `APPENDED`.

    Nothing is appended if the number in their column `redrive` already has an outcome. The result is the number of rows
    appended; 0 if another commit came first.
    """
    give_up: Callable[[], None]
    """Commit the outcome `GIVEN_UP` to the table that would get the rows.

    Do nothing if the number in the column `redrive` already has an outcome, or if another commit comes first.
    """
    delete: Callable[[], None]
    """Delete the dead letters from the table for dead letters."""
    clear: Callable[[], None]
    """Set the column `redrive` of the dead letters to null."""


def finish(dead_letters: MarkedDeadLetters, table: str) -> int:
    """Append the rows of marked dead letters to their table, and delete the dead letters, if all of them decode.

    If some of them do not decode, or another redrive has given them up, set their column `redrive` to null instead.
    `table` is the name of the table that gets the rows, for the error.

    Returns:
        Number of rows that this call appended; 0 if another redrive appended the rows.

    Raises:
        TableError: other commits came first at each attempt.
    """
    rows = 0
    for _ in range(ATTEMPTS):
        outcome = dead_letters.outcome()
        if outcome is Outcome.APPENDED:
            dead_letters.delete()
            return rows
        if outcome is Outcome.GIVEN_UP:
            dead_letters.clear()
            return 0
        if dead_letters.decode():
            rows = dead_letters.append()
        else:
            dead_letters.give_up()
    raise another_redrive(table)


def another_redrive(table: str) -> TableError:
    """Return the error for a change to `table` that failed because other commits came first at all `ATTEMPTS` attempts.

    Any writer may have made the other commits. The message assumes that it was another redrive.
    """
    return TableError(
        f"the table {table} was changed by others at each of {ATTEMPTS} attempts: another redrive is running. Run this "
        "one again when the other one has ended. No letter is lost"
    )
