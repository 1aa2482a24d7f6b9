"""Columns into the type that a table has."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tiered_stream.errors import UnsupportedDataError
from tiered_stream.formats.columns.conform import conform, grown, joined, list_of

A, B = pa.field("a", pa.int32()), pa.field("b", pa.string())
LISTS = pa.list_(pa.field("element", pa.struct([A])))
MAPS = pa.map_(pa.string(), pa.struct([A]))


@pytest.mark.parametrize(
    ("values", "given", "wanted", "expected"),
    [
        ([1, None], pa.int32(), pa.int64(), [1, None]),
        ([1.5, None], pa.float32(), pa.float64(), [1.5, None]),
        ([{"a": 1}, None], pa.struct([A]), pa.struct([B, A]), [{"b": None, "a": 1}, None]),
        ([{"a": 1, "b": "x"}, None], pa.struct([A, B]), pa.struct([B]), [{"b": "x"}, None]),
        (
            [[{"a": 1}, None], None, []],
            LISTS,
            pa.list_(pa.field("element", pa.struct([A, B]))),
            [[{"a": 1, "b": None}, None], None, []],
        ),
        (
            [[("k", {"a": 1})], None],
            MAPS,
            pa.map_(pa.string(), pa.struct([pa.field("a", pa.int64())])),
            [[("k", {"a": 1})], None],
        ),
    ],
)
@pytest.mark.parametrize("skipped", [0, 1])
def test_what_goes_in_goes_in_by_name(
    values: list[Any], given: pa.DataType, wanted: pa.DataType, expected: list[Any], skipped: int
) -> None:
    column, misfit = conform(pa.array(values, given).slice(skipped), wanted)
    column.validate(full=True)
    assert (column.type == wanted and misfit is None) or misfit.true_count == 0
    assert column.to_pylist() == expected[skipped:]


@pytest.mark.parametrize(
    ("values", "given", "wanted", "bad"),
    [
        (["1", None], pa.string(), pa.int32(), [True, False]),
        ([{"a": 1}, {"a": None}, None], pa.struct([A]), pa.struct([pa.field("a", pa.string())]), [True, False, False]),
        (
            [[{"a": 1}], [], None, [None]],
            LISTS,
            pa.list_(pa.field("element", pa.struct([pa.field("a", pa.string())]))),
            [True, False, False, False],
        ),
    ],
)
@pytest.mark.parametrize("skipped", [0, 1])
def test_what_does_not_go_in_is_told_by_row(
    values: list[Any], given: pa.DataType, wanted: pa.DataType, bad: list[bool], skipped: int
) -> None:
    _, misfit = conform(pa.array(values, given).slice(skipped), wanted)
    assert misfit is not None and misfit.to_pylist() == bad[skipped:]


def test_a_type_grows_by_fields_alone() -> None:
    wide = pa.struct([pa.field("a", pa.int64()), B])
    assert grown(pa.struct([A]), wide) == pa.struct([A, B])
    assert grown(LISTS, pa.list_(wide)) == pa.list_(pa.field("element", pa.struct([A, B])))
    assert grown(pa.struct([A]), pa.struct([pa.field("A", pa.string())])) == pa.struct([A])


def test_only_the_first_of_new_fields_whose_names_differ_by_case_is_added() -> None:
    new = pa.struct([("Foo", pa.int32()), ("A", pa.string()), ("foo", pa.string()), B, ("FOO", pa.string())])
    assert grown(pa.struct([A]), new) == pa.struct([A, ("Foo", pa.int32()), B])
    assert grown(LISTS, list_of(new)) == list_of(pa.struct([A, ("Foo", pa.int32()), B]))


def test_a_type_grows_into_wider_ones_where_that_is_wanted() -> None:
    wide = pa.struct([pa.field("a", pa.int64()), B])
    assert grown(pa.struct([A]), wide, widen=True) == wide
    assert grown(wide, pa.struct([A]), widen=True) == wide
    assert grown(LISTS, pa.list_(wide), widen=True) == pa.list_(pa.field("element", wide))
    assert grown(pa.struct([A]), wide, add=False, widen=True) == pa.struct([("a", pa.int64())])
    assert grown(pa.struct([B]), pa.struct([pa.field("b", pa.int32())]), widen=True) == pa.struct([B])
    assert joined(pa.struct([A]), wide) == wide
    with pytest.raises(UnsupportedDataError, match=r"a\.element .*int64 .*double"):
        joined(*(pa.struct([("a", pa.list_(kind))]) for kind in (pa.int64(), pa.float64())))
