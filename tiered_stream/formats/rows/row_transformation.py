"""User's function between decoding and writing (`ingest.transform`), which takes and returns an Arrow batch."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import numpy as np
import pyarrow as pa

from tiered_stream.errors import ConfigurationError, TableError
from tiered_stream.formats.rows.kafka_columns import (
    FIRST_OFFSET,
    OFFSET,
    TIMESTAMP,
    hidden,
    kafka_column,
    table_columns,
)


class UserTransform:
    """User's function that changes decoded rows.

    The constructor imports the function by its name `package.module:function`. It raises ConfigurationError if the
    import fails, or if the imported object cannot be called.
    """

    def __init__(self, name: str) -> None:
        self._name = f"ingest.transform {name}"
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
        """Call the function with an empty batch that has the columns `decoded`; return the columns of its result.

        Raises:
            ConfigurationError: the function fails on the empty batch, or does not return a batch.
        """
        try:
            return self.call(pa.RecordBatch.from_pylist([], _without_metadata(decoded))).schema
        except TableError as error:
            raise ConfigurationError(f"{error} (given a batch without rows)") from error

    def apply(self, rows: pa.RecordBatch, expected: pa.Schema) -> pa.RecordBatch:
        """Return the function's result for `rows`, with hidden columns for the offset and timestamp of each row.

        The function gets the rows without their hidden columns. If it returns as many rows as it gets, each row keeps
        its offset and timestamp. Otherwise the last row gets the offset and timestamp of the last record, and all other
        rows get the offset and timestamp of the first record. `FIRST_OFFSET` is then the first record's offset in each
        row, so that a single row stands for all records, too.

        Raises:
            TableError: the function failed, or its result does not have the columns `expected`.
        """
        schema = _without_metadata(table_columns(rows.schema))
        result = self.call(pa.RecordBatch.from_arrays(rows.columns[: len(schema)], schema=schema))
        if not result.schema.equals(expected):
            raise TableError(
                f"{self._name} gave {_columns(result.schema)}, but of a batch without rows {_columns(expected)}"
            )
        positions = self._positions(rows, result)
        fields = [*result.schema, *(hidden(name, column.type) for name, column in positions.items())]
        return pa.RecordBatch.from_arrays([*result.columns, *positions.values()], schema=pa.schema(fields))

    def _positions(self, rows: pa.RecordBatch, result: pa.RecordBatch) -> dict[str, pa.Array]:
        columns = {name: kafka_column(rows, name) for name in (OFFSET, TIMESTAMP)}
        if result.num_rows == rows.num_rows:
            return {**columns, FIRST_OFFSET: columns[OFFSET]}
        # The last row stands for the last record, all other rows for the first record.
        chosen = np.zeros(result.num_rows, np.int64)
        first = columns[OFFSET].take(pa.array(chosen))
        chosen[-1:] = rows.num_rows - 1
        return {**{name: column.take(pa.array(chosen)) for name, column in columns.items()}, FIRST_OFFSET: first}

    def call(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the function's result for the batch.

        Raises TableError if the function failed, or returned an object that is not a `pyarrow.RecordBatch`.
        """
        try:
            result = self._function(batch)
        except Exception as error:
            raise TableError(f"{self._name} failed: {type(error).__name__}: {error}") from error
        if not isinstance(result, pa.RecordBatch):
            raise TableError(f"{self._name} gave {type(result).__name__}, not a pyarrow.RecordBatch")
        return result


def _without_metadata(schema: pa.Schema) -> pa.Schema:
    return pa.schema([(field.name, field.type) for field in schema])


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
