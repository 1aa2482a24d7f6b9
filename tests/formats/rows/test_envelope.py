"""Debezium's envelope, taken off."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.rows.change_records import unwrapped, unwrapped_type

ROW = pa.struct([("id", pa.int64()), ("name", pa.string())])
SOURCE = pa.struct([("lsn", pa.int64())])
KIND = pa.struct([("before", ROW), ("after", ROW), ("source", SOURCE), ("op", pa.string()), ("ts_ms", pa.int64())])


def event(op: str | None, before: Any = None, after: Any = None) -> dict[str, Any]:
    return {"before": before, "after": after, "source": {"lsn": 7}, "op": op, "ts_ms": 5}


EVENTS = [
    event("c", None, {"id": 1, "name": "a"}),
    event("u", {"id": 1, "name": "a"}, {"id": 1, "name": None}),
    event("d", {"id": 1, "name": "b"}),
    None,
    event(None, None, {"id": 2, "name": "x"}),
    event("t"),
]
ROWS = [
    {"id": 1, "name": "a", "__op": "c", "__source": {"lsn": 7}, "__ts_ms": 5},
    {"id": 1, "name": None, "__op": "u", "__source": {"lsn": 7}, "__ts_ms": 5},
    {"id": 1, "name": "b", "__op": "d", "__source": {"lsn": 7}, "__ts_ms": 5},
    None,
    None,
    {"id": None, "name": None, "__op": "t", "__source": {"lsn": 7}, "__ts_ms": 5},
]


@pytest.mark.parametrize("skipped", [0, 2])
def test_a_row_is_as_it_is_after_the_change_and_a_deleted_one_as_it_was(skipped: int) -> None:
    made, reasons = unwrapped(pa.array(EVENTS, KIND).slice(skipped))
    assert made.type == unwrapped_type(KIND)
    assert made.to_pylist() == ROWS[skipped:]
    assert reasons == {4 - skipped: "it is not Debezium's envelope: it has no op"}


def test_the_envelope_may_be_the_payload_of_another() -> None:
    wrapped = pa.array([{"payload": each} for each in EVENTS[:3]] + [None], pa.struct([("payload", KIND)]))
    assert unwrapped(wrapped)[0].to_pylist() == [*ROWS[:3], None]
    assert unwrapped_type(wrapped.type) == unwrapped_type(KIND)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (ROW, "has no struct after and no op"),
        (pa.struct([("after", pa.string()), ("op", pa.string())]), "has no struct after and no op"),
        (pa.struct([("after", pa.struct([("__OP", pa.string())])), ("op", pa.string())]), "has a column __op"),
        (pa.struct([("after", ROW), ("op", pa.int32())]), "op is int32"),
    ],
)
def test_a_schema_that_is_no_envelope_is_refused(kind: pa.DataType, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        unwrapped_type(kind)
