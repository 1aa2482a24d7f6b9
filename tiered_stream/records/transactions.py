"""Aborted transactions, as a filter by interval (Kafka: `AbortedTxn`, `FetchResponse.AbortedTransaction`)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence

from tiered_stream.model import AbortedTransaction
from tiered_stream.records.header import CONTROL_BIT, HEADER, MAGIC, whole_batches


def aborted_in_fetched(
    data: bytes | memoryview, aborted: Collection[tuple[int, int]], end_offset: int
) -> tuple[AbortedTransaction, ...]:
    """The intervals of a Fetch answer's aborted transactions, which it gives as (producer id, first offset) alone.

    `data` are the answer's record batches, the last perhaps cut off. A transaction ends with the producer's next
    marker, which is a control batch; one without a marker in `data` lasts beyond it, to `end_offset`.

    Raises:
        CorruptDataError: the bytes are no sequence of batches.
    """
    if not aborted:
        return ()
    markers: dict[int, list[int]] = {}
    for offset, producer_id in control_batches(data):
        markers.setdefault(producer_id, []).append(offset)
    return tuple(
        AbortedTransaction(producer_id, first, _following(markers.get(producer_id, ()), first, end_offset))
        for producer_id, first in aborted
    )


def _following(markers: Sequence[int], first: int, end_offset: int) -> int:
    """The first of the ascending `markers` after `first`, else the end."""
    at = bisect_right(markers, first)
    return markers[at] if at < len(markers) else end_offset


def control_batches(data: bytes | memoryview) -> Iterator[tuple[int, int]]:
    """Base offset and producer id of each whole control batch.

    Raises:
        CorruptDataError: the bytes are no sequence of batches.
    """
    for at, base_offset, magic in whole_batches(data):
        if magic == MAGIC:
            _, _, _, _, _, attributes, _, _, _, producer_id, *_ = HEADER.unpack_from(data, at)
            if attributes & CONTROL_BIT:
                yield base_offset, producer_id
