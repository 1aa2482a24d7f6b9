"""Rules of a table for values at any depth: `NOT NULL`, and the lengths of `VARCHAR(n)` and `CHAR(n)`.

A length counts characters (code points). As in Delta (`CharVarcharConstraint`), a text that is too long is refused,
even if the last characters are blanks. A text of `CHAR(n)` is padded with blanks to n characters, because Spark reads
it so, and writes it so on UPDATE.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.formats.rows.nested_columns import MAP_KEY, Checked, FieldPath, check_within


@dataclass(frozen=True, slots=True)
class TextLimit:
    """Maximum number of characters of the text at `path`. `padded` is True for a `CHAR`."""

    path: FieldPath
    length: int
    padded: bool

    @property
    def kind(self) -> str:
        """Return the name of the type in SQL."""
        return f"{'CHAR' if self.padded else 'VARCHAR'}({self.length})"

    @property
    def reason(self) -> str:
        """Return the reason of a row whose text is too long."""
        return f"{path_text(self.path)} is {self.kind}, and the value has more characters"

    @property
    def reason_of_keys(self) -> str:
        """Return the reason of a row with a map in which two keys become equal by padding."""
        return f"{path_text(self.path)} is {self.kind}, and two keys are the same with the blanks that it adds"


def limited_texts(column: pa.Array, limit: TextLimit) -> tuple[pa.Array, dict[str, pa.BooleanArray]]:
    """Return the column, padded for a `CHAR`, and by reason a mark for each row that breaks the limit.

    A row breaks the limit by a text that is too long, or by keys of a map that are equal when padded, because Spark
    cannot read such a map.
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
    """Return a mark for each row with a null at the end of `path`.

    As in Delta (`Constraints.NotNull`), a null struct around the field counts as a null of the field, unless the struct
    is in a list or a map.
    """
    if path and pa.types.is_struct(column.type):
        return pc.or_(column.is_null(), nulls_within(column.field(column.type.get_field_index(path[0])), path[1:]))
    return check_within(column, path, lambda values: (values, values.is_null()))[1]


def path_text(path: FieldPath) -> str:
    """Return the path as Delta names it."""
    return ".".join(path)
