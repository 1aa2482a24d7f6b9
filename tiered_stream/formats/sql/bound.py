"""Conversion of parsed SQL to expressions that can be evaluated for batches of decoded rows (`Bound`).

Names of columns are looked up, and types are checked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.sql import parser as sql
from tiered_stream.formats.sql.casts import cast, kind_of
from tiered_stream.formats.sql.functions import FUNCTIONS
from tiered_stream.formats.sql.operators import TRY_NAMES
from tiered_stream.formats.sql.parser import Tree
from tiered_stream.formats.sql.sql_reader import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INT,
    MAX_PRECISION,
    NULL,
    STRING,
    SqlError,
    SqlTypeError,
    sql_name,
)
from tiered_stream.formats.sql.sql_times import DAY_MICROS, UTC_NAMES
from tiered_stream.formats.sql.sql_values import Bound, as_array, is_floating, is_integer, literal

_REORDERED = (TRY_NAMES["+"], TRY_NAMES["*"])
_SIGNED = frozenset({"negative", "*", "/", TRY_NAMES["*"], TRY_NAMES["/"]})
"""Operations whose result can be -0.0 although no argument is -0.0."""
_CASES = frozenset({"lower", "upper"})
_BRANCHES = frozenset({"case", "if", "coalesce", "nvl", "ifnull", "nullif"})
"""Operations whose result is the value of one of their arguments."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns that an expression can name, and the session's time zone."""

    schema: pa.Schema
    zone: str

    def find(self, name: str) -> pa.Field:
        """Return the column with this name, without regard to case.

        Raises:
            SqlTypeError: there is no such column, or more than one.
        """
        return _find(self.schema, name, "column")

    @property
    def zone_is_utc(self) -> bool:
        return self.zone in UTC_NAMES


def _find(fields: Iterable[pa.Field], name: str, what: str) -> pa.Field:
    known = list(fields)
    found = [field for field in known if field.name.lower() == name.lower()]
    if len(found) != 1:
        names = ", ".join(field.name for field in known)
        several = f"{len(found)} of this name" if found else "none of this name"
        raise SqlTypeError(f"there is no {what} {name:.100}, or it is not clear: {several}. Known are {names:.300}")
    return found[0]


def bind(text: str, tree: Tree, columns: Columns) -> Bound:
    """Return the parsed expression `tree` as an expression that can be evaluated for batches with these columns.

    `text` is the expression as the user wrote it, for error messages.

    Raises:
        ConfigurationError: a column is unknown, or an operation does not support the types of its arguments.
    """
    try:
        return _bound(tree, columns)
    except SqlError as error:
        raise ConfigurationError(f"{text!r:.300} is refused: {error}") from error


def bind_condition(text: str, tree: Tree, columns: Columns) -> Bound:
    """Return the parsed condition `tree` as an expression that can be evaluated for batches with these columns.

    `text` is the condition as the user wrote it, for error messages.

    Raises:
        ConfigurationError: a column is unknown, an operation does not support the types of its arguments, or the
            expression is not BOOLEAN.
    """
    bound = bind(text, tree, columns)
    if bound.kind not in (BOOLEAN, NULL):
        raise ConfigurationError(f"{text!r:.300} is {sql_name(bound.kind)}: it must be BOOLEAN")
    return bound


def filtered(rows: pa.RecordBatch, condition: Bound) -> pa.RecordBatch:
    """Return the rows for which the condition is true. Rows for which the condition is null are left out, as in SQL."""
    meets = pc.coalesce(as_array(condition.values(rows), rows.num_rows).cast(BOOLEAN), pa.scalar(False))
    return rows.filter(meets) if meets.false_count else rows


def _bound(tree: Tree, columns: Columns) -> Bound:
    if tree.op in sql.LITERALS:
        return _literal(tree, columns)
    if tree.op == sql.COLUMN:
        column = columns.find(tree.text)
        return Bound(column.type, lambda batch: batch.column(batch.schema.get_field_index(column.name)))
    args = [_bound(arg, columns) for arg in tree.args]
    if tree.op == sql.FIELD:
        return _field(args[0], tree.text)
    if tree.op in (sql.CAST, sql.TRY_CAST):
        if is_floating(kind_of(tree.text)):
            _check_zero(tree)
        return cast(args[0], tree.text, columns.zone_is_utc, tries=tree.op == sql.TRY_CAST)
    if tree.op == "timestamp_micros" and _is_far_constant(tree.args[0]):
        raise SqlTypeError(
            "timestamp_micros of a constant far away, or of a computed one: Spark's optimizer fails at its DATE. Write "
            "TIMESTAMP '…'"
        )
    inner = frozenset[str]().union(*(arg.ops for arg in args))
    _check_order(tree.op, inner, args)
    bound = FUNCTIONS[tree.op].bind(tree.op, args, columns.zone_is_utc)
    if is_floating(bound.kind) and tree.op in _SIGNED:
        _check_zero(tree)
    return replace(bound, ops=inner if tree.op in _BRANCHES else frozenset({tree.op}))


def _check_order(op: str, inner: frozenset[str], args: list[Bound]) -> None:
    """Raise SqlTypeError if Spark's optimizer may rewrite the operation `op` so that its result changes.

    `args` are the arguments of `op`, and `inner` the operations in them. Spark reorders sums and products of integers,
    so that other numbers overflow (Spark: `ReorderAssociativeOperator`). In `upper(lower(a))` and the like, Spark drops
    the inner function (Spark: `SimplifyCaseConversionExpressions`).
    """
    if op in _CASES and inner & _CASES:
        raise SqlTypeError(
            f"{op} over {' and '.join(sorted(inner & _CASES))}: Spark leaves out the inner function, which changes "
            "letters such as ŉ in another way. Write one of them"
        )
    if op in _REORDERED and op in inner and all(is_integer(arg.kind) for arg in args):
        raise SqlTypeError(
            f"{op} within {op}: Spark may compute them in another order, in which other results are too "
            "large. CAST the integers to DECIMAL, and use the operator"
        )


def _is_constant(tree: Tree) -> bool:
    """Return whether Spark's optimizer may replace an expression by a constant other than NULL."""
    if tree.op in sql.LITERALS:
        return tree.op != sql.NULL
    if tree.op in _BRANCHES:
        return any(map(_is_constant, tree.args))
    return bool(tree.args) and all(map(_is_constant, tree.args))


def _check_zero(tree: Tree) -> None:
    """Raise SqlTypeError if the expression may be the constant -0.0.

    Spark's optimizer does not distinguish -0.0 from 0.0 if both are branches of one condition (Spark:
    `SimplifyConditionals`).
    """
    texts = [each.text for each in tree.all() if each.op in sql.LITERALS] if all(map(_is_constant, tree.args)) else []
    zeros = list(filter(_is_zero, texts))
    changes = tree.op == "negative" or (tree.op in _SIGNED and any("-" in text for text in texts))
    if any("-" in zero for zero in zeros) or (zeros and changes):
        raise SqlTypeError("a constant may be -0.0, which Spark's optimizer takes for 0.0: write constants without it")


def _is_zero(text: str) -> bool:
    try:
        return float(text.strip().rstrip("dDfF")) == 0
    except ValueError:
        return False


def _is_far_constant(tree: Tree) -> bool:
    """Return whether `tree`, a time in microseconds, may be a constant near the ends of the range of TIMESTAMP.

    The result is True for a literal within 2 days of the ends of BIGINT, and for each computed constant.
    """
    if tree.op == sql.INTEGER:
        return abs(int(tree.text)) > (1 << 63) - 2 * DAY_MICROS
    if tree.op in _BRANCHES:
        return any(map(_is_far_constant, tree.args))
    return tree.op not in sql.LITERALS and _is_constant(tree)


def _field(whole: Bound, name: str) -> Bound:
    if not pa.types.is_struct(whole.kind):
        raise SqlTypeError(f"{name:.100} is no field of {sql_name(whole.kind):.100}: only a STRUCT has fields")
    field = _find(whole.kind, name, "field")
    return Bound(field.type, lambda batch: pc.struct_field(whole.values(batch), [field.name]))


def _literal(tree: Tree, columns: Columns) -> Bound:
    match tree.op:
        case sql.NULL:
            return literal(None, NULL)
        case sql.BOOLEAN:
            return literal(tree.text == "true", BOOLEAN)
        case sql.STRING:
            return literal(tree.text, STRING)
        case sql.DOUBLE:
            _check_zero(Tree(sql.DOUBLE, (tree,)))
            return literal(float(tree.text), DOUBLE)
        case sql.INTEGER if -(1 << 63) <= int(tree.text) < 1 << 63:
            number = int(tree.text)
            return literal(number, INT if -(1 << 31) <= number < 1 << 31 else BIGINT)
    value = Decimal(tree.text)
    value = value if value else abs(value)  # no type of Spark's DECIMAL has -0
    scale = max(-int(value.as_tuple().exponent), 0)
    size = max(len(value.as_tuple().digits), scale)
    if size > MAX_PRECISION:
        raise SqlTypeError(f"the number {tree.text:.100} has too many digits for DECIMAL")
    return literal(value, pa.decimal128(size, scale))
