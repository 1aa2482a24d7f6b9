"""Which schema a value names: in its record's header, or in front of it."""

from __future__ import annotations

from uuid import UUID

import pyarrow as pa
import pytest

from tests.formats.scripted_registry import HEADER, headers_of, with_guid
from tiered_stream.formats.columns.decoded import ByteSlices
from tiered_stream.formats.registry.writer_schemas import BAD_HEADER, NONE, NamedSchemas, named_schemas
from tiered_stream.records.arrow import HEADERS_TYPE

ONE, TWO = UUID("00112233-4455-6677-8899-aabbccddeeff"), UUID(int=2)
Headers = list[tuple[str, bytes | None]] | None


def named(values: list[bytes | None], headers: list[Headers] | None) -> NamedSchemas:
    column = None if headers is None else pa.array(
        [each and [{"key": key, "value": value} for key, value in each] for each in headers], HEADERS_TYPE
    )  # fmt: skip
    return named_schemas(ByteSlices.of(pa.array(values, pa.binary())), HEADER, column)


def test_a_header_counts_before_what_is_in_front_of_the_value() -> None:
    in_front = b"\0\0\0\0\7x"
    found = named([in_front] * 3, [[(HEADER, with_guid(ONE))], [("other", b"\1")], None])
    first, *others = found.numbers.tolist()
    assert found.id_of(first) == ONE
    assert others == [7, 7]
    assert found.sizes.tolist() == [0, 5, 5]


def test_headers_are_not_looked_at_where_nobody_asks_for_them() -> None:
    assert named([b"\0\0\0\0\7x", b"x"], None).numbers.tolist() == [7, NONE]


@pytest.mark.parametrize(
    ("header", "number"),
    [
        (b"\0\0\0\0\x09", 9),
        (b"\0\0\0\0\x09more", 9),
        (b"\0\xff\0\0\x09", BAD_HEADER),
        (b"\0\0\0\0", BAD_HEADER),
        (with_guid(ONE)[:-1], BAD_HEADER),
        (b"\2" + ONE.bytes, BAD_HEADER),
        (b"", BAD_HEADER),
        (None, 7),
    ],
)
def test_a_header_holds_an_id_a_guid_or_none(header: bytes | None, number: int) -> None:
    found = named([b"\0\0\0\0\7x"], [[(HEADER, header)]])
    assert found.numbers.tolist() == [number]
    assert found.sizes.tolist() == [5 if header is None else 0]


def test_of_several_headers_the_last_counts() -> None:
    twice: list[tuple[str, bytes | None]] = [(HEADER, with_guid(ONE)), (HEADER, with_guid(TWO))]
    found = named([b"x"], [twice])
    assert found.guids[int(found.numbers[0])] == TWO


def test_a_guid_has_one_number_whatever_follows_it_in_the_headers() -> None:
    contents = [with_guid(ONE) + bytes([more]) for more in range(3)]
    found = named([b"x"] * 4, [[(HEADER, content)] for content in (*contents, with_guid(TWO))])
    assert [found.id_of(number) for number in found.numbers.tolist()] == [ONE, ONE, ONE, TWO]
    assert len(set(found.numbers.tolist())) == 2


def test_values_that_are_null_name_no_schema() -> None:
    found = named([None, b"x"], [[(HEADER, with_guid(ONE))], None])
    assert found.numbers.tolist() == [NONE, NONE]
    assert found.headers.tolist() == [-1, -1]


def test_records_of_a_slice_have_their_own_headers() -> None:
    headers = headers_of([with_guid(ONE), with_guid(TWO), None])
    values = pa.array([b"a", b"b", b"c"], pa.binary())
    found = named_schemas(ByteSlices.of(values.slice(1)), HEADER, headers.slice(1))
    assert found.guids[int(found.numbers[0])] == TWO
    assert found.numbers[1] == NONE


def test_no_more_of_a_header_is_kept_than_may_say_something() -> None:
    found = named([b"x"], [[(HEADER, with_guid(ONE, bytes(100_000)))]])
    assert len(found.header_rests[0]) < 512
