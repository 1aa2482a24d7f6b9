"""Rules of a table for its rows: NOT NULL and the lengths of texts, at any depth, and CHECK constraints.

A length counts characters (code points). As in Delta (`CharVarcharConstraint`), a text that is too long is refused,
even if the last characters are blanks. A text of `CHAR(n)` is padded with blanks to n characters. Spark also pads texts
of `CHAR(n)` when it reads the table, and when it runs an UPDATE.

A CHECK constraint is evaluated only if `formats.sql` supports its SQL and no setting of Spark changes its result. As in
Delta (`CheckDeltaInvariant`), a row passes if the constraint is true, so it does not pass if the constraint is NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.columns.conform import list_items, null_mask, rows_with, with_items
from tiered_stream.formats.sql.bound import Columns, bind_condition
from tiered_stream.formats.sql.parser import COLUMN, STRING, parse_condition
from tiered_stream.formats.sql.sql_values import as_array

FieldPath = tuple[str, ...]
"""Path to a value: the name of a column, then the names of the nested fields that lead to the value.

`element` stands for a list's elements, `key` and `value` for a map's keys and values.
"""
ELEMENT, MAP_KEY, MAP_VALUE = "element", "key", "value"
Checked = tuple[pa.Array, pa.BooleanArray]
"""Array after a check, which may have replaced values, and a boolean for each value: True if the value breaks the rule.
"""
ColumnCheck = Callable[[pa.Array], Checked]


def check_within(column: pa.Array, path: FieldPath, check: ColumnCheck) -> Checked:
    """Apply `check` to the values at `path` within `column`; return the new column, and a boolean for each row.

    `path` has the nested names without the column's own name. The boolean is True if `check` returned True for any of
    the row's values. Values within a null struct, list or map do not count. The new column has the values that `check`
    returned. If `check` returned its argument itself, `column` itself is returned.
    """
    if not path:
        return check(column)
    if pa.types.is_struct(column.type):
        changed, marks = _check_struct(column, path, check)
    else:
        changed, marks = _check_items(column, path, check)
    return changed, pc.and_(marks, column.is_valid())


def _check_struct(column: pa.StructArray, path: FieldPath, check: ColumnCheck) -> Checked:
    at = column.type.get_field_index(path[0])
    child = column.field(at)
    changed, marks = check_within(child, path[1:], check)
    if changed is child:
        return column, marks
    children = [changed if number == at else column.field(number) for number in range(column.type.num_fields)]
    return pa.StructArray.from_arrays(children, fields=list(column.type), mask=null_mask(column)), marks


def _check_items(column: pa.ListArray | pa.MapArray, path: FieldPath, check: ColumnCheck) -> Checked:
    offsets, items = list_items(column)
    at = 0 if path[0] == MAP_KEY else -1  # a list has one array of items, a map has keys and values
    changed, marks = check_within(items[at], path[1:], check)
    if changed is not items[at]:
        items[at] = changed
        column = with_items(column, offsets, items, column.type)
    return column, rows_with(marks, offsets)


def find_value(kind: pa.DataType, path: FieldPath) -> tuple[FieldPath, pa.DataType] | None:
    """Return `path` with its names spelled as in the type `kind`, and the type of the values at this path.

    Names are compared without regard to case. The result is None if `kind` has no such path.
    """
    actual: FieldPath = ()
    for step in path:
        name = step
        if pa.types.is_struct(kind):
            field = next((field for field in kind if field.name.lower() == step.lower()), None)
            if field is None:
                return None
            name, kind = field.name, field.type
        elif pa.types.is_map(kind):
            kind = kind.key_type if step == MAP_KEY else kind.item_type
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            kind = kind.value_type
        else:
            return None
        actual = (*actual, name)
    return actual, kind


@dataclass(frozen=True, slots=True)
class TextLimit:
    """Rule that a text at `path` has at most `length` characters. `padded` is True for `CHAR`, False for `VARCHAR`."""

    path: FieldPath
    length: int
    padded: bool

    @property
    def kind(self) -> str:
        """Return the SQL name of the text's type: `CHAR(n)` or `VARCHAR(n)`."""
        return f"{'CHAR' if self.padded else 'VARCHAR'}({self.length})"

    @property
    def reason(self) -> str:
        """Return the reason of a refused row whose text at `path` is too long."""
        return f"{path_text(self.path)} is {self.kind}, and the value has more characters"

    @property
    def reason_of_keys(self) -> str:
        """Return the reason of a refused row whose map at `path` has two keys that are equal once they are padded."""
        return f"{path_text(self.path)} is {self.kind}, and two keys are the same with the blanks that it adds"


def limited_texts(column: pa.Array, limit: TextLimit) -> tuple[pa.Array, dict[str, pa.BooleanArray]]:
    """Check the texts of `column` against `limit`; return the new column and, by reason, a boolean for each row.

    The texts in the new column are padded if `limit` is for a `CHAR`. The boolean is True if the row has a text that is
    too long, or a map with keys that are equal when padded. Spark cannot read a map with equal keys.
    """

    def check(texts: pa.Array) -> Checked:
        lengths = pc.utf8_length(texts)
        too_long = pc.fill_null(pc.greater(lengths, limit.length), False)
        if limit.padded and pc.any(pc.less(lengths, limit.length)).as_py():
            texts = pc.utf8_rpad(texts, width=limit.length, padding=" ")
        return texts, too_long

    padded, marks = check_within(column, limit.path[1:], check)
    broken = {limit.reason: marks}
    if padded is not column and limit.path[-1] == MAP_KEY:
        broken[limit.reason_of_keys] = check_within(padded, limit.path[1:-1], _with_duplicate_keys)[1]
    return padded, broken


def _with_duplicate_keys(maps: pa.Array) -> Checked:
    if not pa.types.is_map(maps.type):  # the path leads to a struct's field named `key`
        return maps, pa.array(np.zeros(len(maps), bool))
    keys, ends = maps.keys.to_pylist(), maps.offsets.to_pylist()
    rows = (keys[start:end] for start, end in pairwise(ends))
    return maps, pa.array([len(set(row)) < len(row) for row in rows], pa.bool_())


def nulls_within(column: pa.Array, path: FieldPath) -> pa.BooleanArray:
    """Return a boolean for each row of `column`: True if a value at `path` within the column is null.

    As in Delta (`Constraints.NotNull`), a null struct around the value counts as a null value, unless the struct is in
    a list or a map.
    """
    if path and pa.types.is_struct(column.type):
        return pc.or_(column.is_null(), nulls_within(column.field(column.type.get_field_index(path[0])), path[1:]))
    return check_within(column, path, lambda values: (values, values.is_null()))[1]


def path_text(path: FieldPath) -> str:
    """Return the path's names, joined by dots as in Delta's messages."""
    return ".".join(path)


_Check = Callable[[pa.RecordBatch], pa.Array]
_Broken = tuple[pa.BooleanArray, str, Collection[str]]
"""Result of one rule: a boolean for each row (true if the row breaks the rule), the reason, and the rule's columns."""
_NO_PARTITIONS = ("", "__HIVE_DEFAULT_PARTITION__")
"""Texts that Spark writes as null in a partition column (Spark: `ExternalCatalogUtils.DEFAULT_PARTITION_NAME`)."""


@dataclass(frozen=True, slots=True)
class TableRules:
    """Rules that each row of a table must keep."""

    not_null: tuple[str, ...] = ()
    """Columns that are NOT NULL."""
    checks: tuple[tuple[str, str], ...] = ()
    """CHECK constraints, each with its name and its SQL."""
    nested_not_null: tuple[FieldPath, ...] = ()
    """Fields of structs, elements of lists and values of maps that are NOT NULL."""
    text_limits: tuple[TextLimit, ...] = ()
    """Limits of `VARCHAR(n)` and `CHAR(n)`, in columns and at any depth within columns."""
    partition_texts: tuple[str, ...] = ()
    """Text columns by which a table of the latest state is partitioned. A text in `_NO_PARTITIONS` breaks this rule."""

    def __bool__(self) -> bool:
        return bool(self.not_null or self.checks or self.nested_not_null or self.text_limits or self.partition_texts)


NO_RULES = TableRules()


class UncertainCheckError(ValueError):
    """Error for a table rule that tasks cannot check, or whose result may differ from Spark's."""


def certain_rules(rules: TableRules, schema: pa.Schema) -> TableRules:
    """Return the rules in `rules` that can be checked on rows with the columns of `schema`.

    The result lacks rules for columns and fields that `schema` lacks, and CHECK constraints that `parse_check` does not
    accept. Columns and fields in NOT NULL rules and text limits are spelled as in `schema`, because Delta's names are
    not case-sensitive.
    """

    def is_certain(text: str) -> bool:
        try:
            parse_check(text, schema)
        except UncertainCheckError:
            return False
        return True

    def found(paths: Iterable[FieldPath]) -> Iterator[FieldPath]:
        values = (find_value(pa.struct(list(schema)), path) for path in paths)
        return (value[0] for value in values if value is not None)

    def names(given: Sequence[str]) -> tuple[str, ...]:
        return tuple(path[0] for path in found((name,) for name in given))

    return TableRules(
        names(rules.not_null),
        tuple(check for check in rules.checks if is_certain(check[1])),
        tuple(found(rules.nested_not_null)),
        tuple(replace(limit, path=path) for limit in rules.text_limits for path in found([limit.path])),
        names(rules.partition_texts),
    )


class RowRules:
    """Checker of rows with the columns of `schema` against the rules of their table.

    The constructor raises UncertainCheckError if `parse_check` does not accept a CHECK constraint, or if a column of
    `schema` lacks a nested field that a rule names. Nested rules and text limits of columns that are not in `schema`
    are ignored.
    """

    def __init__(self, rules: TableRules, schema: pa.Schema) -> None:
        row = pa.struct(list(schema))
        for path in (*rules.nested_not_null, *(limit.path for limit in rules.text_limits)):
            found = find_value(row, path)
            if path[0] in schema.names and (found is None or found[0] != path):
                raise UncertainCheckError(f"{path_text(path)} is not written")
        self._not_null, self._partition_texts = rules.not_null, rules.partition_texts
        self._nested = [path for path in rules.nested_not_null if path[0] in schema.names]
        self._limits = [limit for limit in rules.text_limits if limit.path[0] in schema.names]
        self._checks = [(name, parse_check(text, schema)) for name, text in rules.checks]

    def apply(
        self, batch: pa.RecordBatch, unavailable: pa.ListArray | None = None
    ) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Check the rows of `batch`; return all rows, and by row index the reason of each row that breaks a rule.

        In the returned rows, `CHAR(n)` texts are padded. CHECK constraints are evaluated with padded texts. A row that
        breaks several rules has the reason of one of them. `unavailable` lists, for each row, the columns in lower case
        whose value is not known; rules that use such a column are not checked for the row.
        """
        too_long: list[_Broken] = []
        columns = list(batch.columns)
        for limit in self._limits:
            at = batch.schema.get_field_index(limit.path[0])
            columns[at], broken = limited_texts(columns[at], limit)
            too_long += ((marks, reason, limit.path[:1]) for reason, marks in broken.items())
        batch = pa.RecordBatch.from_arrays(columns, schema=batch.schema)
        reasons: dict[int, str] = {}
        for marks, reason, names in chain(self._broken_values(batch), too_long, self._nulls(batch)):
            lower = {name.lower() for name in names}
            for row in pc.indices_nonzero(marks).to_pylist() if marks.true_count else ():
                if unavailable is None or not lower.intersection(unavailable[row].as_py() or ()):
                    reasons[row] = reason
        return batch, reasons

    def _broken_values(self, batch: pa.RecordBatch) -> Iterator[_Broken]:
        for name, (check, compared) in self._checks:
            yield pc.invert(pc.fill_null(check(batch), False)), f"the constraint {name} does not hold", compared
        for name in self._partition_texts:
            empty, default = (pc.equal(batch.column(name), text) for text in _NO_PARTITIONS)
            marks = pc.fill_null(pc.or_(empty, default), False)
            yield marks, f"the table is partitioned by {name}, and Delta cannot have '' in such a column", (name,)

    def _nulls(self, batch: pa.RecordBatch) -> Iterator[_Broken]:
        for path in self._nested:
            nulls = nulls_within(batch.column(path[0]), path[1:])
            yield nulls, f"the field {path_text(path)} is NOT NULL", path[:1]
        for name in self._not_null:
            yield batch.column(name).is_null(), f"the column {name} is NOT NULL", (name,)


def parse_check(text: str, schema: pa.Schema) -> tuple[_Check, Collection[str]]:
    """Return a function that evaluates the CHECK constraint `text`, and the names of the columns that it uses.

    The function takes a batch with the columns of `schema`, and returns a boolean array with one entry for each row.
    Null stands for SQL's NULL.

    Raises:
        UncertainCheckError: `text` is not supported by `formats.sql`, or its result depends on the session's settings.
    """
    try:
        tree = parse_condition(text)
        if any(each.op == STRING and "'" in each.text for each in tree.all()):
            raise UncertainCheckError("a text has a quote, which is read by spark.sql.legacy.consecutiveStringLiterals")
        columns = Columns(schema, zone="")
        check = bind_condition(text, tree, columns)
        names = {columns.find(each.text).name for each in tree.all() if each.op == COLUMN}
    except ConfigurationError as error:
        raise UncertainCheckError(str(error)) from error
    return lambda batch: as_array(check.values(batch), batch.num_rows).cast(pa.bool_()), names
