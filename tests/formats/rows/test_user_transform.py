"""Columns that a user's function returns become the table's columns."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from tests.delta.made_batches import plain
from tiered_stream.errors import TableError
from tiered_stream.formats.rows.row_steps import UserTransform

MOMENT = datetime(2026, 11, 30, 12, 0, 0)
TIMES = [MOMENT, None]
LOCAL, INSTANT = pa.timestamp("us"), pa.timestamp("us", tz="UTC")
MILLIS = pa.timestamp("ms")


def transform(function: Callable[[pa.RecordBatch], pa.RecordBatch], monkeypatch: pytest.MonkeyPatch) -> UserTransform:
    monkeypatch.setattr(sys.modules[__name__], "given", function, raising=False)
    return UserTransform(f"{__name__}:given")


def landed(column: pa.Array, monkeypatch: pytest.MonkeyPatch) -> pa.RecordBatch:
    """The rows of a function that returns the column for records, and its type for none."""
    records = plain(len(column))
    made = transform(lambda batch: pa.record_batch({"made": column.slice(0, batch.num_rows)}), monkeypatch)
    return made.apply(records, made.schema(records.schema))


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array(TIMES, pa.timestamp("s")), LOCAL),
        (pa.array(TIMES, MILLIS), LOCAL),
        (pa.array(TIMES, pa.timestamp("ns")), LOCAL),
        (pa.array([MOMENT.replace(tzinfo=UTC)], pa.timestamp("ms", tz="Europe/Berlin")), INSTANT),
        (pa.array(["a", None, "a"]).dictionary_encode(), pa.string()),
        (pa.array(TIMES, MILLIS).dictionary_encode(), LOCAL),
        (pa.array(["a", None], pa.large_string()), pa.string()),
        (pa.array([b"a", None], pa.large_binary()), pa.binary()),
        (pa.array([b"ab", None], pa.binary(2)), pa.binary()),
        (pa.array([["a"], None], pa.large_list(pa.large_string())), pa.list_(pa.string())),
        (pa.array([TIMES, None], pa.list_(MILLIS, 2)), pa.list_(LOCAL)),
        (pa.array([{"at": MOMENT}, None], pa.struct([("at", MILLIS)])), pa.struct([("at", LOCAL)])),
        (pa.array([[("k", MOMENT)], None], pa.map_(pa.string(), MILLIS)), pa.map_(pa.string(), LOCAL)),
        (pa.array([1, None], pa.int16()), pa.int16()),
    ],
)
def test_a_column_has_the_tables_type_and_the_functions_values(
    column: pa.Array, kind: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = landed(column, monkeypatch)
    assert rows.schema.field("made").type == kind
    assert rows.column("made").to_pylist() == column.to_pylist()


def test_a_value_that_would_change_is_an_error_with_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    nanoseconds = 1_700_000_000_000_000_001
    with pytest.raises(TableError, match=f"made.*{nanoseconds}"):
        landed(pa.array([nanoseconds]).cast(pa.timestamp("ns")), monkeypatch)


def test_a_batch_may_have_another_layout_than_the_batch_without_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def text(batch: pa.RecordBatch) -> pa.RecordBatch:
        column = pa.array(["a"] * batch.num_rows, pa.string())
        return pa.record_batch({"made": column.dictionary_encode() if batch.num_rows else column})

    made, records = transform(text, monkeypatch), plain(2)
    assert made.apply(records, made.schema(records.schema)).column("made").to_pylist() == ["a", "a"]
