"""`ingest.where` and `ingest.select` on batches of decoded rows, by Arrow's compute functions, in the task."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.rows.kafka_columns import OFFSET, TIMESTAMP, find_column, held_column, hidden, table_columns
from tiered_stream.formats.rows.sql_query import COLUMN, SqlQuery
from tiered_stream.formats.sql.bound import Columns, bind
from tiered_stream.formats.sql.sql_values import BOOLEAN, NULL, Bound, as_array, sql_name

SELECT_SETTING, WHERE_SETTING = "ingest.select", "ingest.where"


class RowQuery:
    """Parsed `ingest.select` and `ingest.where`, bound to the columns of decoded rows.

    Args:
        query: the parsed settings.
        decoded: columns of decoded rows, without hidden columns.
        zone: the session's time zone.

    Raises:
        ConfigurationError: a column is unknown, the list does not have an expression for its types, or a column of the
            result has no type or the name of another.
    """

    def __init__(self, query: SqlQuery, decoded: pa.Schema, zone: str) -> None:
        columns = Columns(decoded, zone)
        self._where: Bound | None = None
        if query.where is not None:
            self._where = bind(WHERE_SETTING, query.where_text, query.where, columns)
            if self._where.kind not in (BOOLEAN, NULL):
                raise ConfigurationError(
                    f"{WHERE_SETTING} is {query.where_text!r:.300}, which is {sql_name(self._where.kind)}: it must be "
                    "BOOLEAN"
                )
        self._items: list[tuple[str, Bound | None, str | None]] = []
        """Name, expression, and name of the column if the expression is a column alone; all are None for `*`."""
        for item in query.select:
            if item.tree is None:
                self._items.append(("", None, None))
                continue
            bound = bind(SELECT_SETTING, item.text, item.tree, columns)
            if bound.kind == NULL:
                raise ConfigurationError(
                    f"{SELECT_SETTING} has {item.text!r:.300} without a type: write CAST(NULL AS …)"
                )
            own = columns.find(item.tree.text).name if item.tree.op == COLUMN else None
            self._items.append((item.name, bound, own))
        self.output = self._output(decoded)
        """Columns of the result."""

    def _output(self, decoded: pa.Schema) -> pa.Schema:
        if not self._items:
            return decoded
        fields: list[pa.Field] = []
        for name, bound, _ in self._items:
            fields += list(decoded) if bound is None else [pa.field(name, bound.kind)]
        names = [field.name.lower() for field in fields]
        for name in names:
            if names.count(name) > 1:
                raise ConfigurationError(f"{SELECT_SETTING} gives two columns {name!r:.100}: rename one by AS")
        return pa.schema([pa.field(field.name, field.type) for field in fields])

    def apply(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that meet the condition, with the selected columns and hidden columns for the position."""
        if self._where is not None:
            meets = as_array(self._where.values(rows), rows.num_rows)
            if meets.type == NULL:
                return self._selected(rows.slice(0, 0))
            meets = pc.coalesce(meets, pa.scalar(False))
            if meets.false_count:
                rows = rows.filter(meets)
        return self._selected(rows)

    def _selected(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if not self._items:
            return rows
        shown = len(table_columns(rows.schema))
        fields: list[pa.Field] = []
        columns: list[pa.Array] = []
        held: set[str | None] = set()

        def add(name: str, field: pa.Field, column: pa.Array) -> None:
            metadata = None if held_column(field) in held else field.metadata
            held.add(held_column(field))
            fields.append(pa.field(name, column.type, metadata=metadata))
            columns.append(column)

        for name, bound, own in self._items:
            if bound is None:
                for field, column in zip(list(rows.schema)[:shown], rows.columns, strict=False):
                    add(field.name, field, column)
            elif own is not None:
                add(name, rows.schema.field(own), rows.column(own))
            else:
                add(name, pa.field(name, bound.kind), as_array(bound.values(rows), rows.num_rows))
        for name in (OFFSET, TIMESTAMP):
            if name not in held:
                column = rows.column(find_column(rows.schema, name))
                fields.append(hidden(name, column.type))
                columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, rows.schema.metadata))
