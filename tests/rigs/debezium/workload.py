"""Random transactions on the tables, and a model of the rows that they leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from tests.rigs.debezium.tables import LARGE, Key, Kind, Row, Table

NULLS = 0.15
"""Share of values that are null, of columns that may be null."""
ROLLED_BACK = 0.05
"""Share of transactions that are rolled back."""
MOST_STATEMENTS = 8
"""Of a transaction, at most."""
MOST_ROWS = 300
"""Number of rows from which on a table gets no more of them, so that keys are used again."""


class Workload:
    """Transactions that depend on the seed alone.

    `rows` has the rows of each table after the transactions so far, by table and key.
    """

    def __init__(self, tables: Sequence[Table], seed: int) -> None:
        self.rows: dict[str, dict[Key, Row]] = {table.name: {} for table in tables}
        self.changes: Counter[str] = Counter()
        """Number of changes by their kind, of transactions that were committed."""
        self._tables, self._random = tables, Random(seed)
        self._used: dict[str, list[Key]] = {table.name: [] for table in tables}
        self._kinds: dict[str, tuple[int, Callable[[Table], str]]] = {
            "insert": (35, self._insert),
            "update": (30, self._update),
            "update of one column": (15, self._update_one),
            "update that changes nothing": (3, self._update_nothing),
            "delete": (12, self._delete),
            "key change": (8, self._change_key),
            "delete and insert": (4, self._replace),
        }

    def transaction(self) -> str:
        """Return the statements of the next transaction, and let the model do the same."""
        before = {name: dict(rows) for name, rows in self.rows.items()}
        changes: Counter[str] = Counter()
        statements = []
        for _ in range(self._random.randint(1, MOST_STATEMENTS)):
            table = self._random.choice(self._tables)
            name = self._draw_kind(len(self.rows[table.name]))
            statements.append(self._kinds[name][1](table))
            changes[name] += 1
        if self._random.random() < ROLLED_BACK:
            self.rows = before
            return "\n".join(["BEGIN;", *statements, "ROLLBACK;"])
        self.changes += changes
        return "\n".join(["BEGIN;", *statements, "COMMIT;"])

    def _draw_kind(self, rows: int) -> str:
        if not rows:
            return "insert"
        (name,) = self._random.choices(list(self._kinds), [weight for weight, _ in self._kinds.values()])
        return "delete" if name == "insert" and rows >= MOST_ROWS else name

    def _insert(self, table: Table) -> str:
        return self._insert_row(table, self._new_key(table))

    def _insert_row(self, table: Table, key: Key) -> str:
        row = (*key, *self._values(table))
        self.rows[table.name][key] = row
        values = ", ".join(_literal(kind, value) for kind, value in zip(table.columns.values(), row, strict=True))
        return f"INSERT INTO {table.name} VALUES ({values});"

    def _update(self, table: Table) -> str:
        key = self._key(table)
        return self._set(table, key, dict(zip(table.shape.values, self._values(table), strict=True)))

    def _update_one(self, table: Table) -> str:
        name = self._random.choice(list(table.shape.values))
        return self._set(table, self._key(table), {name: self._value(table.shape.values[name])})

    def _update_nothing(self, table: Table) -> str:
        name = next(iter(table.shape.values))
        return f'UPDATE {table.name} SET "{name}" = "{name}" WHERE {_is(table, self._key(table))};'

    def _set(self, table: Table, key: Key, values: dict[str, object]) -> str:
        rows = self.rows[table.name]
        old = dict(zip(table.columns, rows[key], strict=True))
        rows[key] = tuple({**old, **values}.values())
        assigned = ", ".join(f'"{name}" = {_literal(table.columns[name], value)}' for name, value in values.items())
        return f"UPDATE {table.name} SET {assigned} WHERE {_is(table, key)};"

    def _delete(self, table: Table) -> str:
        key = self._key(table)
        del self.rows[table.name][key]
        return f"DELETE FROM {table.name} WHERE {_is(table, key)};"

    def _change_key(self, table: Table) -> str:
        key, new = self._key(table), self._new_key(table)
        rows = self.rows[table.name]
        values = dict(zip(table.shape.keys, new, strict=True))
        if not table.shape.whole_before:  # the new row would lack large values that the change leaves as they are
            values |= {name: self._value(kind) for name, kind in table.shape.values.items() if kind in LARGE}
        rows[new] = tuple({**dict(zip(table.columns, rows.pop(key), strict=True)), **values}.values())
        assigned = ", ".join(f'"{name}" = {_literal(table.columns[name], value)}' for name, value in values.items())
        return f"UPDATE {table.name} SET {assigned} WHERE {_is(table, key)};"

    def _replace(self, table: Table) -> str:
        key = self._key(table)
        return "\n".join([f"DELETE FROM {table.name} WHERE {_is(table, key)};", self._insert_row(table, key)])

    def _key(self, table: Table) -> Key:
        """Draw the key of a row that exists."""
        return self._random.choice(list(self.rows[table.name]))

    def _new_key(self, table: Table) -> Key:
        """Draw a key that no row has: every third time one that a row had before, if there is one."""
        rows, used = self.rows[table.name], self._used[table.name]
        if used and self._random.random() < 0.33 and (key := self._random.choice(used)) not in rows:
            return key
        while (key := tuple(kind.draw(self._random) for kind in table.shape.keys.values())) in rows:
            pass
        used.append(key)
        return key

    def _values(self, table: Table) -> list[object]:
        return [self._value(kind) for kind in table.shape.values.values()]

    def _value(self, kind: Kind) -> object:
        return None if self._random.random() < NULLS else kind.draw(self._random)


def _is(table: Table, key: Key) -> str:
    named = zip(table.shape.keys.items(), key, strict=True)
    return " AND ".join(f'"{name}" = {_literal(kind, value)}' for (name, kind), value in named)


def _literal(kind: Kind, value: object) -> str:
    if value is None:
        return "NULL"
    return f"{kind.literal(value)}::{kind.sql}"
