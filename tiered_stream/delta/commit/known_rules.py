"""Cache of table rules in the planner of a query for many tables.

When a micro-batch has rows for a table for the first time, the planner looks up the rules in the table's log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

import orjson

from tiered_stream.delta.requirements.lane import TableDescription, table_rules
from tiered_stream.delta.requirements.merge_requirements import merged_fields, rules_before_merge
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.errors import TableError
from tiered_stream.formats.rows.table_rules import RowRules, TableRules, UncertainCheckError

_OPENED_AT_ONCE = 16


class KnownRules:
    """Cache of table rules (NOT NULL, CHECK constraints, lengths of texts), by which tasks check rows.

    `fields` has, by table key, the columns that a MERGE sets in the tables of the latest state that were looked up, in
    Spark's JSON.
    """

    def __init__(self) -> None:
        self._known: dict[str, TableRules] = {}
        self.fields: dict[str, Sequence[Mapping[str, Any]]] = {}

    def of(self, targets: Iterable[TableSpec]) -> Mapping[str, TableRules]:
        """Return the rules of the tables `targets` by table key; a table without rules is left out.

        A table that does not exist yet has the rules with which it will be created. A table is also left out if it
        cannot be opened, or if tasks cannot check its rules. The driver then commits to the table only if the table has
        no rules that tasks must check. Tables for dead letters are left out, too. If deltalake is not installed, no
        table is looked up.
        """
        with_rows = {target.key: target for target in targets if target.row_format is not None}
        missing = [target for key, target in with_rows.items() if key not in self._known]
        if missing and find_spec("deltalake"):
            with ThreadPoolExecutor(_OPENED_AT_ONCE, "table-rules") as threads:
                found = zip(missing, threads.map(_look_up, missing), strict=True)
            for target, (rules, fields) in found:
                if rules is not None:
                    self._known[target.key] = rules
                if target.keys:
                    self.fields[target.key] = fields
        return {key: self._known[key] for key in with_rows if self._known.get(key)}

    def forget(self, keys: Iterable[str]) -> None:
        """Forget the rules of the tables `keys`, so that the next call of `of` looks them up again.

        Call this method for parked tables (tables that could not be written), because their rules may have changed.
        """
        for key in keys:
            self._known.pop(key, None)


def _look_up(spec: TableSpec) -> tuple[TableRules | None, Sequence[Mapping[str, Any]]]:
    """Return the rules of a table, or the rules with which a missing table will be created, and `KnownRules.fields`.

    None: the table cannot be opened, or tasks cannot check its rules, or the table is missing and will have no rules.
    """
    from tiered_stream.delta.commit.deltalake_commit import describe, open_table

    assert spec.row_format
    fields: Sequence[Mapping[str, Any]] = ()
    try:
        table = open_table(spec)
        description = describe(table) if table else TableDescription(tuple(spec.schema.jsonValue()["fields"]))
        fields = merged_fields(description, spec.own_columns)
        if spec.keys:
            rules = rules_before_merge(description, spec.row_format, spec)
        else:
            rules = table_rules(description)
            RowRules(rules, spec.row_format.written)
            if not set(rules.not_null) <= set(spec.row_format.written.names):
                return None, fields
    except (TableError, UncertainCheckError):
        return None, fields
    return None if table is None and not rules else rules, fields


def rules_text(rules: TableRules) -> str:
    """Return the rules as JSON text, or an empty text if there are no rules.

    The driver compares this text with the text in a file's description (`DataFile.rules`).
    """
    return orjson.dumps(rules).decode() if rules else ""
