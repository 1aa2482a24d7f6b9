"""Steps from decoded rows to a table's rows: numbers to times, conditions and select lists, and a user's function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.errors import ConfigurationError, TableError
from tiered_stream.formats.rows import kafka_columns as kafka
from tiered_stream.formats.sql.bound import Columns, bind, bind_condition, filtered
from tiered_stream.formats.sql.parser import COLUMN, SelectItem, SqlQuery
from tiered_stream.formats.sql.sql_reader import NULL
from tiered_stream.formats.sql.sql_values import Bound, as_array

DAYS = "days"
FACTORS = {"seconds": 1_000_000, "millis": 1000, "micros": 1}
"""Number of microseconds in each unit of time."""
Times = Sequence[tuple[str, str]]
"""Columns of numbers that count time since 1970, each as (name, unit). Units are the keys of `FACTORS`, and `DAYS`."""
_Column = tuple[pa.Field, pa.Array]


def with_time_types(kind: pa.StructType, times: Times) -> pa.StructType:
    """Return the type of the rows that `with_times` returns for rows of the type `kind`.

    The columns in `times` become DATE if the unit is `days`, and otherwise TIMESTAMP.

    Raises:
        ConfigurationError: `kind` lacks a column in `times`, or the column's type is not a whole number.
    """
    fields = list(kind)
    for name, unit in times:
        at = kind.get_field_index(name)
        if at < 0 or not pa.types.is_integer(kind.field(at).type):
            shown = f"which is {kind.field(at).type}" if at >= 0 else "which the rows lack"
            raise ConfigurationError(
                f"no time can be made of {name}, {shown}: name columns of the value whose type in the schema is INT or "
                "BIGINT"
            )
        fields[at] = pa.field(name, pa.date32() if unit == DAYS else pa.timestamp("us", tz="UTC"))
    return pa.struct(fields)


def with_times(column: pa.StructArray, times: Times) -> tuple[pa.StructArray, dict[int, str]]:
    """Convert the numbers in the columns `times` to dates and timestamps; return the rows, and reasons by row index.

    If a number is beyond the range of its column's new type, the date or timestamp is null, and the row has a reason.
    """
    reasons: dict[int, str] = {}
    arrays = [pc.struct_field(column, [number]) for number in range(column.type.num_fields)]
    kind = with_time_types(column.type, times)
    for name, unit in times:
        at = kind.get_field_index(name)
        numbers = arrays[at].cast(pa.int64())
        factor = FACTORS.get(unit, 1)
        limit = (1 << 31) - 1 if unit == DAYS else ((1 << 63) - 1) // factor
        fits = pc.and_(pc.less_equal(numbers, limit), pc.greater_equal(numbers, -limit))
        for row in pc.indices_nonzero(pc.invert(fits)).to_pylist():
            reasons.setdefault(row, f"{name}: the number is no {unit} since 1970 that a {kind.field(at).type} can hold")
        kept = pc.if_else(fits, numbers, None)
        if unit == DAYS:
            arrays[at] = kept.cast(pa.int32()).cast(pa.date32())
        else:
            arrays[at] = pc.multiply(kept, factor).cast(kind.field(at).type)
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=column.is_null()), reasons


class RowQuery:
    """Parsed select list and condition, bound to the columns of decoded rows.

    Args:
        query: the parsed SQL.
        decoded: columns of decoded rows, without hidden columns.
        zone: the session's time zone.

    Raises:
        ConfigurationError: a column is unknown, or an operation does not support the types of its arguments. Or a
            column of the result has no type, or has the same name as another one.
    """

    def __init__(self, query: SqlQuery, decoded: pa.Schema, zone: str) -> None:
        columns = Columns(decoded, zone)
        self._where: Bound | None = None
        if query.where is not None:
            self._where = bind_condition(query.where_text, query.where, columns)
        self._items = [_bound_item(item, columns) for item in query.select]
        self.output = decoded
        """Columns of the result."""
        if self._items:
            selected = self._columns(pa.RecordBatch.from_pylist([], decoded))
            self.output = pa.schema([(field.name, column.type) for field, column in selected])
            names = [name.lower() for name in self.output.names]
            if clash := [name for name in names if names.count(name) > 1]:
                raise ConfigurationError(f"the select list gives two columns {clash[0]!r:.100}: rename one by AS")

    def apply(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows for which the condition is true, with the selected columns.

        If the select list leaves out Kafka's offset or timestamp, the result has it as a hidden column.
        """
        return self._selected(rows if self._where is None else filtered(rows, self._where))

    def _selected(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if not self._items:
            return rows
        fields: list[pa.Field] = []
        columns: list[pa.Array] = []
        held: set[str | None] = set()
        for field, column in self._columns(rows):
            metadata = None if kafka.held_column(field) in held else field.metadata
            held.add(kafka.held_column(field))
            fields.append(pa.field(field.name, column.type, metadata=metadata))
            columns.append(column)
        for name in (kafka.OFFSET, kafka.TIMESTAMP):
            if name not in held:
                column = kafka.kafka_column(rows, name)
                fields.append(kafka.hidden(name, column.type))
                columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, rows.schema.metadata))

    def _columns(self, rows: pa.RecordBatch) -> Iterator[_Column]:
        return chain.from_iterable(item(rows) for item in self._items)


def _bound_item(item: SelectItem, columns: Columns) -> Callable[[pa.RecordBatch], Iterable[_Column]]:
    """Return a function that takes decoded rows and returns the (field, array) pairs of one item of a select list."""
    if item.tree is None:
        return lambda rows: zip(kafka.table_columns(rows.schema), rows.columns, strict=False)
    bound = bind(item.text, item.tree, columns)
    if bound.kind == NULL:
        raise ConfigurationError(f"{item.text!r:.300} has no type: write CAST(NULL AS …)")
    if item.tree.op == COLUMN:
        own = columns.find(item.tree.text).name
        return lambda rows: [(rows.schema.field(own).with_name(item.name), rows.column(own))]
    return lambda rows: [(pa.field(item.name, bound.kind), as_array(bound.values(rows), rows.num_rows))]


class UserTransform:
    """User's function that changes decoded rows.

    The constructor imports the function by its name `package.module:function`. It raises ConfigurationError if the
    import fails, or if the imported object cannot be called.
    """

    def __init__(self, name: str) -> None:
        self._name = f"the function {name}"
        module, _, function_name = name.partition(":")
        try:
            imported = getattr(import_module(module), function_name)
        except Exception as error:  # the module's code may raise anything
            raise ConfigurationError(
                f"{self._name} cannot be imported: {type(error).__name__}: {error}. It must be "
                "package.module:function, on the Python path of the driver and of the tasks"
            ) from error
        if not callable(imported):
            raise ConfigurationError(f"{self._name} is no function")
        self._function: Callable[[pa.RecordBatch], pa.RecordBatch] = imported

    def schema(self, decoded: pa.Schema) -> pa.Schema:
        """Return the table's columns for batches that the user's function makes of batches of the schema `decoded`.

        The function is called once, with an empty batch. `_table_type` returns the type of each column.

        Raises:
            ConfigurationError: the function fails on the empty batch, or does not return a batch.
        """
        try:
            return _table_schema(self.call(pa.RecordBatch.from_pylist([], _without_metadata(decoded))).schema)
        except TableError as error:
            raise ConfigurationError(f"{error} (given a batch without rows)") from error

    def apply(self, rows: pa.RecordBatch, expected: pa.Schema) -> pa.RecordBatch:
        """Return the user's function's result for `rows`, with hidden columns for the offset and timestamp of each row.

        The result has the columns `expected`, which `schema` returns. Values are converted to the types of `expected`.
        The function gets the rows without their hidden columns. If it returns as many rows as it gets, each row keeps
        its offset and timestamp. Otherwise the last row gets the offset and timestamp of the last record, and all other
        rows get the offset and timestamp of the first record. The hidden column `FIRST_OFFSET` is then the first
        record's offset in each row. If `rows` is empty, the function is not called.

        Raises:
            TableError: the function failed, or its result does not have the columns `expected`. Or a conversion would
                change a value.
        """
        schema = _without_metadata(kafka.table_columns(rows.schema))
        given = pa.RecordBatch.from_arrays(rows.columns[: len(schema)], schema=schema)
        result = self.call(given) if rows.num_rows else pa.RecordBatch.from_pylist([], expected)
        if not _table_schema(result.schema).equals(expected):
            raise TableError(
                f"{self._name} gave {_columns(result.schema)}, but of a batch without rows {_columns(expected)}"
            )
        columns = map(self._converted, result.columns, expected)
        positions = self._positions(rows, result)
        hidden = [kafka.hidden(name, column.type) for name, column in positions.items()]
        fields = pa.schema([*_without_metadata(expected), *hidden])
        return pa.RecordBatch.from_arrays([*columns, *positions.values()], schema=fields)

    def _converted(self, column: pa.Array, field: pa.Field) -> pa.Array:
        """Return the column with the type of `field`; raise TableError if the conversion would change a value."""
        try:
            return column.cast(field.type)
        except pa.ArrowException as error:
            raise TableError(
                f"{self._name} gave {field.name} as {column.type}, and its values do not fit {field.type}: {error}. "
                f"Let the function return {field.type}"
            ) from error

    def _positions(self, rows: pa.RecordBatch, result: pa.RecordBatch) -> dict[str, pa.Array]:
        columns = {name: kafka.kafka_column(rows, name) for name in (kafka.OFFSET, kafka.TIMESTAMP)}
        if result.num_rows == rows.num_rows:
            return {**columns, kafka.FIRST_OFFSET: columns[kafka.OFFSET]}
        # The last row stands for the last record, all other rows for the first record.
        chosen = np.zeros(result.num_rows, np.int64)
        first = columns[kafka.OFFSET].take(pa.array(chosen))
        chosen[-1:] = rows.num_rows - 1
        return {**{name: column.take(pa.array(chosen)) for name, column in columns.items()}, kafka.FIRST_OFFSET: first}

    def call(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the user's function's result for the batch.

        Raises:
            TableError: the function failed, or returned an object that is not a `pyarrow.RecordBatch`.
        """
        try:
            result = self._function(batch)
        except Exception as error:
            raise TableError(f"{self._name} failed: {type(error).__name__}: {error}") from error
        if not isinstance(result, pa.RecordBatch):
            raise TableError(f"{self._name} gave {type(result).__name__}, not a pyarrow.RecordBatch")
        return result


_PLAIN_TYPES = {
    pa.large_string(): pa.string(), pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(), pa.binary_view(): pa.binary(),
}  # fmt: skip
"""Types of texts and byte strings in tables, by Arrow's other types for them."""


def _table_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a table that takes batches of the schema, without metadata."""
    return pa.schema([(field.name, _table_type(field.type)) for field in schema])


def _table_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a table's column for values of the type `kind`.

    Timestamps have microseconds, as in Delta, and instants have the zone UTC. Dictionaries become plain values. Lists,
    texts and byte strings have one layout each. Other types stay.
    """
    types = pa.types
    if types.is_dictionary(kind):
        return _table_type(kind.value_type)
    if types.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz and "UTC")
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_struct(kind):
        return pa.struct([field.with_type(_table_type(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(*(field.with_type(_table_type(field.type)) for field in (kind.key_field, kind.item_field)))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_table_type(kind.value_type)))
    return _PLAIN_TYPES.get(kind, kind)


def _without_metadata(schema: pa.Schema) -> pa.Schema:
    return pa.schema([(field.name, field.type) for field in schema])


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
