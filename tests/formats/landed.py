"""Rows that values become in a table, by the code that decodes and writes in both lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.delta.made_batches import decoded
from tests.rigs.stack.rows import Record
from tiered_stream.delta.schema.row_plan import plan_rows
from tiered_stream.delta.settings.ingest_settings import table_spec
from tiered_stream.delta.write.parquet_properties import open_parquet
from tiered_stream.formats.row_decoder import RowDecoder


def landed(values: Sequence[bytes | None], **settings: str) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """Return the rows in the Parquet file, and the reasons of dead letters by the values' positions.

    `settings` are settings `ingest.*`; an underscore in a name stands for a point.
    """
    given = {f"ingest.{name.replace('_', '.')}": text for name, text in settings.items()}
    aside = {"ingest.kafkaColumns": "none", "ingest.onDecodeError": "deadLetter", "ingest.deadLetterTable": "/dead"}
    row_format = plan_rows(table_spec(given | aside), include_headers=False)
    found = RowDecoder(row_format).decode(decoded([Record(None, value) for value in values]))
    rows = found.rows.select(row_format.written.names)
    sink = pa.BufferOutputStream()
    with open_parquet(sink, rows, "snappy") as writer:
        writer.write_batch(rows)
    written = pq.read_table(pa.BufferReader(sink.getvalue())).cast(rows.schema)
    dead = [] if found.dead is None else found.dead.select(["offset", "reason"]).to_pylist()
    return written.to_pylist(), {each["offset"]: each["reason"] for each in dead}


def row_of(column: pa.Array, at: int) -> Any:
    """Return a value of a column as `comparable` does."""
    try:
        return comparable(column[at].as_py())
    except OverflowError:
        return "a time that Python cannot tell"


def comparable(found: Any) -> Any:
    """Return a value in which maps have no order, NaN is itself, and 0.0 is not -0.0."""
    if isinstance(found, dict):
        return {key: comparable(each) for key, each in found.items()}
    if isinstance(found, list):
        items = [comparable(each) for each in found]
        return sorted(items, key=repr) if items and all(isinstance(each, tuple) for each in items) else items
    if isinstance(found, tuple):
        return tuple(map(comparable, found))
    return repr(found) if isinstance(found, float) else found
