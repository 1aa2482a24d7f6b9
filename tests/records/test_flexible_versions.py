"""Types of flexible versions: what is written is read, by us and by kafka-python; what is malformed is refused."""

from __future__ import annotations

from struct import Struct
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.schemas.fields.codecs.types import UnsignedVarInt32

from tiered_stream.records.flexible_versions import (
    Reader,
    compact_array,
    compact_bytes,
    compact_string,
    tagged_fields,
    uuid_bytes,
    uvarint,
)

PAIR = Struct(">iqx")


@given(st.integers(0, (1 << 32) - 1))
def test_a_uvarint_is_kafka_s(value: int) -> None:
    assert uvarint(value) == UnsignedVarInt32.encode(value)
    assert Reader(uvarint(value)).uvarint() == value


@given(st.text(), st.binary(), st.dictionaries(st.integers(0, 1 << 31), st.binary()))
def test_what_is_written_is_read(text: str, data: bytes, tags: dict[int, bytes]) -> None:
    strings = compact_string(text) + compact_string(None)
    reader = Reader(strings + compact_bytes(data) + compact_bytes(None) + tagged_fields(tags) + uuid_bytes(None))
    assert (reader.compact_string(), reader.nullable_string()) == (text, None)
    assert (reader.compact_bytes(), reader.compact_bytes(), reader.tags()) == (data, None, tags)
    assert reader.uuid() is None and reader.position == len(reader.data)
    assert Reader(uuid_bytes(UUID(int=7))).uuid() == UUID(int=7)


def test_tagged_fields_within_an_array_are_passed_over() -> None:
    plain = [PAIR.pack(1, 2), PAIR.pack(3, 4)]
    tagged = [PAIR.pack(1, 2)[:-1] + tagged_fields({5: b"more", 900: b""}), plain[1]]
    for items in (plain, tagged):
        reader = Reader(compact_array(items) + b"rest")
        assert list(reader.structs(PAIR)) == [(1, 2), (3, 4)]
        assert reader.take(4) == b"rest"
    assert list(Reader(b"\0").structs(PAIR)) == []


@pytest.mark.parametrize(
    ("read", "data", "message"),
    [
        (Reader.uvarint, b"\xff" * 5 + b"\1", "too long"),
        (Reader.uvarint, b"\xff" * 4, "cut off"),
        (Reader.compact_bytes, b"\xff\xff\xff\xff\x0f", "cut off"),
        (Reader.compact_string, b"\0", "null"),
        (Reader.compact_string, b"\2\xff", "utf-8"),
        (Reader.uuid, bytes(15), "cut off"),
        (Reader.tags, b"\1\1\2a", "cut off"),
        (Reader.tags, b"\xff\xff\xff\xff\x0f", "cut off"),
        (lambda reader: reader.structs(PAIR), b"\xff\xff\xff\xff\x0f" + bytes(99), "4294967294 items in 99 bytes"),
    ],
)
def test_what_is_malformed_is_refused(read: object, data: bytes, message: str) -> None:
    assert callable(read)
    with pytest.raises(ValueError, match=message):
        read(Reader(data))
