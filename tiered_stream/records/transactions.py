"""Offset intervals of aborted transactions (Kafka: `AbortedTxn`, `FetchResponse.AbortedTransaction`)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence

from tiered_stream.model import AbortedTransaction
from tiered_stream.records.header import CONTROL_BIT, HEADER, MAGIC, whole_batches


def aborted_in_fetched(
    data: bytes | memoryview, aborted: Collection[tuple[int, int]], end_offset: int
) -> tuple[AbortedTransaction, ...]:
    """Return the aborted transactions of a Fetch response, with their first and last offsets.

    `data` are the response's record batches; the last batch may be cut off. `aborted` are the transactions that the
    response lists, as (producer id, first offset). A transaction ends at the producer's next marker, which is a control
    batch. If `data` has no such marker, the last offset is `end_offset`.

    Raises:
        CorruptDataError: the bytes are not a sequence of batches.
    """
    if not aborted:
        return ()
    markers: dict[int, list[int]] = {}
    for offset, producer_id in control_batches(data):
        markers.setdefault(producer_id, []).append(offset)
    return tuple(
        AbortedTransaction(producer_id, first, _next_marker(markers.get(producer_id, ()), first, end_offset))
        for producer_id, first in aborted
    )


def _next_marker(markers: Sequence[int], first: int, end_offset: int) -> int:
    """Return the first of the ascending `markers` that is after `first`, or `end_offset` if there is none."""
    at = bisect_right(markers, first)
    return markers[at] if at < len(markers) else end_offset


def control_batches(data: bytes | memoryview) -> Iterator[tuple[int, int]]:
    """Yield base offset and producer id of each control batch in `data`, except a last batch that is cut off.

    Raises:
        CorruptDataError: the bytes are not a sequence of batches.
    """
    for at, base_offset, magic in whole_batches(data):
        if magic == MAGIC:
            _, _, _, _, _, attributes, _, _, _, producer_id, *_ = HEADER.unpack_from(data, at)
            if attributes & CONTROL_BIT:
                yield base_offset, producer_id
