"""Offsets that a part of a log is said to have, held against its bytes."""

from __future__ import annotations

import pytest

from tests.records import hostile
from tests.stack.batches import record_batch
from tests.stack.rows import Record
from tiered_stream.errors import CorruptDataError
from tiered_stream.records.checks import PartBounds
from tiered_stream.records.decoder import RecordBatchDecoder


def plain(offset: int, records: int = 1) -> bytes:
    return record_batch([Record(value=b"v")] * records, base_offset=offset)


def read(*batches: bytes, bounds: PartBounds, offsets: tuple[int, int] = (0, 1 << 40)) -> list[int]:
    """The offsets that are given of these batches, each fed alone."""
    decoder = RecordBatchDecoder("orders", 0, *offsets, bounds=bounds)
    read = [offset for data in batches for rows in decoder.feed(data) for offset in rows.column("offset").to_pylist()]
    decoder.finish()
    return read


def test_a_part_that_is_as_it_was_said_is_read() -> None:
    bounds = PartBounds(lowest=10, highest=14, first=12, following=(14, 15))
    assert read(plain(11, 2), plain(13), plain(14), bounds=bounds, offsets=(12, 15)) == [12, 13, 14]


@pytest.mark.parametrize(
    "bounds,message",
    [
        (PartBounds(12, 20), "begins at offset 11, before its segment"),
        (PartBounds(10, 13), "ends at offset 14, beyond its segment"),
        (PartBounds(10, 20, first=10), "where offset 10 was looked for begins at 11"),
        (PartBounds(10, 20, following=(10, 14)), "end before offset 15, .* between 10 and 14"),
        (PartBounds(10, 20, following=(16, 17)), "end before offset 15, .* between 16 and 17"),
    ],
)
def test_batches_elsewhere_than_said_are_refused(bounds: PartBounds, message: str) -> None:
    with pytest.raises(CorruptDataError, match=message):
        read(plain(11, 2), plain(13, 2), bounds=bounds)


def test_a_part_without_a_batch_has_no_first() -> None:
    assert read(b"", bounds=PartBounds(10, 20, first=10)) == []


@pytest.mark.parametrize("following", [(15, 15), (15, 16), (14, 15)])
def test_the_batches_may_end_at_either_of_the_offsets_between_which_they_must_end(following: tuple[int, int]) -> None:
    assert read(plain(13, 2), bounds=PartBounds(10, 20, following=following)) == [13, 14]


def test_an_old_message_set_has_the_offset_of_its_last_message_and_may_begin_before_the_first_wanted() -> None:
    messages = b"".join(hostile.message(1, b"v", offset=offset) for offset in range(3))
    log = hostile.message_set(1, messages, 12)
    assert read(log, bounds=PartBounds(10, 20, first=11), offsets=(11, 13)) == [11, 12]


def test_the_first_batch_may_begin_at_the_offset_that_was_looked_for() -> None:
    assert read(plain(11, 2), bounds=PartBounds(10, 20, first=11), offsets=(11, 13)) == [11, 12]
