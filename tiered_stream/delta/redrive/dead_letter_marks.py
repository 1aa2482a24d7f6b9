"""Marks of redrives in a table for dead letters.

A redrive marks the dead letters that it brings into a table with a number; `redrive_protocol.py` describes how.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from hashlib import sha256

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from tiered_stream.delta.catalog.address import TableAddress
from tiered_stream.delta.catalog.java_errors import JAVA_ERRORS, first_line, is_conflict, spark_errors
from tiered_stream.delta.redrive.redrive_protocol import ATTEMPTS, another_redrive

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
"""Columns of `identity_columns`, as Spark DDL."""
_RECORD = ("topic", "partition", "offset", "timestamp", "key", "value")
_ORIGIN = {"target": "STRING", "query": "STRING", "batch": "BIGINT"}
"""Columns that dead-letter tables of earlier versions lack, with their types."""
_LOWEST_DRAWN = 1 << 61
"""Lowest number that a redrive draws; earlier versions marked dead letters with a table version, which is lower."""
_RANDOM_BITS, _OWNER_BITS = 41, 20


def new_number(table_key: str) -> int:
    """Draw a random mark of 62 bits for a redrive into the table with this key (`TableTarget.key`).

    The lowest bits are a hash of the key. A dead letter from an earlier version does not name its table. Without the
    hash, another job with the same topic would treat the marked dead letters as its own.
    """
    return _LOWEST_DRAWN | secrets.randbits(_RANDOM_BITS) << _OWNER_BITS | _owner(table_key)


def is_number_of(number: int, table_key: str) -> bool:
    """Return whether a mark may come from a redrive into the table with this key: by the hash in it, or by its age."""
    return is_version(number) or number % (1 << _OWNER_BITS) == _owner(table_key)


def is_version(number: int) -> bool:
    """Return whether a mark is a table version, which earlier versions of this package set as the mark."""
    return number < _LOWEST_DRAWN


def _owner(table_key: str) -> int:
    return int.from_bytes(sha256(table_key.encode()).digest()[:4], "big") % (1 << _OWNER_BITS)


def identity_columns(prefix: str = "") -> dict[str, Column]:
    """Return the columns that identify a dead letter; two dead letters with the same values are copies.

    `prefix` goes before the names of the columns that are read, such as `letter.`.
    """
    column = {name: sql.col(f"{prefix}{name}") for name in (*_RECORD, *_ORIGIN)}
    return {
        **{name: column[name] for name in ("topic", "partition", "offset")},
        "stamped": sql.unix_micros(column["timestamp"]),
        "key_hash": sql.sha2(column["key"], 256),
        "value_hash": sql.sha2(column["value"], 256),
        **{name: column[name] for name in _ORIGIN},
    }


class DeadLetterMarks:
    """Table for dead letters, in which redrives set and clear marks and delete marked dead letters."""

    def __init__(self, spark: SparkSession, address: TableAddress) -> None:
        self._spark = spark
        self._address = address

    def dead_letters(self) -> DataFrame:
        """Return all dead letters from the table's newest version, with nulls for columns that the table lacks.

        Raises:
            TableError: the table cannot be read.
        """
        with spark_errors(str(self._address), "read"):
            dead_letters = self._table().toDF()
        missing = {name: sql.lit(None).cast(kind) for name, kind in _ORIGIN.items() if name not in dead_letters.columns}
        return dead_letters.withColumns(missing) if missing else dead_letters

    def mark(self, ready: Callable[[], DataFrame]) -> None:
        """Mark dead letters with numbers, unless they are marked by now.

        `ready` returns the dead letters, with the columns of `identity_columns` and a `number`. Each attempt calls it
        again for new numbers. A failed attempt may have committed nevertheless, and no dead letter may join a number
        later.

        Raises:
            TableError: Spark cannot change the table, or other commits came first each time.
        """

        def change() -> None:
            table = self._table()
            columns = table.toDF().columns
            same = sql.col("letter.redrive").isNull()
            for name, column in identity_columns("letter.").items():
                if name not in _ORIGIN or name in columns:
                    same &= column.eqNullSafe(sql.col(f"given.{name}"))
            to_mark = ready().distinct().alias("given")
            matched = table.alias("letter").merge(to_mark, same)
            matched.whenMatchedUpdate(set={"redrive": "given.number"}).execute()

        self._commit(change)

    def clear(self, number: int, topic: str) -> None:
        """Clear the mark `number` of the topic's dead letters.

        Raises:
            TableError: Spark cannot change the table, or other commits came first each time.
        """
        marked = (sql.col("redrive") == number) & (sql.col("topic") == topic)
        self._commit(lambda: self._table().update(marked, {"redrive": sql.lit(None).cast("BIGINT")}))

    def delete(self, number: int, topic: str) -> None:
        """Delete the topic's dead letters that have the mark `number`.

        Raises:
            TableError: Spark cannot change the table, or other commits came first each time.
        """
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
