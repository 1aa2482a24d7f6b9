"""What values say of the schema by which they were written, in front or in a record header."""

from __future__ import annotations

from random import Random

import pyarrow as pa

from tests.rigs.fuzz.mutation import below, one, spoiled
from tests.rigs.fuzz.target import Target
from tiered_stream.formats.columns.decoded import ByteSlices
from tiered_stream.formats.registry.registry_protobuf import message_indexes
from tiered_stream.formats.registry.writer_schemas import BAD_HEADER, NONE, PREFIX_SIZE, named_schemas
from tiered_stream.records.arrow import HEADERS_TYPE

HEADER = "__value_schema_id"
GOOD = b"\1" + bytes(range(16))


def content(random: Random) -> bytes:
    """Of a header or of a value."""
    name = one(random, (GOOD, b"\0\0\0\0\7", b"\0\xff\0\0\0", b"\1", b""))
    made = name + one(random, (b"\0", b"\2\2", b"\4\0\1", b"\xff" * 12, bytes(below(random, 700))))
    return spoiled(random, made) if random.random() < 0.7 else made


def read_names(data: bytes) -> None:
    headers = pa.array([[{"key": HEADER, "value": data}], None, [{"key": HEADER, "value": GOOD}]], HEADERS_TYPE)
    named = named_schemas(ByteSlices.of(pa.array([b"x", data, b"y"], pa.binary())), HEADER, headers)
    by_header, in_front, good = named.numbers.tolist()
    assert by_header >= 0 or by_header == BAD_HEADER
    assert NONE <= in_front < 1 << 31 and named.sizes.tolist() == [0, PREFIX_SIZE if in_front >= 0 else 0, 0]
    # What other records have makes no difference to one.
    assert named.guids[good].bytes == GOOD[1:]
    for rest in (*named.header_rests, data):
        indexes, size = message_indexes(rest)
        assert 0 <= size <= len(rest) and len(indexes) <= 64 and bool(size) == bool(indexes)


TARGETS = (Target("schema-names", content, read_names),)
