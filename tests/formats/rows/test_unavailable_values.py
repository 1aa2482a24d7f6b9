"""Placeholders of values that the database does not send, in the forms of Debezium's `UnchangedToastedPlaceholder`."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pyarrow as pa
import pytest

from tiered_stream.formats.rows.change_records import UnavailableValues, unavailable_flags

TEXT = "__debezium_unavailable_value"
BYTES = TEXT.encode()
NUMBERS = list(BYTES)


def found(placeholder: str, *columns: pa.Array, names: str = "abcdef") -> list[Any]:
    rows = pa.RecordBatch.from_arrays(list(columns), names=list(names[: len(columns)]))
    return UnavailableValues(placeholder, ["ID"]).of(rows).to_pylist()


@pytest.mark.parametrize(
    ("kind", "placeholder", "values"),
    [
        (pa.string(), TEXT, [TEXT + "x", "", "x" * len(TEXT)]),
        (pa.string(), b64encode(BYTES).decode(), [b64encode(BYTES[1:] + b"x").decode()]),
        (pa.string(), BYTES.hex(), []),
        (pa.string(), f'{{"{TEXT}":"{TEXT}"}}', ["{}"]),
        (pa.binary(), BYTES, [b"", BYTES[1:], BYTES[1:] + b"x"]),
        (pa.map_(pa.string(), pa.string()), [(TEXT, TEXT)], [[], [(TEXT, "x")], [("x", TEXT)], [(TEXT, TEXT)] * 2]),
        (pa.list_(pa.string()), [TEXT], [[], [TEXT, TEXT], ["x"], [None]]),
        (pa.list_(pa.binary()), [BYTES], [[b""], [None]]),
        (pa.list_(pa.int32()), NUMBERS, [[], NUMBERS[1:], [*NUMBERS[1:], 0], [*NUMBERS[1:], None]]),
        (pa.list_(pa.int64()), NUMBERS, [NUMBERS * 2]),
        (pa.list_(pa.float64()), [float(each) for each in NUMBERS], [[0.5] * len(NUMBERS)]),
    ],
)
def test_a_placeholder_has_the_form_of_its_columns_type(kind: pa.DataType, placeholder: Any, values: list[Any]) -> None:
    column = pa.array([None, placeholder, *values, placeholder], kind)
    expected = [None, ["a"], *(None for _ in values), ["a"]]
    assert found(TEXT, column) == expected
    assert found(TEXT, column.slice(1, len(column) - 1)) == expected[1:]
    assert found(TEXT, column.slice(2, 0)) == []


def test_days_are_numbers_in_a_placeholder() -> None:
    assert found(TEXT, pa.array([NUMBERS, [1]], pa.list_(pa.int32())).cast(pa.list_(pa.date32()))) == [["a"], None]


def test_uuids_have_a_placeholder_of_their_own() -> None:
    """Java's `UUID.nameUUIDFromBytes` of `hello`: the MD5 5d41402abc4b2a76b9719d911017c592 as a UUID of version 3."""
    assert found("hello", pa.array([["5d41402a-bc4b-3a76-b971-9d911017c592"], ["hello"], ["x"]])) == [
        ["a"],
        ["a"],
        None,
    ]


def test_types_without_placeholders_have_none() -> None:
    columns = [pa.array([1]), pa.array([True]), pa.array([{"x": TEXT}]), pa.array([[True] * len(BYTES)])]
    assert found(TEXT, *columns) == [None]


def test_a_row_names_its_columns_in_lower_case_and_without_keys() -> None:
    column = pa.array([TEXT, "x", TEXT])
    rows = found(TEXT, column, column, pa.array(["x", TEXT, TEXT]), names=("id", "Name", "Body"))
    assert rows == [["name"], ["body"], ["name", "body"]]


def test_a_placeholder_in_hexadecimal_is_bytes() -> None:
    columns = pa.array([b"\xff\x01", BYTES]), pa.array([[-1, 1], [1, 1]], pa.list_(pa.int16()))
    assert found("hex:ff01", *columns) == [["a", "b"], None]


def test_flags_are_by_column() -> None:
    names = pa.chunked_array([pa.array([None, ["a"]], pa.list_(pa.string())), pa.array([["a", "b"], None])])
    flags = {name: list(own) for name, own in unavailable_flags(names).items()}
    assert flags == {"a": [False, True, True, False], "b": [False, False, True, False]}
