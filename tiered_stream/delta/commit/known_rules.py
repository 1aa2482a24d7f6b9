"""Cache of table rules in the planner of a query for many tables.

When a micro-batch has rows for a table for the first time, the planner looks up the rules in the table's log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import orjson

from tiered_stream.delta.requirements.lane import TableDescription, table_rules
from tiered_stream.delta.schema.routing import TableTarget
from tiered_stream.errors import TableError
from tiered_stream.formats.rows.table_rules import RowRules, TableRules, UncertainCheckError, certain_rules

_OPENED_AT_ONCE = 16


class KnownRules:
    """Cache of table rules (NOT NULL, CHECK constraints, lengths of texts), by which tasks check rows."""

    def __init__(self) -> None:
        self._known: dict[str, TableRules] = {}

    def of(self, targets: Iterable[TableTarget]) -> Mapping[str, TableRules]:
        """Return the rules of the tables `targets` by table key; a table without rules is left out.

        A table that does not exist yet has the rules with which it will be created. A table is also left out if it
        cannot be opened, or if tasks cannot check its rules. The driver then commits to the table only if the table has
        no rules. Tables for dead letters are left out, too. If deltalake is not installed, no table is looked up.
        """
        with_rows = {target.key: target for target in targets if target.rows is not None}
        missing = [target for key, target in with_rows.items() if key not in self._known]
        if missing and find_spec("deltalake"):
            with ThreadPoolExecutor(_OPENED_AT_ONCE, "table-rules") as threads:
                rules_of_targets = zip(missing, threads.map(_look_up, missing), strict=True)
            self._known |= {target.key: rules for target, rules in rules_of_targets if rules is not None}
        return {key: self._known[key] for key in with_rows if self._known.get(key)}


def _look_up(target: TableTarget) -> TableRules | None:
    """Return the table's rules, or the rules with which a missing table will be created.

    None: the table cannot be opened, or tasks cannot check its rules, or the table is missing and will have no rules.
    """
    from tiered_stream.delta.commit.deltalake_commit import describe, open_table

    assert target.rows
    try:
        table = open_table(target.files)
        description = describe(table) if table else TableDescription(tuple(target.schema.jsonValue()["fields"]))
        rules = table_rules(description)
        if target.files.keys:  # Delta itself checks the other rules when it merges rows
            rules = certain_rules(rules, target.rows.written)
        if table is None and not rules:
            return None
        RowRules(rules, target.rows.written)
    except (TableError, UncertainCheckError):
        return None
    return rules if set(rules.not_null) <= set(target.rows.written.names) else None


def rules_text(rules: TableRules) -> str:
    """Return the rules as JSON text, or an empty text if there are no rules.

    The driver compares this text with the text in a file's description (`DataFile.rules`).
    """
    return orjson.dumps(rules).decode() if rules else ""
