"""Numbers of rows and dead letters that micro-batches have committed, by table, for log lines, metrics and sums.

The function that commits a micro-batch runs in the driver's Python process, as do the reports on the micro-batch. So
the counts go through this module, and not through Spark.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from functools import reduce
from math import inf
from operator import add

from cachetools import LRUCache

from tiered_stream.observe.read_metrics import MicroBatchId

log = logging.getLogger(__name__)

_TABLES, _MICRO_BATCHES = 1 << 18, 1024
"""Maximum number of tables of all remembered micro-batches together, and maximum number of micro-batches."""
_NAMED = 5
"""Maximum number of tables with dead letters that one line of `describe_rows` names."""
_committed: LRUCache[MicroBatchId, tuple[float, tuple[LandedRows, ...]]] = LRUCache(
    _TABLES, lambda noted: min(_TABLES, max(_TABLES // _MICRO_BATCHES, len(noted[1])))
)
"""Rows that each micro-batch has committed, with the time (`time.monotonic`) of the call of `note_landed`."""
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class ChangedKeys:
    """Numbers of keys whose rows were inserted, updated or deleted in a table with one row for each key.

    The setting `ingest.mode=upsert` makes such tables.
    """

    inserted: int
    updated: int
    deleted: int

    def __str__(self) -> str:
        return f"{self.inserted:,} keys inserted, {self.updated:,} updated, {self.deleted:,} deleted"


@dataclass(frozen=True, slots=True)
class LandedRows:
    """Number of rows that were committed to `table`, and of dead letters whose records were meant for this table.

    `dead_letter_table` is the table that got the dead letters; empty if there are none. `keys` has the numbers of
    changed keys if the table has one row for each key (`ingest.mode=upsert`); their sum is `rows`. Otherwise, or if the
    numbers are unknown, it is None.
    """

    table: str
    rows: int
    dead_letters: int = 0
    dead_letter_table: str = ""
    keys: ChangedKeys | None = None


def note_landed(micro_batch: MicroBatchId, tables: Iterable[LandedRows]) -> None:
    """Remember the numbers of rows and dead letters that a micro-batch has committed; log a warning of dead letters.

    `landed_in` and `landed_after` return these numbers. The last 1,024 micro-batches are remembered, or fewer if they
    have more than 256 tables each.
    """
    landed = summed(tables)
    with _lock:
        _committed[micro_batch] = time.monotonic(), landed
    if any(table.dead_letters for table in landed):
        query_id, batch_id = micro_batch
        log.warning("micro-batch %d of query %s: %s", batch_id, query_id, describe_rows(None, landed))


def landed_in(micro_batch: MicroBatchId) -> tuple[LandedRows, ...] | None:
    """Return the numbers of rows and dead letters that the micro-batch has committed, one item for each table.

    None: the numbers are unknown, because Spark's own sink has committed the micro-batch.
    """
    with _lock:
        return _committed.get(micro_batch, (0.0, None))[1]


def landed_after(micro_batch: MicroBatchId, since: float, before: float = inf) -> tuple[LandedRows, ...]:
    """Return the numbers of rows that later micro-batches of the same query have committed, summed up by table.

    A later micro-batch counts even if it failed after its commit.

    Args:
        since: time (`time.monotonic`) of the query's start; micro-batches that were noted earlier do not count.
        before: batch id of the first micro-batch that does not count any more.
    """
    query_id, batch_id = micro_batch
    with _lock:
        later = [
            landed
            for (query, batch), (noted, landed) in _committed.items()
            if query == query_id and batch_id < batch < before and noted >= since
        ]
    return summed(table for landed in later for table in landed)


def summed(tables: Iterable[LandedRows]) -> tuple[LandedRows, ...]:
    """Return one item for each pair of a table and its table for dead letters, with the sums of their counts."""
    rows: Counter[str] = Counter()
    keys: dict[str, ChangedKeys] = {}
    dead: dict[str, Counter[str]] = {}
    for landed in tables:
        rows[landed.table] += landed.rows
        if landed.keys is not None:
            keys[landed.table] = _added(keys.get(landed.table), landed.keys)
        by_place = dead.setdefault(landed.table, Counter())
        if landed.dead_letters:
            by_place[landed.dead_letter_table] += landed.dead_letters
    return tuple(
        LandedRows(table, 0 if number else rows[table], count, place, None if number else keys.get(table))
        for table, by_place in dead.items()
        for number, (place, count) in enumerate(by_place.items() or [("", 0)])
    )


def _added(left: ChangedKeys | None, right: ChangedKeys) -> ChangedKeys:
    return ChangedKeys(*map(add, astuple(left), astuple(right))) if left else right


def describe_rows(records: int | None, tables: Sequence[LandedRows] | None) -> str:
    """Format the number of records that were read, of rows that were landed, and of dead letters with their tables.

    If each record became a row of one table, the text has only one number. Tables of the latest state have numbers of
    keys in place of rows.

    Args:
        records: number of records that were read. If it is None, the text leaves it out.
        tables: rows and dead letters that were committed, or None if they are unknown.
    """
    if tables is None:
        return f"{records or 0:,} rows"
    keys = reduce(_added, (table.keys for table in tables if table.keys is not None), None)
    rows, names = sum(table.rows for table in tables if table.keys is None), {table.table for table in tables}
    where = f" in {len(names):,} tables" if len(names) > 1 else ""
    dead = [table for table in tables if table.dead_letters]
    if rows == records and not dead and keys is None:
        return f"{rows:,} rows{where}"
    texts = [] if records is None else [f"{records:,} rows read"]
    if keys is None or rows:
        texts.append(f"{rows:,} rows landed")
    if keys is not None:
        texts.append(str(keys))
    texts[-1] += where
    for table in dead[:_NAMED]:
        letters = f"{table.dead_letters:,} dead letter{'s' if table.dead_letters > 1 else ''}"
        of_table = f" of {table.table}" if len(names) > 1 else ""
        texts.append(f"{letters}{of_table} in {table.dead_letter_table}")
    if len(dead) > _NAMED:
        rest = sum(table.dead_letters for table in dead[_NAMED:])
        texts.append(f"{rest:,} dead letters of {len(dead) - _NAMED:,} more tables")
    return ", ".join(texts)
