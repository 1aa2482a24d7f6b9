"""The aborted transactions of tiered offsets, from transaction indexes.

A transaction is listed where it ended: in the index of the segment that holds its abort marker. So the search goes on
through later segments until nothing that began in the wanted offsets can still be undecided. Two things say so: an
index entry whose last stable offset lies at or beyond the wanted end (Kafka: `RemoteLogManager`,
`collectAbortedTransactions`), or the producer snapshot of a segment's end that knows of no transaction from before it.
Where the tier ends first, whoever has the log's rest must be asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tiered_stream.errors import CorruptDataError
from tiered_stream.fetch.base import IndexType
from tiered_stream.locate.index_cache import IndexCache, describe
from tiered_stream.locate.lineage import VisibleSegment
from tiered_stream.offsets import OffsetRange
from tiered_stream.records.indexes import TransactionIndexEntry, parse_transaction_index
from tiered_stream.records.snapshots import parse_producer_snapshot
from tiered_stream.records.transactions import AbortedTransaction

TRANSACTION_INDEXES = (IndexType.TRANSACTION, IndexType.PRODUCER_SNAPSHOT)


@dataclass(frozen=True, slots=True)
class AbortedSearch:
    """The aborted transactions found, ascending; `seam`: where the tier ended before all was decided, else None."""

    found: tuple[AbortedTransaction, ...]
    seam: int | None


@dataclass(slots=True)
class _Search:
    wanted: OffsetRange
    found: set[AbortedTransaction] = field(default_factory=set)

    def take(self, entries: Sequence[TransactionIndexEntry], visible: OffsetRange) -> bool:
        """Add what touches the wanted offsets; True: everything that begins before their end is decided.

        Entries whose marker lies outside the offsets for which the segment counts are another segment's to tell.
        """
        for entry in entries:
            transaction = entry.transaction
            if transaction.last_offset not in visible:
                continue
            if transaction.last_offset >= self.wanted.start and transaction.first_offset < self.wanted.end:
                self.found.add(transaction)
            if entry.last_stable_offset >= self.wanted.end:
                return True
        return False

    def result(self, seam: int | None) -> AbortedSearch:
        return AbortedSearch(tuple(sorted(self.found)), seam)


def find_aborted(visible: Sequence[VisibleSegment], at: int, wanted: OffsetRange, cache: IndexCache) -> AbortedSearch:
    """The aborted transactions that touch `wanted`, which lies in `visible[at]`; `visible` is sorted and disjoint.

    Raises:
        StorageError: an index cannot be had.
        CorruptDataError, UnsupportedDataError: an index does not have its format; the message names the segment.
    """
    search = _Search(wanted)
    end = visible[at].offsets.start
    for piece in visible[at:]:
        if piece.offsets.start != end:
            break
        end = piece.offsets.end
        if piece.segment.transaction_index_empty:
            continue
        indexes = cache.get(piece.segment, TRANSACTION_INDEXES)
        try:
            entries = parse_transaction_index(indexes.get(IndexType.TRANSACTION, b""), piece.segment.base_offset)
            if search.take(entries, piece.offsets) or _decided_at_end(piece, indexes, wanted.end):
                return search.result(None)
        except CorruptDataError as error:
            raise CorruptDataError(f"{describe(piece.segment)}: {error}") from error
    return search.result(end)


def _decided_at_end(piece: VisibleSegment, indexes: dict[IndexType, bytes], before: int) -> bool:
    """Whether the segment's producer snapshot says that no transaction from below `before` is open at its end."""
    snapshot = indexes.get(IndexType.PRODUCER_SNAPSHOT)
    if snapshot is None or piece.offsets.end != piece.segment.end_offset + 1:
        return False
    open_from = (producer.current_txn_first_offset for producer in parse_producer_snapshot(snapshot))
    return all(first is None or first >= before for first in open_from)
