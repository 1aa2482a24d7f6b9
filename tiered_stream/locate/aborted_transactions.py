"""Search for the aborted transactions of tiered offsets in transaction indexes.

A transaction index lists the transactions whose abort markers are in its segment. So the search continues in later
segments until every transaction that began before the end of the wanted offsets is known to have ended. The producer
snapshot at a segment's end proves this if it lists no open transaction that began before the end of the wanted offsets.
Without a usable snapshot, an index entry proves this if its last stable offset is at or beyond the end of the wanted
offsets (Kafka: `RemoteLogManager.collectAbortedTransactions`). If the tiered segments end before there is a proof, the
brokers must be asked.
"""

from __future__ import annotations

from dataclasses import dataclass

from tiered_stream.errors import CorruptDataError, naming
from tiered_stream.locate.index_files import IndexCache, open_transactions, parse_transaction_index
from tiered_stream.locate.visible_segments import VisibleSegment, VisibleSegments
from tiered_stream.model import AbortedTransaction, OffsetRange, touching
from tiered_stream.storage.fetcher import IndexType

TRANSACTION_INDEXES = (IndexType.TRANSACTION, IndexType.PRODUCER_SNAPSHOT)


@dataclass(frozen=True, slots=True)
class AbortedSearch:
    """Result of a search for aborted transactions.

    `transactions` are sorted. `seam` is None if the search has found how every transaction ended. Otherwise it is the
    offset at which the search had to end, because the tiered segments end there, or a gap between them begins.
    """

    transactions: tuple[AbortedTransaction, ...]
    seam: int | None


def find_aborted(visible: VisibleSegments, at: int, offsets: OffsetRange, cache: IndexCache) -> AbortedSearch:
    """Search for the aborted transactions that touch `offsets`, which are offsets of the segment `visible[at]`.

    The search begins with the transaction index of `visible[at]`, and continues in the next segments. It ends when all
    transactions that began before the end of `offsets` have ended. It also ends where the tiered segments end, or where
    offsets between two segments are missing.

    Raises:
        StorageError: an index cannot be read.
        CorruptDataError, UnsupportedDataError: an index is malformed; the message names the segment.
    """
    transactions: set[AbortedTransaction] = set()
    while True:
        at = visible.next_stop(at)
        part, decided = visible[at], False
        if not part.segment.transaction_index_empty:
            with naming(part.segment):
                ended, decided = _ended_in(part, offsets, cache)
            transactions.update(ended)
        if decided or visible.ends_at(at):
            return AbortedSearch(tuple(sorted(transactions)), None if decided else part.offsets.end)
        at += 1


def _ended_in(part: VisibleSegment, offsets: OffsetRange, cache: IndexCache) -> tuple[list[AbortedTransaction], bool]:
    """Return the aborted transactions with abort markers in `part` that touch `offsets`, and whether to end the search.

    The search ends if every transaction that begins before the end of `offsets` has ended in `part` or earlier. An
    index entry is ignored if its abort marker lies outside of `part.offsets`, because another segment's index lists the
    same transaction.
    """
    segment, indexes = part.segment, cache.get(part.segment, TRANSACTION_INDEXES)
    entries = parse_transaction_index(indexes.get(IndexType.TRANSACTION, b""), segment.base_offset)
    if entries and entries[-1].transaction.last_offset > segment.end_offset:
        last_offset = entries[-1].transaction.last_offset
        raise CorruptDataError(f"transaction index: a transaction that ended at {last_offset}, after it")
    entries = tuple(entry for entry in entries if entry.transaction.last_offset in part.offsets)
    snapshot = indexes.get(IndexType.PRODUCER_SNAPSHOT)
    if snapshot is None or part.offsets.end != segment.end_offset + 1:
        decided = any(entry.last_stable_offset >= offsets.end for entry in entries)
    else:
        decided = all(first >= offsets.end for _, first in open_transactions(snapshot))
    return list(touching([entry.transaction for entry in entries], offsets.start, offsets.end)), decided
