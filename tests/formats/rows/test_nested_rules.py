"""NOT NULL and lengths of texts within structs, lists and maps, against a plain reading of Python's values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered_stream.formats.columns.conform import is_grown, mark_grown, rows_with
from tiered_stream.formats.rows.table_rules import (
    FieldPath,
    RowRules,
    TableRules,
    TextLimit,
    UncertainCheckError,
    certain_rules,
    limited_texts,
    nulls_within,
)

TEXTS = st.text("aé\U0001f600 ", max_size=4)
KINDS: dict[FieldPath, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    ("c",): (pa.string(), st.none() | TEXTS),
    ("c", "f"): (
        pa.struct([("n", pa.int8()), ("f", pa.string())]),
        st.none() | st.fixed_dictionaries({"n": st.none(), "f": st.none() | TEXTS}),
    ),
    ("c", "element"): (pa.list_(pa.string()), st.none() | st.lists(st.none() | TEXTS, max_size=3)),
    ("c", "s", "element", "f"): (
        pa.struct([("s", pa.list_(pa.struct([("f", pa.string())])))]),
        st.none()
        | st.fixed_dictionaries(
            {"s": st.none() | st.lists(st.none() | st.fixed_dictionaries({"f": st.none() | TEXTS}), max_size=3)}
        ),
    ),
    ("c", "value"): (
        pa.map_(pa.string(), pa.string()),
        st.none() | st.dictionaries(TEXTS, st.none() | TEXTS, max_size=3).map(lambda found: list(found.items())),
    ),
    ("c", "key"): (
        pa.map_(pa.string(), pa.string()),
        st.none() | st.dictionaries(TEXTS, st.none() | TEXTS, max_size=3).map(lambda found: list(found.items())),
    ),
    ("c", "element", "element"): (
        pa.large_list(pa.list_(pa.string())),
        st.none() | st.lists(st.none() | st.lists(st.none() | TEXTS, max_size=2), max_size=2),
    ),
}


def leaves(value: Any, path: FieldPath) -> Iterator[Any]:
    """All values at the end of the path; a null above it has none."""
    if not path:
        yield value
    elif value is not None and path[0] in ("element", "key", "value"):
        for each in value:
            inner = each if path[0] == "element" else each[path[0] == "value"]
            yield from leaves(inner, path[1:])
    elif value is not None:
        yield from leaves(value[path[0]], path[1:])


@st.composite
def columns(draw: st.DrawFn) -> tuple[FieldPath, pa.Array]:
    """A path, and a slice of a column that has it."""
    path = draw(st.sampled_from(list(KINDS)))
    kind, values = KINDS[path]
    column = pa.array(draw(st.lists(values, max_size=6)), kind)
    start = draw(st.integers(0, len(column)))
    return path, column.slice(start, draw(st.integers(0, len(column))))


@given(columns(), st.integers(1, 4), st.booleans())
def test_texts_are_as_long_as_they_may_be_or_their_rows_are_marked(
    case: tuple[FieldPath, pa.Array], length: int, padded: bool
) -> None:
    path, column = case
    limit = TextLimit(path, length, padded)
    made, found = limited_texts(column, limit)
    made.validate(full=True)
    assert made.type == column.type
    longer = found[limit.reason].to_pylist()
    doubled = found[limit.reason_of_keys].to_pylist() if limit.reason_of_keys in found else [False] * len(column)
    for row, changed, *marked in zip(column.to_pylist(), made.to_pylist(), longer, doubled, strict=True):
        texts = list(leaves(row, path[1:]))
        wanted = [None if text is None else text.ljust(length) if padded else text for text in texts]
        assert list(leaves(changed, path[1:])) == wanted
        too_long = any(text is not None and len(text) > length for text in texts)
        twice = padded and path[-1] == "key" and len(set(wanted)) < len(wanted)
        assert marked == [too_long, twice]


@given(columns())
def test_a_null_where_none_may_be_marks_its_row(case: tuple[FieldPath, pa.Array]) -> None:
    path, column = case
    if path[-1] == "key":
        return  # no key is null
    for row, marked in zip(column.to_pylist(), nulls_within(column, path[1:]).to_pylist(), strict=True):
        # As in Delta, a field that is NOT NULL makes the structs around it so, but not lists.
        through_structs = [value for steps in range(len(path)) for value in _chain(row, path[1:], steps)]
        assert marked is (None in leaves(row, path[1:]) or None in through_structs)


def _chain(row: Any, path: FieldPath, steps: int) -> Iterator[Any]:
    """The value after so many steps, where all of them, and the next one, lead into structs."""
    if steps < len(path) and not {"element", "key", "value"} & set(path[: steps + 1]):
        yield from leaves(row, path[:steps])


def test_nothing_is_copied_where_nothing_changes() -> None:
    column = pa.array([{"a": ["abc", None]}, None], pa.struct([("a", pa.list_(pa.string()))]))
    for padded in (False, True):
        assert limited_texts(column, TextLimit(("c", "a", "element"), 3, padded))[0] is column


def test_what_stands_under_a_null_is_nobodys_value() -> None:
    child = pa.array(["far too long", None])
    column = pa.StructArray.from_arrays([child], names=["a"], mask=pa.array([True, False]))
    listed = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), child, mask=pa.array([True, True]))
    for values, path in ((column, ("c", "a")), (listed, ("c", "element"))):
        limit = TextLimit(path, 2, True)
        assert limited_texts(values, limit)[1][limit.reason].to_pylist() == [False, False]
    assert nulls_within(listed, ("element",)).to_pylist() == [False, False]


def test_marks_of_items_are_their_rows() -> None:
    ends = pa.array([0, 0, 2, 3]).to_numpy()
    assert rows_with(pa.array([False, True, False]), ends).to_pylist() == [False, True, False]


def test_rows_keep_their_columns_and_what_their_schema_says_of_itself() -> None:
    schema = mark_grown(pa.schema([pa.field("c", pa.string(), metadata={"a": "b"}), ("n", pa.int8())]))
    rows = pa.record_batch([pa.array(["a", "long"]), pa.array([1, 2], pa.int8())], schema=schema)
    rules = RowRules(TableRules(text_limits=(TextLimit(("c",), 3, True),), checks=(("c", "c = 'a  '"),)), rows.schema)
    made, broken = rules.apply(rows)
    assert made.column("c").to_pylist() == ["a  ", "long"] and is_grown(made.schema)
    assert made.schema.field("c").metadata == {b"a": b"b"}
    assert broken == {1: "c is CHAR(3), and the value has more characters"}


def test_rules_are_asked_of_columns_by_the_names_that_these_have() -> None:
    schema = pa.schema([("C", pa.struct([("Inner", pa.list_(pa.string()))]))])
    limit = TextLimit(("c", "inner", "element"), 3, False)
    rules = TableRules(("c", "gone"), (), (("c", "inner"), ("c", "gone"), ("gone", "x")), (limit,))
    found = certain_rules(rules, schema)
    assert found == TableRules(("C",), (), (("C", "Inner"),), (TextLimit(("C", "Inner", "element"), 3, False),))
    RowRules(found, schema)


def test_a_row_with_a_null_where_none_may_be_breaks_the_rule_of_that_field() -> None:
    kind = pa.struct([("a", pa.int32()), ("b", pa.int32())])
    rows = pa.record_batch([pa.array([{"a": 1}, {"b": 1}, None], kind)], names=["s"])
    rules = RowRules(TableRules(nested_not_null=(("s", "a"),)), rows.schema)
    assert rules.apply(rows)[1] == dict.fromkeys((1, 2), "the field s.a is NOT NULL")


def test_a_rule_of_a_field_that_is_not_written_cannot_be_asked() -> None:
    schema = pa.schema([("c", pa.struct([("a", pa.string())]))])
    with pytest.raises(UncertainCheckError, match=r"c\.b "):
        RowRules(TableRules(nested_not_null=(("c", "b"),)), schema)
    RowRules(TableRules(nested_not_null=(("d", "b"),)), schema)  # the whole column is null, and the driver knows
