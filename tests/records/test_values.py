from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import examples
from tests.records.batches import marker_batch, read_by_kafka_python, with_crc
from tests.records.test_decoder import damaged, logs
from tests.rigs.stack.batches import CODECS, record_batch
from tests.rigs.stack.rows import Record
from tiered_stream.data_limits import DEFAULT_LIMITS
from tiered_stream.errors import CorruptDataError, DataLimitError, UnsupportedDataError
from tiered_stream.records.values import Value
from tiered_stream.records.values import read_values as read_batches


def read_values(log: bytes) -> tuple[list[Value], int]:
    """All values, and the offset after the last whole batch, 0 where there is none."""
    batches = [(following, list(values)) for following, values in read_batches(log)]
    return [value for _, values in batches for value in values], batches[-1][0] if batches else 0


@given(logs())
@settings(max_examples=examples(100))
def test_offsets_and_values_are_those_that_kafka_python_reads(log: bytes) -> None:
    values, next_offset = read_values(log)
    rows = read_by_kafka_python(log)
    assert values == [(row[0], row[4]) for row in rows]
    assert next_offset == rows[-1][0] + 1


@given(logs(), st.data())
@settings(max_examples=examples(60))
def test_a_batch_that_is_cut_off_at_the_end_is_left_out(log: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(log) - 1))
    values, next_offset = read_values(log[:cut])
    rows = [(row[0], row[4]) for row in read_by_kafka_python(log)]
    assert values == rows[: len(values)] and len(values) < len(rows)
    assert next_offset == (values[-1][0] + 1 if values else 0)


@given(logs() | st.binary(min_size=1, max_size=400), st.data())
@settings(max_examples=examples(300))
def test_damaged_and_any_bytes_give_records_or_the_format_error(log: bytes, data: st.DataObject) -> None:
    wrong = damaged(log, data)
    for tried in (wrong, with_crc(wrong)):
        try:
            read_values(tried)
        except (CorruptDataError, UnsupportedDataError) as error:
            assert "at offset" in str(error)


def test_markers_are_no_records_but_have_an_offset() -> None:
    log = record_batch([Record(value=b"v")]) + marker_batch(1, 9, commit=True)
    assert read_values(log) == ([(0, b"v")], 2)


def test_a_wrong_crc_is_told() -> None:
    log = bytearray(record_batch([Record(value=b"value")], base_offset=7))
    log[-2] ^= 1
    with pytest.raises(CorruptDataError, match="the batch at offset 7: its CRC-32C is wrong"):
        read_values(bytes(log))


def test_a_count_of_more_records_than_there_are_is_told() -> None:
    log = record_batch([Record(value=b"value")])
    with pytest.raises(CorruptDataError, match="too short for its 2147483647 records"):
        read_values(with_crc(log[:57] + (2**31 - 1).to_bytes(4, "big") + log[61:]))


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_of_an_internal_topic_has_no_more_records_than_the_limit(codec: str) -> None:
    log = record_batch([Record(value=b"v")] * 10, codec, base_offset=7)
    most = replace(DEFAULT_LIMITS, batch_records=replace(DEFAULT_LIMITS.batch_records, maximum=9))
    with pytest.raises(DataLimitError, match="the batch at offset 7: its records: 10"):
        next(read_batches(log, most))
    assert len(read_values(log)[0]) == 10
