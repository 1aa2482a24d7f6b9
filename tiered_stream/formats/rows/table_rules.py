"""Rules of a table for its rows: NOT NULL, the length of texts, and CHECK constraints if they are simple.

A check is parsed only if its meaning is certain: comparisons of one column with literals, IS [NOT] NULL, IN, BETWEEN,
and AND, OR, NOT of these. As in Delta (`CheckDeltaInvariant`), a row passes if a check is true, so it does not pass if
the check is NULL.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.formats.rows.nested_columns import FieldPath, kind_at
from tiered_stream.formats.rows.nested_rules import TextLimit, limited_texts, nulls_within, path_text

_Check = Callable[[pa.RecordBatch], pa.Array]
_Broken = tuple[pa.BooleanArray, str, Collection[str]]
"""For a rule: a boolean for each row, true if the row breaks the rule; the reason; and the columns of the rule."""
_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_]\w*|`[^`]+`)|(?P<number>\d+(?:\.\d+)?)(?![\w.])|(?P<text>'[^'\\]*')(?!\s*')"
    r"|(?P<mark><=|>=|<>|!=|==|[-=<>(),]))",
    re.ASCII,
)
_WORDS = frozenset(("and", "or", "not", "is", "null", "in", "between", "true", "false"))
_COMPARED = {
    "=": pc.equal, "==": pc.equal, "<>": pc.not_equal, "!=": pc.not_equal, "<": pc.less, "<=": pc.less_equal,
    ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_LARGEST_CERTAIN = {pa.float32(): float(1 << 24), pa.float64(): sys.float_info.max}
"""Largest number with which a floating-point column may be compared, by the column's type.

Spark converts a whole number to a float to compare it with a float, so the float must have the number's exact value.
"""
_NO_PARTITIONS = ("", "__HIVE_DEFAULT_PARTITION__")
"""Texts that Spark writes as null in a partition column (Spark: `ExternalCatalogUtils.DEFAULT_PARTITION_NAME`)."""
_DEEPEST = 50
_LONGEST = 10_000


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
    """Columns of texts by which a table of the latest state is partitioned: Delta writes `_NO_PARTITIONS` as null."""

    def __bool__(self) -> bool:
        return bool(self.not_null or self.checks or self.nested_not_null or self.text_limits or self.partition_texts)


NO_RULES = TableRules()


class UncertainCheckError(ValueError):
    """Error of a table rule that may have another meaning here than in Spark."""


def certain_rules(rules: TableRules, schema: pa.Schema) -> TableRules:
    """Return the rules in `rules` that can be checked on rows with the columns of `schema`.

    Rules for columns and fields that `schema` lacks are left out, and so are CHECK constraints that `parse_check` does
    not accept. Columns and fields in NOT NULL rules and text limits get the spelling that they have in `schema`,
    because Delta's names are not case-sensitive.
    """

    def is_certain(text: str) -> bool:
        try:
            parse_check(text, schema)
        except UncertainCheckError:
            return False
        return True

    row = pa.struct(list(schema))
    not_null = (path[0] for path in (_actual_path(row, (name,)) for name in rules.not_null) if path)
    nested = (path for path in (_actual_path(row, path) for path in rules.nested_not_null) if path)
    limits = ((_actual_path(row, limit.path), limit) for limit in rules.text_limits)
    return TableRules(
        tuple(not_null),
        tuple(check for check in rules.checks if is_certain(check[1])),
        tuple(nested),
        tuple(TextLimit(path, limit.length, limit.padded) for path, limit in limits if path),
        tuple(path[0] for path in (_actual_path(row, (name,)) for name in rules.partition_texts) if path),
    )


def _actual_path(kind: pa.DataType, path: FieldPath) -> FieldPath | None:
    """Return `path` with the spelling that the names have in the type `kind`, or None if `kind` has no such path.

    Names are compared without regard to case.
    """
    actual: FieldPath = ()
    for step in path:
        parent = kind_at(kind, actual)
        if parent is not None and pa.types.is_struct(parent):
            step = next((field.name for field in parent if field.name.lower() == step.lower()), step)
        actual = (*actual, step)
    return actual if kind_at(kind, actual) is not None else None


class RowRules:
    """Checker of rows with the columns of `schema` against the rules of their table.

    The constructor raises UncertainCheckError if `parse_check` does not accept a CHECK constraint, or if a column of
    `schema` lacks a nested field that a rule names. Nested rules and text limits of columns that are not in `schema`
    are ignored.
    """

    def __init__(self, rules: TableRules, schema: pa.Schema) -> None:
        row = pa.struct(list(schema))
        for path in (*rules.nested_not_null, *(limit.path for limit in rules.text_limits)):
            if path[0] in schema.names and kind_at(row, path) is None:
                raise UncertainCheckError(f"{path_text(path)} is not written")
        self._not_null, self._partition_texts = rules.not_null, rules.partition_texts
        self._nested = [path for path in rules.nested_not_null if path[0] in schema.names]
        self._limits = [limit for limit in rules.text_limits if limit.path[0] in schema.names]
        self._checks = [(name, parse_check(text, schema)) for name, text in rules.checks]

    def apply(
        self, batch: pa.RecordBatch, unavailable: pa.ListArray | None = None
    ) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Check the rows of `batch`; return the rows, and by row index the reason of each row that breaks a rule.

        The returned rows include rows that break a rule. Their `CHAR(n)` texts are padded, which happens before CHECK
        constraints are evaluated. A row that breaks several rules has the reason of one of them. `unavailable` has the
        names of each row's columns whose value is not known; rules of these columns are not checked for the row.
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
            for row in pc.indices_nonzero(marks).to_pylist() if marks.true_count else ():
                if unavailable is None or not set(names).intersection(unavailable[row].as_py() or ()):
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
    """Return a function that evaluates the CHECK constraint `text` for a batch with the columns of `schema`.

    With it come the names of the columns that it compares. The function returns a boolean array with one entry for each
    row. Null stands for SQL's NULL.

    Raises:
        UncertainCheckError: `text` is not of the simple form that this module parses, or has a comparison that may have
            another result in Spark.
    """
    parser = _Parser(text, schema)
    check = parser.either()
    parser.expect_end()
    return check, parser.compared


class _Parser:
    """Recursive descent parser of a CHECK constraint.

    A method that returns a `_Check` consumes the tokens of one condition, and returns a function that evaluates the
    condition.
    """

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._tokens: list[tuple[str, str]] = list(_tokens(text))
        self._at = 0
        self._depth = 0
        self._columns: dict[str, str] = {name.lower(): name for name in schema.names}
        self._schema = schema
        self.compared: set[str] = set()

    def either(self) -> _Check:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise UncertainCheckError("too deep")
        check = self._chain("or", pc.or_kleene, lambda: self._chain("and", pc.and_kleene, self._negated))
        self._depth -= 1
        return check

    def _chain(self, word: str, by: Callable[[pa.Array, pa.Array], pa.Array], operand: Callable[[], _Check]) -> _Check:
        check = operand()
        while self._takes(word):
            check = _joined(by, check, operand())
        return check

    def expect_end(self) -> None:
        if self._at < len(self._tokens):
            raise UncertainCheckError(f"{self._tokens[self._at][1]!r} is not expected")

    def _negated(self) -> _Check:
        negations = 0
        while self._takes("not"):
            negations += 1
        check = self._condition()
        return _not(check) if negations % 2 else check

    def _condition(self) -> _Check:
        if self._takes("("):
            check = self.either()
            self._expect(")")
            return check
        kind, token = self._peek()
        if kind == "name" and token.lower() not in _WORDS:
            return self._of_column(self._column())
        literal = self._literal()
        operator = self._operator()
        return _compare(self._schema, self._column(), _TURNED.get(operator, operator), literal)

    def _of_column(self, name: str) -> _Check:
        if self._takes("is"):
            negated = self._takes("not")
            self._expect("null")
            predicate = pc.is_valid if negated else pc.is_null
            return lambda batch: predicate(batch.column(name))
        negated = self._takes("not")
        if self._takes("in"):
            check = self._one_of(name)
        elif self._takes("between"):
            low = self._literal()
            self._expect("and")
            bounds = _compare(self._schema, name, ">=", low), _compare(self._schema, name, "<=", self._literal())
            check = _joined(pc.and_kleene, *bounds)
        elif negated:
            raise UncertainCheckError("NOT is not expected")
        else:
            return _compare(self._schema, name, self._operator(), self._literal())
        return _not(check) if negated else check

    def _one_of(self, name: str) -> _Check:
        self._expect("(")
        checks = [_compare(self._schema, name, "=", self._literal())]
        while self._takes(","):
            checks.append(_compare(self._schema, name, "=", self._literal()))
        self._expect(")")
        return reduce(lambda one, other: _joined(pc.or_kleene, one, other), checks)

    def _column(self) -> str:
        kind, token = self._next()
        name = token.strip("`").lower()
        if kind != "name" or (not token.startswith("`") and name in _WORDS) or name not in self._columns:
            raise UncertainCheckError(f"{token!r} is no column that is written")
        self.compared.add(self._columns[name])
        return self._columns[name]

    def _operator(self) -> str:
        _, token = self._next()
        if token not in _COMPARED:
            raise UncertainCheckError(f"{token!r} is no comparison")
        return token

    def _literal(self) -> int | Decimal | str | bool:
        kind, token = self._next()
        if kind == "text":
            return token[1:-1]
        if kind == "name" and token.lower() in ("true", "false"):
            return token.lower() == "true"
        negative = kind == "mark"
        if negative:
            self._at -= 1
            self._expect("-")
            kind, token = self._next()
        if kind != "number":
            raise UncertainCheckError(f"{token!r} is no literal")
        number: int | Decimal = Decimal(token) if "." in token else int(token)
        return -number if negative else number

    def _peek(self) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise UncertainCheckError("it ends too soon")
        return self._tokens[self._at]

    def _next(self) -> tuple[str, str]:
        token = self._peek()
        self._at += 1
        return token

    def _takes(self, word: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] in (("name", word), ("mark", word)):
            self._at += 1
            return True
        return False

    def _expect(self, word: str) -> None:
        if not self._takes(word):
            raise UncertainCheckError(f"{word} is expected")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    if len(text) > _LONGEST:
        raise UncertainCheckError("too long")
    if "${" in text:
        raise UncertainCheckError("Spark replaces ${…} by settings")
    at, text = 0, text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise UncertainCheckError(f"{text[at : at + 20]!r} is not known here")
        token = match[match.lastgroup]
        yield match.lastgroup, token.lower() if token.lower() in _WORDS else token
        at = match.end()


def _joined(by: Callable[[pa.Array, pa.Array], pa.Array], one: _Check, other: _Check) -> _Check:
    return lambda batch: by(one(batch), other(batch))


def _not(check: _Check) -> _Check:
    return lambda batch: pc.invert(check(batch))


def _compare(schema: pa.Schema, name: str, operator: str, literal: int | Decimal | str | bool) -> _Check:
    """Return a function that compares the column `name` with `literal`, with the results of Spark.

    Spark compares numbers in the wider type. NaN is above all other numbers, and equal to itself. Raises
    UncertainCheckError if the result of Spark is not certain.
    """
    kind, compared = schema.field(name).type, _COMPARED[operator]
    if isinstance(literal, bool | str):
        fits = pa.types.is_boolean(kind) if isinstance(literal, bool) else pa.types.is_string(kind)
        if not fits:
            raise UncertainCheckError(f"{name} is {kind}, compared with {literal!r}")
        return lambda batch: compared(batch.column(name), pa.scalar(literal))
    limit = _LARGEST_CERTAIN.get(kind)
    if limit is not None and -limit <= literal <= limit:
        number = pa.scalar(float(literal))
        above = operator in (">", ">=", "<>", "!=")

        def floating(batch: pa.RecordBatch) -> pa.Array:
            column = batch.column(name).cast(pa.float64())
            result = compared(column, number)
            return pc.or_kleene(result, pc.is_nan(column)) if above else result

        return floating
    if pa.types.is_integer(kind) and isinstance(literal, int) and -(2**63) <= literal < 2**63:
        return lambda batch: compared(batch.column(name).cast(pa.int64()), pa.scalar(literal, pa.int64()))
    raise UncertainCheckError(f"{name} is {kind}, compared with {literal}")
