"""The first difference of two sides."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from tests.delta.made_batches import ORDERS, decoded
from tests.rigs.stack.rows import Record
from tests.tier.segments import described
from tiered_stream.model import ByteRange, OffsetRange, SegmentLocation, Split
from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.verification import storage_comparison
from tiered_stream.verification.storage_comparison import first_difference
from tiered_stream.verification.verify_report import Kind


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        ({}, {}, None),
        ({1: [5], 3: [6]}, {1: [5], 3: [6]}, None),
        ({1: [5], 3: [6]}, {1: [5], 3: [7]}, (3, Kind.DIFFERENT)),
        ({1: [5]}, {1: [5], 3: [6]}, (3, Kind.MISSING)),
        ({1: [5], 3: [6], 4: [1]}, {1: [5]}, (3, Kind.EXTRA)),
        ({2: [5], 3: [6]}, {1: [5], 3: [7]}, (1, Kind.MISSING)),
        ({0: [5], 3: [6]}, {1: [5], 3: [6]}, (0, Kind.EXTRA)),
        ({}, {7: [0]}, (7, Kind.MISSING)),
        ({1: [5, 5]}, {1: [5]}, (1, Kind.EXTRA)),
        ({1: [5], 3: [6]}, {1: [5], 3: [6, 6]}, (3, Kind.MISSING)),
    ],
)
def test_the_first_offset_that_differs_is_found(
    ours: dict[int, list[int]], theirs: dict[int, list[int]], found: tuple[int, Kind] | None
) -> None:
    assert first_difference(ours, theirs) == found


def one_row(value: bytes) -> pa.RecordBatch:
    return decoded([Record(b"k", value, (), 1000)], first_offset=7)


def test_an_offset_that_both_sides_have_twice_is_compared_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    storage, broker = [one_row(b"same"), one_row(b"ours")], [one_row(b"same"), one_row(b"theirs")]

    class Reader:
        def __init__(self, split: Split, options: Options, max_rows: int = 0) -> None:
            self._batches = storage if split.locations else broker

        def batches(self) -> Iterator[pa.RecordBatch]:
            return iter(self._batches)

    monkeypatch.setattr(storage_comparison, "SplitReader", Reader)
    location = SegmentLocation(described(ORDERS, 0, 10, 1), OffsetRange(0, 10), ByteRange(0, 1))
    options = parse_options({"kafka.bootstrap.servers": "b:9092", "subscribe": "orders"}, streaming=False)
    found = storage_comparison._Comparison(options)._compare(Split(ORDERS, OffsetRange(0, 10), (location,))).first
    assert found is not None and (found.offset, found.kind) == (7, Kind.DIFFERENT)
    assert "b'ours'" in found.detail and "b'theirs'" in found.detail and "same" not in found.detail
