"""The decoder against kafka-python's reader, on whole logs, on logs in pieces, and on bytes that are no log."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from tests.depth import examples
from tests.records import hostile
from tests.records.batches import (
    Row,
    marker_batch,
    read_by_kafka_python,
    transactional_batch,
    with_attributes,
    with_crc,
)
from tests.rigs.stack.batches import CODECS, ProducerState, record_batch
from tests.rigs.stack.rows import Record
from tiered_stream.errors import CorruptDataError, UnsupportedDataError
from tiered_stream.model import AbortedTransaction
from tiered_stream.records.arrow import SCHEMA, SCHEMA_WITH_HEADERS
from tiered_stream.records.decoder import LISTED_BATCHES, MAX_ROWS, RecordBatchDecoder
from tiered_stream.records.header import aborted_in_fetched

EVERYTHING = 1 << 60


def decode(pieces: Iterable[bytes], start: int = 0, end: int = EVERYTHING, **settings: object) -> list[pa.RecordBatch]:
    decoder = RecordBatchDecoder("topic", 3, start, end, include_headers=True, **settings)  # type: ignore[arg-type]
    batches = [batch for piece in pieces for batch in decoder.feed(piece)]
    decoder.finish()
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == SCHEMA_WITH_HEADERS
        assert batch.num_rows <= MAX_ROWS
        assert set(batch["topic"].to_pylist()) == {"topic"}
        assert set(batch["partition"].to_pylist()) == {3}
    return batches


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    rows: list[Row] = []
    for batch in batches:
        timestamps = batch["timestamp"].cast(pa.int64()).to_pylist()
        for row, micros in zip(batch.to_pylist(), timestamps, strict=True):
            headers = row["headers"] and [(each["key"], each["value"]) for each in row["headers"]]
            rows.append((row["offset"], micros // 1000, row["timestampType"], row["key"], row["value"], headers))
    return rows


maybe_bytes = st.none() | st.binary(max_size=300)
records = st.builds(
    Record,
    key=maybe_bytes,
    value=maybe_bytes,
    headers=st.lists(st.tuples(st.text(max_size=10), maybe_bytes), max_size=4).map(tuple),
    timestamp_ms=st.integers(0, 2**45),
)
record_lists = st.lists(records, min_size=1, max_size=20) | st.integers(1, 400).map(
    lambda number: [Record(b"k%d" % each, b"v" * (each % 50), timestamp_ms=1000 + each) for each in range(number)]
)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Several batches of any codec, with gaps between their offsets."""
    log, offset = b"", draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(1, 5))):
        batch = draw(record_lists)
        log += record_batch(batch, draw(st.sampled_from(sorted(CODECS))), base_offset=offset)
        offset += len(batch) + draw(st.integers(0, 3))
    return log


def damaged(log: bytes, data: st.DataObject) -> bytes:
    """The log with a few of its bytes replaced."""
    wrong = bytearray(log)
    for _ in range(data.draw(st.integers(1, 4))):
        wrong[data.draw(st.integers(0, len(log) - 1))] = data.draw(st.integers(0, 255))
    return bytes(wrong)


@given(logs())
@settings(max_examples=examples(150))
def test_random_batches_decode_as_kafka_python_reads_them(log: bytes) -> None:
    assert rows_of(decode([log])) == read_by_kafka_python(log)


@given(logs(), st.data())
@settings(max_examples=examples(60))
def test_a_log_in_pieces_decodes_as_the_whole(log: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(log)), max_size=8)))
    pieces = [log[start:end] for start, end in zip([0, *cuts], [*cuts, len(log)], strict=True)]
    assert rows_of(decode(pieces)) == rows_of(decode([log]))


@given(logs(), st.data())
@settings(max_examples=examples(60))
def test_an_offset_range_gives_exactly_its_records(log: bytes, data: st.DataObject) -> None:
    rows = read_by_kafka_python(log)
    bound = st.integers(rows[0][0] - 1, rows[-1][0] + 2).map(lambda offset: max(offset, 0))
    start, end = sorted([data.draw(bound), data.draw(bound)])
    assert rows_of(decode([log], start, end)) == [row for row in rows if start <= row[0] < end]


@given(logs() | st.binary(min_size=1, max_size=400), st.data())
@settings(max_examples=examples(400))
def test_damaged_and_any_bytes_give_records_or_the_format_error(log: bytes, data: st.DataObject) -> None:
    try:
        decode([damaged(log, data)], check_crcs=False)
    except (CorruptDataError, UnsupportedDataError) as error:
        assert "topic-3" in str(error)


@pytest.mark.parametrize("cut", range(1, 200, 7))
def test_a_log_that_is_cut_off_is_refused(cut: int) -> None:
    log = record_batch([Record(b"key", b"v" * 200)])
    with pytest.raises(CorruptDataError, match="no whole record batch"):
        decode([log[:-cut]])


@pytest.mark.parametrize("codec", CODECS)
def test_one_flipped_bit_in_the_records_is_found_by_the_checksum(codec: str) -> None:
    log = bytearray(record_batch([Record(b"key", b"value" * 100)] * 3, codec, base_offset=7))
    log[-5] ^= 0x10
    with pytest.raises(CorruptDataError, match="topic-3 at offset 7.*CRC-32C"):
        decode([bytes(log)])


def test_the_schema_without_headers_is_that_of_sparks_kafka_source() -> None:
    decoder = RecordBatchDecoder("topic", 0, 0, EVERYTHING)
    batches = list(decoder.feed(record_batch([Record(None, b"v", (("h", b"x"),))])))
    assert [batch.schema for batch in batches] == [SCHEMA]
    assert SCHEMA.names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def test_headers_are_null_when_there_are_none_and_keep_order_and_duplicates() -> None:
    headers = (("a", b"1"), ("b", None), ("a", b""))
    rows = rows_of(decode([record_batch([Record(), Record(b"", b"", headers)])]))
    assert [row[5] for row in rows] == [None, list(headers)]


def test_log_append_time_is_the_batchs_max_timestamp_and_its_type_is_1() -> None:
    batch = record_batch([Record(timestamp_ms=10), Record(timestamp_ms=20)])
    rows = rows_of(decode([with_attributes(batch, 0x08)]))
    assert [(row[1], row[2]) for row in rows] == [(20, 1), (20, 1)]


def test_a_malformed_header_key_is_read_with_replacement_characters() -> None:
    batch = record_batch([Record(None, b"v", (("abc", b"x"),))])
    broken = with_crc(batch.replace(b"abc", b"a\xffc"))
    assert rows_of(decode([broken]))[0][5] == [("a\ufffdc", b"x")]


def test_control_batches_are_never_shown() -> None:
    log = transactional_batch([Record(b"k", b"v")], 0, 9)
    log += marker_batch(1, 9, commit=True) + record_batch([Record(b"k", b"w")], base_offset=2)
    assert [row[0] for row in rows_of(decode([log]))] == [0, 2]


def test_batches_of_an_aborted_transaction_are_dropped_and_others_of_its_producer_kept() -> None:
    log = b"".join(
        transactional_batch([Record(b"k", b"%d" % offset)], offset, producer)
        for offset, producer in [(0, 5), (1, 6), (2, 5), (4, 5), (6, 6)]
    )
    log += record_batch([Record(b"k", b"plain")], state=ProducerState(5, 0, 0), base_offset=7)
    aborted = [AbortedTransaction(5, 0, 3), AbortedTransaction(6, 5, 9), AbortedTransaction(7, 0, 9)]
    assert [row[0] for row in rows_of(decode([log], aborted=aborted))] == [1, 4, 7]


def test_a_fetched_aborted_transaction_ends_at_its_producers_next_marker() -> None:
    log = transactional_batch([Record(b"k", b"a")], 0, 5)
    log += marker_batch(1, 5, commit=False)
    log += transactional_batch([Record(b"k", b"b")], 2, 5)
    log += marker_batch(3, 5, commit=True)
    log += transactional_batch([Record(b"k", b"c")], 4, 6)
    assert aborted_in_fetched(log, [(5, 0), (6, 4)], 10) == (AbortedTransaction(5, 0, 1), AbortedTransaction(6, 4, 10))


@pytest.mark.parametrize(
    ("position", "value", "complaint"),
    [
        (16, b"\x03", "magic"),
        (8, b"\xff\xff\xff\xff", "length"),
        (57, b"\x00\x00\x00\x09", "record count"),
        (23, b"\xff\xff\xff\xff", "last offset delta"),
        (0, b"\x80\x00\x00\x00", "offsets"),
    ],
)
def test_an_impossible_header_field_is_named(position: int, value: bytes, complaint: str) -> None:
    batch = record_batch([Record(b"k", b"v")])
    with pytest.raises(CorruptDataError, match=complaint):
        decode([batch[:position] + value + batch[position + len(value) :]])


def test_batches_whose_offsets_go_back_are_refused() -> None:
    with pytest.raises(CorruptDataError, match="do not follow"):
        decode([record_batch([Record(b"k", b"v")], base_offset=5) + record_batch([Record(b"k", b"v")], base_offset=5)])


def test_an_unknown_codec_is_refused_by_number() -> None:
    with pytest.raises(UnsupportedDataError, match="codec 7"):
        decode([with_attributes(record_batch([Record(b"k", b"v")]), 7)])


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3], ids=["none", "gzip", "snappy", "lz4"])
def test_old_message_sets_are_read(magic: int, codec: int) -> None:
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for offset in range(5):
        builder.append(offset, 1000 + offset, b"key%d" % offset, None if offset == 2 else b"value")
    messages = bytes(builder.build())
    if codec:
        # A broker stores a compressed message set under the offset of its last message.
        messages = (4).to_bytes(8, "big") + messages[8:]
    log = messages + record_batch([Record(b"new", b"format")], base_offset=5)
    rows = rows_of(decode([log], 1))
    assert [row[0] for row in rows] == [1, 2, 3, 4, 5]
    assert [row[4] for row in rows] == [b"value", None, b"value", b"value", b"format"]
    assert {row[2] for row in rows[:-1]} == {-1 if magic == 0 else 0}


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1], ids=["none", "gzip"])
def test_keys_of_old_messages_larger_than_those_before_them_are_read(magic: int, codec: int) -> None:
    keys = [None, *(b"%d" % each * 600_000 for each in range(8)), None, b"k"] * 2
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 25)
    for offset, key in enumerate(keys):
        builder.append(offset, 1000, key, b"value")
    messages = bytes(builder.build())
    if codec:
        messages = (len(keys) - 1).to_bytes(8, "big") + messages[8:]
    assert [(row[0], row[3]) for row in rows_of(decode([messages]))] == list(enumerate(keys))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", range(8))
def test_a_message_set_that_does_not_decompress_is_the_format_error(magic: int, codec: int) -> None:
    for packed in (b"", b"\1", b"\x1f\x8b\x08\0\0\0\0\0\0\xff\x03", bytes(40), b"\x82SNAPPY\0" + bytes(12)):
        with suppress(CorruptDataError, UnsupportedDataError):
            assert not codec or decode([hostile.message(magic, packed, codec)], check_crcs=False) is None


def test_a_null_header_key_beside_a_malformed_one_stays_null() -> None:
    log = hostile.batch(
        hostile.record(header=b"\x01\x01\x02\xff\x01", headers=1).replace(b"\x02\x01\x01", b"\x04\x01\x01"), 1
    )
    assert rows_of(decode([log]))[0][5] == [(None, None), ("\ufffd", None)]


@pytest.mark.parametrize(
    ("inner", "last"), [((0, 0), 5), ((1, 0), 5), ((0, 7), 5)], ids=["one offset twice", "backwards", "before the log"]
)
def test_a_message_set_whose_offsets_cannot_be_is_refused(inner: tuple[int, ...], last: int) -> None:
    messages = b"".join(hostile.message(1, b"v", offset=offset) for offset in inner)
    with pytest.raises(CorruptDataError, match="topic-3 at offset 5: its messages do not fit"):
        decode([hostile.message_set(1, messages, last)])


def test_more_rows_than_one_arrow_batch_holds_come_in_several() -> None:
    records = [Record()] * (MAX_ROWS + 1)
    assert [batch.num_rows for batch in decode([record_batch(records)])] == [MAX_ROWS, 1]


def test_how_many_rows_one_arrow_batch_holds_may_be_chosen() -> None:
    log = record_batch([Record(b"%d" % each) for each in range(5)])
    found = decode([log], max_rows=2)
    assert [batch["key"].to_pylist() for batch in found] == [[b"0", b"1"], [b"2", b"3"], [b"4"]]


@pytest.mark.parametrize("record", [Record(b"k", b"v" * 500), Record(b"k" * 500, b"v"), Record(None, b"v" * 500)])
def test_rows_wait_in_no_more_memory_than_they_have_bytes(record: Record) -> None:
    log = b"".join(record_batch([record] * 200, base_offset=each) for each in range(0, 20_000, 200))
    before = pa.total_allocated_bytes()
    batches = decode([log])
    assert pa.total_allocated_bytes() - before < 1.5 * len(log)
    assert sum(batch.num_rows for batch in batches) == 20_000


def test_keys_larger_than_those_before_them_are_read() -> None:
    """Larger than what is taken to be enough for keys, at once and after many that were short or none."""
    large, small, none = Record(b"k" * 1_500_000, b"v"), Record(b"k", b"v" * 3000), Record(None, b"v" * 3000)
    runs = [[large] * 3, [none] * 400, [large] * 5, [small] * 400, [small, large] * 5]
    log = b""
    for base_offset, records in zip(range(0, 10_000, 1000), runs, strict=False):
        log += record_batch(records, base_offset=base_offset)
    assert rows_of(decode([log])) == read_by_kafka_python(log)
    middle = rows_of(decode([log], start=2002, end=4005))
    assert middle == [row for row in read_by_kafka_python(log) if 2002 <= row[0] < 4005]


def test_more_batches_than_are_listed_at_first_are_read() -> None:
    offsets = range(LISTED_BATCHES * 2 + 1)
    log = b"".join(record_batch([Record(b"k", b"%d" % offset)], base_offset=offset) for offset in offsets)
    assert rows_of(decode([log])) == read_by_kafka_python(log)


def test_a_batch_larger_than_the_pieces_it_comes_in_is_read() -> None:
    log = record_batch([Record(b"k", struct.pack(">q", each) * 5000) for each in range(50)])
    pieces = [log[start : start + 10_000] for start in range(0, len(log), 10_000)]
    assert rows_of(decode(pieces)) == read_by_kafka_python(log)


@pytest.mark.parametrize("codec", sorted(set(CODECS) - {"none"}))
def test_a_compressed_batch_after_a_plain_one_waits_for_room(codec: str) -> None:
    """In memory that it shares with a compressed one before both: it unpacks to more than is left of it."""
    values = [b"small", b"plain", b"large" * 400_000]
    batches = [
        record_batch([Record(None, value)], "none" if value == b"plain" else codec, base_offset=offset)
        for offset, value in enumerate(values)
    ]
    assert [row[4] for row in rows_of(decode([b"".join(batches)]))] == values


LATEST_MS = (2**63 - 1) // 1000


@pytest.mark.contract("2.48")
@pytest.mark.parametrize(
    ("latest", "beyond"),
    [(LATEST_MS, (LATEST_MS + 1, 2**54, 2**63 - 1)), (-LATEST_MS, (-LATEST_MS - 1, -(2**63)))],
    ids=["late", "early"],
)
def test_timestamps_are_read_up_to_the_last_that_microseconds_hold_and_refused_beyond_it(
    latest: int, beyond: tuple[int, ...]
) -> None:
    def stamped(milliseconds: int) -> list[bytes]:
        batch = record_batch([Record(b"k", b"v")])
        v2 = with_crc(batch[:27] + milliseconds.to_bytes(8, "big", signed=True) + batch[35:])
        old = hostile.message(1, b"v", timestamp=milliseconds)
        return [v2, old, hostile.message_set(1, old, 0)]

    for log in stamped(latest):
        assert [batch["timestamp"].cast(pa.int64()).to_pylist() for batch in decode([log])] == [[1000 * latest]]
    for log in chain.from_iterable(map(stamped, beyond)):
        with pytest.raises(CorruptDataError, match="topic-3 at offset 0: .*microseconds"):
            decode([log])
