"""The format `string`."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tiered_stream.formats.columns.decoded import TextDecoder


@given(
    st.lists(st.none() | st.binary(max_size=8) | st.text(max_size=8).map(str.encode), max_size=200), st.integers(0, 3)
)
def test_a_value_is_its_text_or_has_a_reason_whatever_its_neighbours_are(
    values: list[bytes | None], skipped: int
) -> None:
    found = TextDecoder().decode(pa.array(values, pa.binary()).slice(skipped))
    assert found.column.type == TextDecoder().kind
    for slot, value in enumerate(values[skipped:]):
        try:
            expected = None if value is None else value.decode()
            assert slot not in found.reasons
        except UnicodeDecodeError as error:
            expected = None
            assert found.reasons[slot] == f"not UTF-8: {error.reason} at byte {error.start}"
        assert found.column[slot].as_py() == expected
