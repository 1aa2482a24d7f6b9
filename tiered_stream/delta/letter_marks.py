"""Marks of redrives in a table for dead letters.

A redrive marks the letters that it brings into a table with a number: see `redrive_protocol.py`.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from hashlib import sha256

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from tiered_stream.delta.address import TableAddress
from tiered_stream.delta.java_errors import JAVA_ERRORS, first_line, is_conflict, spark_errors
from tiered_stream.delta.redrive_protocol import ATTEMPTS, another_redrive

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
"""Columns of `identity`, as DDL."""
_RECORD = ("topic", "partition", "offset", "timestamp", "key", "value")
_ORIGIN = {"target": "STRING", "query": "STRING", "batch": "BIGINT"}
"""Columns that tables of earlier versions lack."""
_LOWEST_DRAWN = 1 << 61
"""Earlier versions marked letters with the version of the table, which is always below this number."""
_RANDOM_BITS, _OWNER_BITS = 41, 20


def new_number(table_key: str) -> int:
    """Draw a number of 62 bits for letters whose rows go to this table (`TableTarget.key`).

    The lowest bits are a hash of the key. A letter of an earlier version does not name its table: without them, another
    job with the same topic would take the marked letters for its own.
    """
    return _LOWEST_DRAWN | secrets.randbits(_RANDOM_BITS) << _OWNER_BITS | _owner(table_key)


def is_number_of(number: int, table_key: str) -> bool:
    """Return whether a redrive into this table may have drawn the number."""
    return is_version(number) or number % (1 << _OWNER_BITS) == _owner(table_key)


def is_version(number: int) -> bool:
    """Return whether an earlier version has set the mark."""
    return number < _LOWEST_DRAWN


def _owner(table_key: str) -> int:
    return int.from_bytes(sha256(table_key.encode()).digest()[:4], "big") % (1 << _OWNER_BITS)


def identity(letter: str = "") -> dict[str, Column]:
    """Return what tells a letter from all others; letters that are equal in it are copies. `letter` is a prefix."""
    column = {each: sql.col(f"{letter}{each}") for each in (*_RECORD, *_ORIGIN)}
    return {
        **{each: column[each] for each in ("topic", "partition", "offset")},
        "stamped": sql.unix_micros(column["timestamp"]),
        "key_hash": sql.sha2(column["key"], 256),
        "value_hash": sql.sha2(column["value"], 256),
        **{each: column[each] for each in _ORIGIN},
    }


class LetterMarks:
    """The table for dead letters, as redrives change it."""

    def __init__(self, spark: SparkSession, address: TableAddress) -> None:
        self._spark = spark
        self._address = address

    def letters(self) -> DataFrame:
        """All letters, from the table's newest version. Columns that the table lacks are null."""
        with spark_errors(str(self._address), "read"):
            letters = self._table().toDF()
        missing = {name: sql.lit(None).cast(kind) for name, kind in _ORIGIN.items() if name not in letters.columns}
        return letters.withColumns(missing) if missing else letters

    def mark(self, ready: Callable[[], DataFrame]) -> None:
        """Mark the letters that `ready` gives as `identity` with the `number` of each, unless they are marked by now.

        Each attempt asks `ready` anew, for new numbers: an attempt that has failed may have committed nevertheless, and
        letters must not come to a number later.

        Raises:
            TableError: Spark cannot change the table, or other commits came first each time.
        """

        def change() -> None:
            table = self._table()
            columns = table.toDF().columns
            same = sql.col("letter.redrive").isNull()
            for name, column in identity("letter.").items():
                if name not in _ORIGIN or name in columns:
                    same &= column.eqNullSafe(sql.col(f"given.{name}"))
            given = ready().distinct().alias("given")
            matched = table.alias("letter").merge(given, same)
            matched.whenMatchedUpdate(set={"redrive": "given.number"}).execute()

        self._commit(change)

    def clear(self, number: int, topic: str) -> None:
        """Take the mark off the topic's letters. Raises: as `mark`."""
        marked = (sql.col("redrive") == number) & (sql.col("topic") == topic)
        self._commit(lambda: self._table().update(marked, {"redrive": sql.lit(None).cast("BIGINT")}))

    def delete(self, number: int, topic: str) -> None:
        """Delete the topic's letters that have the mark. Raises: as `mark`."""
        # Not by a statement: a topic is whatever somebody has written into the table.
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
