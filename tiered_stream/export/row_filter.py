"""Conditions of `--where`, which choose the rows of an export: `COLUMN OPERATOR VALUE`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from tiered_stream.errors import ConfigurationError

_OPERATORS = {
    "=": pc.equal, "!=": pc.not_equal, "<=": pc.less_equal, ">=": pc.greater_equal, "<": pc.less, ">": pc.greater,
}  # fmt: skip
_CONDITION = re.compile(r"\s*(?P<column>[^\s=!<>]+)\s*(?P<operator>!=|<=|>=|=|<|>)\s*(?P<value>.*)", re.DOTALL)
FORM = "COLUMN=VALUE, or with !=, <, <=, > or >= in place of ="


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition of one column, or of a field in a struct, that rows must meet. A null meets no condition."""

    path: tuple[int, ...]
    """Index of the column, and then of each field."""
    operator: str
    value: pa.Scalar

    @classmethod
    def parse(cls, text: str, schema: pa.Schema) -> Condition:
        """Parse a condition on rows with the columns `schema`; a dot separates a struct from its field.

        Raises:
            ConfigurationError: the text is no condition, there is no such column, or the value is not of its type.
        """
        match = _CONDITION.fullmatch(text)
        if match is None:
            raise ConfigurationError(f"--where {text!r:.100} is no condition: write {FORM}")
        path, kind = _find(match["column"], schema)
        return cls(path, match["operator"], _value(match["value"], kind, match["column"]))

    def met(self, rows: pa.RecordBatch) -> pa.Array:
        """Return for each row whether it meets the condition; null if the value is null."""
        first, *fields = self.path
        column = rows.column(first)
        return _OPERATORS[self.operator](pc.struct_field(column, fields) if fields else column, self.value)


def filtered(rows: pa.RecordBatch, conditions: Sequence[Condition]) -> pa.RecordBatch:
    """Return the rows that meet all conditions."""
    for condition in conditions:
        rows = rows.filter(condition.met(rows))
    return rows


def _find(name: str, schema: pa.Schema) -> tuple[tuple[int, ...], pa.DataType]:
    if (index := schema.get_field_index(name)) >= 0:  # also a name that has a dot in it
        return (index,), schema.field(index).type
    path, fields, kind = [], list(schema), pa.struct(list(schema))
    for part in name.split("."):
        names = [field.name for field in fields]
        if part not in names:
            raise ConfigurationError(f"--where names the column {name!r:.100}; there are {', '.join(schema.names)}")
        path.append(names.index(part))
        kind = fields[path[-1]].type
        fields = list(kind) if types.is_struct(kind) else []
    return tuple(path), kind


def _value(text: str, kind: pa.DataType, name: str) -> pa.Scalar:
    value: Any = text.encode() if types.is_binary(kind) else text
    try:
        return pa.scalar(value, kind) if types.is_binary(kind) or types.is_string(kind) else pa.scalar(text).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConfigurationError(f"--where: {text!r:.100} is no value of the column {name}, {kind}: {error}") from error
