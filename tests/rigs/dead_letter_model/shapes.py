"""Ways in which a history makes rows of decoded values: as they are, by SQL, or by a user's function.

SQL and the function name the columns `a`, `b` and `c` anew, compute a text of `a`, and may leave out records by `id`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

_KAFKA = ("key", "topic", "partition", "offset", "timestamp", "timestampType")
_RENAMED = re.compile(r"\b[abc]\b")
TEXT = "a_text"
"""Name of the computed column."""


class Shape(Enum):
    """Way from decoded values to rows."""

    DECODED = "as decoded"
    SELECTED = "ingest.select"
    FILTERED = "ingest.where"
    BOTH = "ingest.select and ingest.where"
    TRANSFORMED = "ingest.transform"

    @property
    def renames(self) -> bool:
        """Whether the table's columns have other names than the fields of values."""
        return self in (Shape.SELECTED, Shape.BOTH, Shape.TRANSFORMED)

    def leaves_out(self, record_id: int | None) -> bool:
        """Return whether a record that decodes to this `id` has no row."""
        filters = self in (Shape.FILTERED, Shape.BOTH, Shape.TRANSFORMED)
        return filters and record_id is not None and record_id % 3 == 0

    def in_table(self, text: str) -> str:
        """Return SQL about the fields of values as SQL about the table's columns."""
        return _RENAMED.sub(lambda name: f"new_{name[0]}", text) if self.renames else text

    def settings(self, schema: tuple[str, ...]) -> Mapping[str, str]:
        """Return the settings of this shape, for values with the fields `schema` next to `id`."""
        if self is Shape.TRANSFORMED:
            return {"ingest.transform": f"{__name__}:shaped"}
        found = {}
        if self in (Shape.SELECTED, Shape.BOTH):
            names = [f"{name} AS {self.in_table(name)}" for name in schema]
            computed = [f"CAST(a AS STRING) AS {TEXT}"] * ("a" in schema)
            found["ingest.select"] = ", ".join(["id", *names, *computed, *_KAFKA])
        if self in (Shape.FILTERED, Shape.BOTH):
            found["ingest.where"] = "id % 3 <> 0 OR id IS NULL"
        return found


def shaped(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch as `Shape.TRANSFORMED` lands it: the user's function."""
    batch = batch.rename_columns([Shape.TRANSFORMED.in_table(name) for name in batch.schema.names])
    if "new_a" in batch.schema.names:
        batch = batch.append_column(TEXT, batch.column("new_a").cast(pa.string()))
    ids = batch.column("id")
    thirds = pc.equal(ids, pc.multiply(pc.divide(ids, 3), 3))
    return batch.filter(pc.invert(pc.fill_null(thirds, False)))
