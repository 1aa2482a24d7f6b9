"""The first difference of two sides."""

from __future__ import annotations

import pytest

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
