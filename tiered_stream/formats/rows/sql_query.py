"""Parsed SQL of `ingest.select` and `ingest.where`.

The driver parses the texts once, and tasks receive the trees as JSON.
"""

from __future__ import annotations

from dataclasses import dataclass

COLUMN, FIELD, CASE, CAST, TRY_CAST = "column", "field", "case", "cast", "try_cast"
NULL, BOOLEAN, INTEGER, DECIMAL, DOUBLE, STRING = (
    "null", "boolean", "integer", "decimal", "double", "string"
)  # fmt: skip
"""Operations of literals. `INTEGER` takes the smallest type that holds the number, as in Spark."""
LITERALS = frozenset({NULL, BOOLEAN, INTEGER, DECIMAL, DOUBLE, STRING})


@dataclass(frozen=True, slots=True)
class Tree:
    """SQL expression: an operation, its arguments, and a text.

    `op` is a constant of this module, or an operator or function in lower case. The text is the name of a column or of
    a field, the value of a literal, or the type of a cast. The arguments of `CASE` are pairs of a condition and a
    value, and perhaps one value for ELSE.
    """

    op: str
    args: tuple[Tree, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class SelectItem:
    """Item of `ingest.select`: its text as the user wrote it, the column's name, and the expression.

    If the item is `*`, the name is '' and there is no expression.
    """

    text: str
    name: str = ""
    tree: Tree | None = None


@dataclass(frozen=True, slots=True)
class SqlQuery:
    """Parsed `ingest.select` (no items: all columns) and `ingest.where` (None: all rows)."""

    select: tuple[SelectItem, ...] = ()
    where: Tree | None = None
    where_text: str = ""
    """Condition as the user wrote it."""
