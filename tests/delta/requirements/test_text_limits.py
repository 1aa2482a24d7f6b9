"""Lengths of VARCHAR(n) and CHAR(n), as a column's metadata has them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered_stream.delta.requirements.writer_requirements import DECLARED_TYPE, UnreadableTypeError, text_limits
from tiered_stream.formats.rows.table_rules import FieldPath, TextLimit

LEAVES = st.sampled_from(
    [("string", "string", None), ("varchar(3)", "string", (3, False)), ("char(12)", "string", (12, True)),
     ("int", "integer", None), ("decimal(10,2)", "decimal(10,2)", None), ("timestamp_ntz", "timestamp_ntz", None)]
)  # fmt: skip
NAMES = st.text(st.sampled_from("ab`<>:, é("), max_size=4)
Declared = tuple[str, Any, list[TextLimit]]


@st.composite
def declared(draw: st.DrawFn, path: FieldPath = ("c",), depth: int = 0) -> Declared:
    """A type as Spark's catalog has it, the column's own type as JSON, and the limits in it."""
    shape = draw(st.sampled_from(["leaf", "leaf", "struct", "array", "map"])) if depth < 4 else "leaf"
    if shape == "leaf":
        text, kind, limit = draw(LEAVES)
        return text, kind, [TextLimit(path, *limit)] if limit else []
    if shape == "array":
        text, kind, limits = draw(declared((*path, "element"), depth + 1))
        return f"array<{text}>", {"type": "array", "elementType": kind, "containsNull": True}, limits
    if shape == "map":
        key, key_kind, of_keys = draw(declared((*path, "key"), depth + 1))
        text, kind, limits = draw(declared((*path, "value"), depth + 1))
        whole = {"type": "map", "keyType": key_kind, "valueType": kind, "valueContainsNull": True}
        return f"map<{key},{text}>", whole, of_keys + limits
    texts, fields, found = [], [], []
    for name in draw(st.lists(NAMES, unique=True, min_size=1, max_size=3)):
        text, kind, limits = draw(declared((*path, name), depth + 1))
        doubled = name.replace("`", "``")
        quoted = f"`{doubled}`" if not name.isalnum() or draw(st.booleans()) else name
        texts.append(f"{quoted}:{text}")
        fields.append({"name": name, "type": kind, "nullable": True, "metadata": {}})
        found += limits
    return f"struct<{','.join(texts)}>", {"type": "struct", "fields": fields}, found


def limits_of(text: str, kind: Any) -> list[TextLimit]:
    return list(text_limits({"name": "c", "type": kind, "nullable": True, "metadata": {DECLARED_TYPE: text}}))


@given(declared())
def test_every_limit_of_a_type_is_found_where_it_is(case: Declared) -> None:
    text, kind, limits = case
    assert limits_of(text, kind) == limits


@given(declared(), st.data())
def test_a_type_of_another_column_gives_limits_or_is_refused(case: Declared, data: st.DataObject) -> None:
    _, kind, _ = case
    text = data.draw(st.one_of(declared().map(lambda other: other[0]), st.text(max_size=30)))
    try:
        limits_of(text, kind)
    except UnreadableTypeError as error:
        assert "is not the type of the column" in str(error)


def test_fields_that_a_struct_got_later_have_no_limit() -> None:
    field = {"nullable": True, "metadata": {}}
    kind = {
        "type": "struct",
        "fields": [{"name": "a", "type": "string", **field}, {"name": "b", "type": "long", **field}],
    }
    assert limits_of("struct<a:varchar(2)>", kind) == [TextLimit(("c", "a"), 2, False)]
    with pytest.raises(UnreadableTypeError):
        limits_of("struct<b:bigint>", kind)


def test_a_nested_fields_own_metadata_counts() -> None:
    inner = {"name": "f", "type": "string", "nullable": True, "metadata": {DECLARED_TYPE: "char(2)"}}
    kind = {"type": "array", "elementType": {"type": "struct", "fields": [inner]}, "containsNull": True}
    found = list(text_limits({"name": "c", "type": kind, "nullable": True, "metadata": {}}))
    assert found == [TextLimit(("c", "element", "f"), 2, True)]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("varchar(3)", "long"), ("varchar()", "string"), ("varchar(3) collate x", "string"), ("", "string"),
        ("struct<a:varchar(3)>", "string"), ("string", {"type": "array", "elementType": "string"}),
        ("map<string>", {"type": "map", "keyType": "string", "valueType": "string"}), ("x", {"type": "odd"}),
    ],
)  # fmt: skip
def test_a_type_that_does_not_fit_the_column_is_refused(text: str, kind: Any) -> None:
    with pytest.raises(UnreadableTypeError):
        limits_of(text, kind)
