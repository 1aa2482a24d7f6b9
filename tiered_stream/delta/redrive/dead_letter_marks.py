"""Marks of redrives in a table for dead letters (numbers in its column `redrive`), and the protocol for the marks.

A redrive decodes dead letters again, and moves them into their tables as rows. It marks the dead letters before it
appends their rows. The comment below the imports describes all steps.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import IntEnum

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from tiered_stream.delta.catalog.address import TableAddress
from tiered_stream.delta.catalog.java_errors import JAVA_ERRORS, first_line, is_conflict, spark_errors
from tiered_stream.errors import TableError

# Protocol by which a redrive finishes marked dead letters while other redrives run or have crashed.
#
# 1. A redrive marks all dead letters in one commit, with a number (column `redrive`) that is never used again. Until
#    this number has an outcome, no further dead letter gets the number, and no marked dead letter loses it.
# 2. The number has its own application transaction in the table that gets the rows, and the version of this transaction
#    is the number's outcome. Delta accepts only one commit with this transaction. The commit either appends the rows,
#    or has no rows and gives the number up.
# 3. The outcome decides what happens to the marked dead letters: they are deleted if the rows were appended, or else
#    their column `redrive` becomes null again.
#
# Every redrive first does steps 2 and 3 for numbers that other redrives have left without them. So two redrives may try
# step 2 for the same number, and both may do step 3.

ATTEMPTS = 10
"""Maximum number of attempts at a change that conflicts with other commits; each attempt reads the newest version."""


class Outcome(IntEnum):
    """Outcome of the dead letters of one topic that a redrive has marked with one number (column `redrive`).

    Each number and topic has its own application transaction in the table that gets the rows. The value of the outcome
    is the version of that transaction.
    """

    APPENDED = 1
    """The rows of the dead letters are in the table, so the redrive deletes the dead letters next."""
    GIVEN_UP = 2
    """No commit for the number has appended the rows, and none can. So the redrive sets `redrive` to null next."""


@dataclass(frozen=True, slots=True)
class MarkedDeadLetters:
    """Functions for the dead letters of one topic with one number in their column `redrive`, and for their table."""

    outcome: Callable[[], Outcome | None]
    """Return the outcome of the number in the column `redrive`, or None if it has no outcome yet.

    The outcome is read from the newest version of the table that gets the rows.
    """
    decode: Callable[[], bool]
    """Return whether all dead letters with the number decode with the settings of this redrive."""
    append: Callable[[], int]
    """Append the rows to their table in a commit that gives the dead letters the outcome `APPENDED`.

    The result is the number of rows appended, or 0 if another commit came first. If the number in the column `redrive`
    already has an outcome, Delta skips the rows, but they count in the result.
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

    If a dead letter does not decode, or another redrive has given the dead letters up, set their column `redrive` to
    null instead. `table` is the name of the table that gets the rows, for the error.

    Returns:
        Number of rows that this call appended; 0 if another redrive had appended the rows before.

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


log = logging.getLogger(__name__)

_IDENTITY = {
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "stamped": "BIGINT",
    "key_hash": "STRING",
    "value_hash": "STRING",
    "target": "STRING",
    "query": "STRING",
    "batch": "BIGINT",
}
IDENTITY_NAMES = tuple(_IDENTITY)
IDENTITY_COLUMNS = ", ".join(f"{name} {kind}" for name, kind in _IDENTITY.items())
"""Names and types of the columns that `identity_columns` returns, as Spark DDL."""


def new_number() -> int:
    """Return a new random number of 62 bits with which a redrive marks dead letters (column `redrive`)."""
    return secrets.randbits(62)


def identity_columns(prefix: str = "") -> dict[str, Column]:
    """Return Spark columns, by name, that identify a dead letter.

    Two dead letters are copies if their values are equal in all these columns. Key and value are compared by their
    SHA-256 hashes. `prefix` is put before the name of each column of the table, such as `letter.` for a table alias.
    """
    made = {
        "stamped": sql.unix_micros(f"{prefix}timestamp"),
        "key_hash": sql.sha2(f"{prefix}key", 256),
        "value_hash": sql.sha2(f"{prefix}value", 256),
    }
    return {name: made.get(name, sql.col(f"{prefix}{name}")) for name in IDENTITY_NAMES}


class DeadLetterMarks:
    """Table for dead letters, in which redrives set and clear the column `redrive`, and delete dead letters by it."""

    def __init__(self, spark: SparkSession, address: TableAddress) -> None:
        self._spark = spark
        self._address = address

    def within(self, session: SparkSession) -> DeadLetterMarks:
        """Return an object for the same table that uses the session `session`."""
        return DeadLetterMarks(session, self._address)

    def dead_letters(self) -> DataFrame:
        """Return all dead letters in the table's newest version.

        Raises:
            TableError: the table cannot be read.
        """
        with self.reading():
            return self._table().toDF()

    def reading(self) -> AbstractContextManager[None]:
        """Return a context manager that turns errors of Spark in its block into a TableError that names this table."""
        return spark_errors(str(self._address), "read")

    def mark(self, ready: Callable[[], DataFrame]) -> None:
        """Set the column `redrive` of the dead letters that `ready` returns.

        Dead letters whose column `redrive` is not null when the change is committed are left unchanged. If another
        commit comes first, the change is tried again, with at most `ATTEMPTS` attempts in all.

        Args:
            ready: function that returns a row for each dead letter, with the columns of `identity_columns` and a column
                `number`, the new value of `redrive`. Each attempt calls the function again, and each call must return
                new numbers: the attempt before may have committed its numbers, and no dead letter may get a committed
                number later.
        """

        def change() -> None:
            same = sql.col("letter.redrive").isNull()
            for name, column in identity_columns("letter.").items():
                same &= column.eqNullSafe(sql.col(f"given.{name}"))
            table, to_mark = self._table(), ready().distinct().alias("given")
            matched = table.alias("letter").merge(to_mark, same)
            matched.whenMatchedUpdate(set={"redrive": "given.number"}).execute()

        self._commit(change)

    def clear(self, number: int, topic: str) -> None:
        """Set the column `redrive` to null in the topic's dead letters in which this column is `number`."""
        marked = (sql.col("redrive") == number) & (sql.col("topic") == topic)
        self._commit(lambda: self._table().update(marked, {"redrive": sql.lit(None).cast("BIGINT")}))

    def delete(self, number: int, topic: str) -> None:
        """Delete the topic's dead letters in which the column `redrive` is `number`."""
        # No SQL text, because the topic comes from the table and could contain any text.
        marked = (sql.col("redrive") == number) & (sql.col("topic") == topic)
        self._commit(lambda: self._table().delete(marked))

    def _commit(self, change: Callable[[], None]) -> None:
        with spark_errors(str(self._address), "changed"):
            for _ in range(ATTEMPTS):
                try:
                    return change()
                except JAVA_ERRORS as error:
                    if not is_conflict(error):
                        raise
                    log.info("%s: another commit came first, so the change is tried again: %s",
                             self._address, first_line(error))  # fmt: skip
        raise another_redrive(str(self._address))

    def _table(self) -> DeltaTable:
        return DeltaTable.forName(self._spark, self._address.sql_name)
