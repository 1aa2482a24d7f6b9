"""The compiled scan of an internal topic beside the plain reader: it leaves out nothing that may be wanted."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.rigs.fuzz.targets.record_batches import with_crc
from tests.rigs.stack.batches import record_batch
from tests.rigs.stack.rows import Record
from tiered_stream.errors import CorruptDataError, TieredStreamError
from tiered_stream.locate.metadata_topic.remote_log_metadata import partition_of
from tiered_stream.records.flexible_versions import compact_string
from tiered_stream.records.value_scan import scan_values
from tiered_stream.records.values import read_values

OURS, OTHER = b"\xa1" * 16, b"\x01" * 16
HEAD = b"\1\0\0"


def value(topic_id: bytes, name: str = "topic", rest: bytes = b"\0\0\0\1\0more") -> bytes:
    return HEAD + compact_string(name) + topic_id + rest


def log(*values: bytes | None, codec: str = "none") -> bytes:
    """Each value in a batch of its own."""
    return b"".join(record_batch([Record(None, each)], codec, base_offset=at) for at, each in enumerate(values))


def scanned(data: bytes | memoryview, *topic_ids: bytes) -> list[bytes | None]:
    return [
        value for _, values in scan_values(data, dict.fromkeys(topic_ids or [OURS], "topic")) for _, value in values
    ]


def test_values_of_other_topics_are_left_out() -> None:
    assert scanned(log(value(OTHER), value(OURS), value(OTHER, "another"))) == [value(OURS)]
    ids = [bytes(15) + bytes((number,)) for number in range(1, 200, 2)]
    assert scanned(log(*map(value, ids)), *ids[::3]) == [value(each) for each in ids[::3]]


def test_values_are_bytes_of_their_own_also_where_the_log_is_a_view_of_a_brokers_answer() -> None:
    """Bytes are looked for in them, which a view would seem not to have."""
    (found,) = scanned(memoryview(bytearray(log(value(OTHER), value(OURS)))).toreadonly())
    assert type(found) is bytes and found == value(OURS)


@pytest.mark.parametrize(
    "strange",
    [
        b"",
        b"\1\0",
        b"\xff" * 40,
        b"\1\7\0" + value(OTHER)[3:],
        b"\1\0\x80\0" + value(OTHER)[3:],
        value(OTHER)[:-6],
        value(bytes(16)),
        value(OTHER, rest=b"\xff\0\0\1\0"),
        value(OTHER, rest=b"\0\0\0\1\1\0\0"),
        HEAD + b"\0" + OTHER + bytes(20),
        HEAD + b"\2\xff" + OTHER + bytes(20),
        HEAD + compact_string("n" * 200) + OTHER + bytes(20),
    ],
)
def test_what_is_not_surely_of_another_topic_is_given(strange: bytes) -> None:
    assert scanned(log(value(OTHER), strange, value(OTHER))) == [strange]


@pytest.mark.parametrize("codec", ["gzip", "lz4"])
def test_compressed_batches_are_read_in_their_place(codec: str) -> None:
    data = log(value(OURS, "first")) + log(value(OURS, "second"), codec=codec) + log(value(OTHER), value(OURS, "third"))
    assert [each for each in scanned(data) if each and OURS in each] == [
        value(OURS, name) for name in ("first", "second", "third")
    ]


def test_a_wrong_checksum_is_refused_as_by_the_plain_reader() -> None:
    data = bytearray(log(value(OTHER), value(OTHER)))
    data[-1] ^= 1
    with pytest.raises(CorruptDataError, match="the batch at offset 1: its CRC-32C is wrong"):
        scanned(bytes(data))


def may_be_ours(value: bytes) -> bool:
    whose = partition_of(value)
    return OURS in value and value[1] != 3 and (whose is None or whose.topic_id.bytes == OURS)


def seen(data: bytes, *, compiled: bool) -> tuple[int, list[tuple[int, bytes]], str]:
    """How far it is read, what may be about the topic, and why it ends."""
    following, found = 0, []
    try:
        for after, values in scan_values(data, {OURS: "topic"}) if compiled else read_values(data):
            found += [(offset, each) for offset, each in values if each is not None and may_be_ours(each)]
            following = after
    except TieredStreamError as error:
        return following, found, str(error)
    return following, found, ""


VALUES = st.one_of(
    st.none(), st.binary(max_size=60), st.sampled_from([value(OURS), value(OTHER), value(OURS, "x" * 130), HEAD + OURS])
)


@given(
    batches=st.lists(st.lists(VALUES, min_size=1, max_size=3), min_size=1, max_size=4),
    at=st.integers(0, 400), mask=st.integers(0, 255), cut=st.integers(0, 30),
)  # fmt: skip
@example(batches=[[None]], at=65, mask=255, cut=0)
def test_any_bytes_are_read_alike(batches: list[list[bytes | None]], at: int, mask: int, cut: int) -> None:
    """A byte is changed with the checksum made right again, and the last batch is perhaps cut off."""
    parts, offset = [], 0
    for values in batches:
        parts.append(record_batch([Record(None, each) for each in values], base_offset=offset))
        offset += len(values)
    first = bytearray(parts[0])
    first[at % len(first)] ^= mask
    with suppress(Exception):
        parts[0] = with_crc(bytes(first))
    data = b"".join(parts)
    data = data[: len(data) - cut]
    assert seen(data, compiled=True) == seen(data, compiled=False)
