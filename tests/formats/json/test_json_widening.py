"""Columns of JSON become wider by whole numbers that outgrow them, whatever came first."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tiered_stream.errors import UnsupportedDataError
from tiered_stream.formats.columns.decoded import Decoded
from tiered_stream.formats.json.json_decoder import JsonDecoder

INNER = pa.struct([("x", pa.int16())])
LIST = pa.list_(pa.field("element", INNER))
KIND = pa.struct([("a", pa.int32()), ("l", LIST), ("s", pa.int64()), ("d", pa.date32())])


def decoder() -> JsonDecoder:
    return JsonDecoder(KIND, "UTC", widens=True)


def decode(of: JsonDecoder, *values: bytes | None) -> Decoded:
    return of.decode(pa.array(values, pa.binary()))


@pytest.mark.parametrize(
    ("document", "kinds"),
    [
        (b'{"a": 2147483648}', (pa.int64(), pa.int16())),
        (b'{"a": -2147483648, "l": [{"x": 32767}]}', (pa.int32(), pa.int16())),
        (b'{"a": 3.0}', (pa.float64(), pa.int16())),
        (b'{"l": [{"x": 1}, {"x": 40000}, null]}', (pa.int32(), pa.int64())),
        (b'{"a": 1.5, "l": [{"x": 1e3}]}', (pa.float64(), pa.float64())),
    ],
)
def test_a_number_that_outgrows_its_column_makes_it_wider(
    document: bytes, kinds: tuple[pa.DataType, pa.DataType]
) -> None:
    widening = decoder()
    found = decode(widening, b'{"a": 7}', document, None)
    assert found.reasons == {} and found.column.type == widening.kind
    assert (found.column.type.field("a").type, found.column.type.field("l").type.value_type.field("x").type) == kinds
    assert found.column.to_pylist()[0]["a"] == 7
    assert decode(widening, b'{"a": 7}').column.type == found.column.type


@pytest.mark.parametrize(
    "document",
    [
        b'{"a": 3000000000, "d": "never"}', b'{"a": 9223372036854775808}', b'{"s": 1.5}', b'{"a": "3000000000"}', b"{",
        b"[3000000000]", b'{"l": [{"x": 1.5}, {"x": 3000000000}]}', b"\xff", b'{"a": 1' + b"0" * 5000 + b"}",
    ],
)  # fmt: skip
def test_what_does_not_decode_then_either_changes_nothing(document: bytes) -> None:
    widening = decoder()
    found = decode(widening, b'{"a": 7}', document)
    assert found.column.type == KIND and list(found.reasons) == [1]


LARGE, BROKEN = b'{"a": 3000000000}', b'{"a": 1.5}'


@pytest.mark.parametrize("batches", [[[LARGE, BROKEN]], [[BROKEN, LARGE]], [[LARGE], [BROKEN]]])
def test_a_number_that_becomes_wider_in_two_ways_is_an_error(batches: list[list[bytes]]) -> None:
    widening = decoder()
    with pytest.raises(UnsupportedDataError, match="a .*(double .*int64|int64 .*double)"):
        for values in batches:
            decode(widening, *values)
