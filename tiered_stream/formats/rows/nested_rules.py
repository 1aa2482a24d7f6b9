"""Rules of a table for values at any depth: `NOT NULL`, and the lengths of `VARCHAR(n)` and `CHAR(n)`.

A length counts characters (code points). As in Delta (`CharVarcharConstraint`), a text that is too long is refused,
even if the last characters are blanks. A text of `CHAR(n)` is padded with blanks to n characters. Spark also pads texts
of `CHAR(n)` when it reads the table, and when it runs an UPDATE.
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
    """Maximum number of characters, `length`, of a text at `path`. `padded` is True for `CHAR`, False for `VARCHAR`."""

    path: FieldPath
    length: int
    padded: bool

    @property
    def kind(self) -> str:
        """Return the SQL name of the text's type: `CHAR(n)` or `VARCHAR(n)`."""
        return f"{'CHAR' if self.padded else 'VARCHAR'}({self.length})"

    @property
    def reason(self) -> str:
        """Return the reason for which a row is refused if its text at `path` is too long."""
        return f"{path_text(self.path)} is {self.kind}, and the value has more characters"

    @property
    def reason_of_keys(self) -> str:
        """Return the reason for which a row is refused if two keys of its map at `path` become equal when padded."""
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
    """Return the path as Delta writes it: names with dots between them."""
    return ".".join(path)
