"""The first difference of two sides, and which offsets a part of a split has."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered_stream.records.row_hash import Numbers
from tiered_stream.verification.storage_comparison import Kind, first_difference

Side = dict[int, int]
ROWS = st.dictionaries(st.integers(0, 8), st.integers(0, 1))


def side(rows: Side) -> tuple[Numbers, Numbers]:
    offsets = sorted(rows)
    return np.array(offsets, np.int64), np.array([rows[each] for each in offsets], np.int64)


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        ({}, {}, None),
        ({1: 5, 3: 6}, {1: 5, 3: 6}, None),
        ({1: 5, 3: 6}, {1: 5, 3: 7}, (3, Kind.DIFFERENT)),
        ({1: 5}, {1: 5, 3: 6}, (3, Kind.MISSING)),
        ({1: 5, 3: 6}, {1: 5}, (3, Kind.EXTRA)),
        ({2: 5, 3: 6}, {1: 5, 3: 6}, (1, Kind.MISSING)),
        ({0: 5, 3: 6}, {1: 5, 3: 6}, (0, Kind.EXTRA)),
        ({}, {7: 0}, (7, Kind.MISSING)),
    ],
)
def test_the_first_offset_that_differs_is_found(ours: Side, theirs: Side, found: tuple[int, Kind] | None) -> None:
    assert first_difference(side(ours), side(theirs)) == found


@given(ROWS, ROWS)
def test_it_is_what_a_walk_over_both_finds(ours: Side, theirs: Side) -> None:
    differing = [each for each in sorted({*ours, *theirs}) if ours.get(each) != theirs.get(each)]
    found = first_difference(side(ours), side(theirs))
    assert (found and found[0]) == (differing[0] if differing else None)
