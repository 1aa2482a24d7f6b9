"""Offsets that a part of a log is said to have, held against its bytes; transactions that are left out of it."""

from __future__ import annotations

import struct

import pytest

from tests.records import hostile
from tests.records.batches import marker_batch, transactional_batch, with_attributes
from tests.rigs.stack.batches import record_batch
from tests.rigs.stack.rows import Record
from tiered_stream.errors import CorruptDataError
from tiered_stream.model import AbortedTransaction
from tiered_stream.records.decoder import PartBounds, RecordBatchDecoder
from tiered_stream.records.header import CONTROL_BIT

ANYWHERE = PartBounds(0, 1 << 40)
P, Q = 5, 6


def plain(offset: int, records: int = 1) -> bytes:
    return record_batch([Record(value=b"v")] * records, base_offset=offset)


def by(producer_id: int, offset: int) -> bytes:
    return transactional_batch([Record(value=b"v")], offset, producer_id)


def commit(producer_id: int, offset: int) -> bytes:
    return marker_batch(offset, producer_id, commit=True)


def abort(producer_id: int, offset: int) -> bytes:
    return marker_batch(offset, producer_id, commit=False)


def read(
    *batches: bytes,
    bounds: PartBounds = ANYWHERE,
    aborted: tuple[AbortedTransaction, ...] = (),
    offsets: tuple[int, int] = (0, 1 << 40),
) -> list[int]:
    """The offsets that are given of these batches, each fed alone."""
    decoder = RecordBatchDecoder("orders", 0, *offsets, aborted=aborted, bounds=bounds)
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


def test_transactions_that_became_what_the_list_says_are_read() -> None:
    log = by(P, 0), by(Q, 1), commit(P, 2), by(P, 3), abort(P, 4), by(P, 5), commit(Q, 6), by(Q, 7)
    aborted = AbortedTransaction(P, 3, 4), AbortedTransaction(Q, 7, 90)
    assert read(*log, aborted=aborted, offsets=(0, 8)) == [0, 1, 5]


def test_an_abort_marker_of_a_producer_that_wrote_nothing_needs_no_entry() -> None:
    assert read(abort(P, 0), by(P, 1), commit(P, 2), abort(P, 3)) == [1]


def test_what_lies_outside_the_offsets_is_not_looked_at() -> None:
    log = by(P, 0), abort(P, 1), plain(2), by(Q, 3), abort(Q, 4)
    assert read(*log, offsets=(2, 4)) == [2, 3]
    assert read(*log, offsets=(1, 3)) == [2]


@pytest.mark.parametrize(
    "batches",
    [
        (plain(0), by(P, 4), abort(P, 6), plain(7)),
        (by(P, 4), abort(P, 6), plain(7)),
        (abort(P, 6), plain(7)),
        (plain(7),),
        (plain(0),),
        (),
    ],
)
def test_a_transaction_whose_first_batch_was_compacted_away_is_read(batches: tuple[bytes, ...]) -> None:
    """Wherever in the part that was: between batches, before the first or after the last of them."""
    reaches = 6 if abort(P, 6) in batches else 20
    plain_ones = [offset for offset, batch in ((0, plain(0)), (7, plain(7))) if batch in batches]
    assert read(*batches, aborted=(AbortedTransaction(P, 2, reaches),), offsets=(0, 8)) == plain_ones


def test_a_transaction_that_begins_before_the_offsets_or_goes_on_after_them_is_left_out() -> None:
    log = by(P, 2), plain(3), abort(P, 4), by(Q, 5), plain(6)
    aborted = AbortedTransaction(P, 0, 4), AbortedTransaction(Q, 5, 7), AbortedTransaction(P, 7, 9)
    assert read(*log, aborted=aborted, offsets=(2, 7)) == [3, 6]


def test_a_marker_of_another_kind_ends_no_transaction() -> None:
    """Kafka has control records that are neither COMMIT nor ABORT, such as LEADER_CHANGE."""
    record = transactional_batch([Record(struct.pack(">hh", 0, 2), b"")], 1, P)
    other = with_attributes(record, int.from_bytes(record[21:23], "big") | CONTROL_BIT)
    log = by(P, 0), other, by(P, 2), abort(P, 3), plain(4)
    assert read(*log, aborted=(AbortedTransaction(P, 0, 3),), offsets=(0, 5)) == [4]


@pytest.mark.parametrize("following", [(15, 15), (15, 16), (14, 15)])
def test_the_batches_may_end_at_either_of_the_offsets_between_which_they_must_end(following: tuple[int, int]) -> None:
    assert read(plain(13, 2), bounds=PartBounds(10, 20, following=following)) == [13, 14]


def test_an_old_message_set_has_the_offset_of_its_last_message_and_may_begin_before_the_first_wanted() -> None:
    messages = b"".join(hostile.message(1, b"v", offset=offset) for offset in range(3))
    log = hostile.message_set(1, messages, 12)
    assert read(log, bounds=PartBounds(10, 20, first=11), offsets=(11, 13)) == [11, 12]


def test_the_first_batch_may_begin_at_the_offset_that_was_looked_for() -> None:
    assert read(plain(11, 2), bounds=PartBounds(10, 20, first=11), offsets=(11, 13)) == [11, 12]
