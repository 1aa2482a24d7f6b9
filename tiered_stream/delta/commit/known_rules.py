"""Rules of tables in a query for many tables: its planner looks each table up once, when the table is to get rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import orjson

from tiered_stream.delta.requirements.lane import TableDescription, table_rules
from tiered_stream.delta.schema.routing import TableTarget
from tiered_stream.errors import TableError
from tiered_stream.formats.rows.table_rules import RowRules, TableRules, UncertainCheckError

_OPENED_AT_ONCE = 16


class KnownRules:
    """Cache of tables' rules (NOT NULL, CHECK constraints, lengths of texts), by which tasks check rows."""

    def __init__(self) -> None:
        self._known: dict[str, TableRules] = {}

    def of(self, targets: Iterable[TableTarget]) -> Mapping[str, TableRules]:
        """Return the rules of the tables `targets` by table key, without tables that have no rules.

        A table that does not exist yet counts with the rules that it will be created with. A table that cannot be
        opened, or that has rules which tasks cannot check, is left out, and the driver refuses its commit.
        """
        with_rows = {target.key: target for target in targets if target.rows is not None}
        missing = [target for key, target in with_rows.items() if key not in self._known]
        if missing and find_spec("deltalake"):
            with ThreadPoolExecutor(_OPENED_AT_ONCE, "table-rules") as threads:
                rules_of_targets = zip(missing, threads.map(_look_up, missing), strict=True)
            self._known |= {target.key: rules for target, rules in rules_of_targets if rules is not None}
        return {key: self._known[key] for key in with_rows if self._known.get(key)}


def _look_up(target: TableTarget) -> TableRules | None:
    """Look up the table's rules; for a missing table, the rules that it will be created with.

    None: the table cannot be opened, tasks cannot check its rules, or a missing table will have none.
    """
    from tiered_stream.delta.commit.deltalake_commit import describe, open_table

    assert target.rows
    try:
        table = open_table(target.files)
        description = describe(table) if table else TableDescription(tuple(target.schema.jsonValue()["fields"]))
        rules = table_rules(description)
        if table is None and not rules:
            return None
        RowRules(rules, target.rows.written)
    except (TableError, UncertainCheckError):
        return None
    return rules if set(rules.not_null) <= set(target.rows.written.names) else None


def rules_text(rules: TableRules) -> str:
    """Return rules as JSON text, by which the driver compares files with tables; an empty text if there are none."""
    return orjson.dumps(rules).decode() if rules else ""
