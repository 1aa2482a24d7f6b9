"""The aborted transactions of tiered offsets, from transaction indexes.

A transaction is listed where it ended: in the index of the segment that holds its abort marker. So the search goes on
through later segments until nothing that began in the wanted offsets can still be undecided. The producer snapshot of
a segment's end says so, when it knows of no transaction from before the wanted end; where it cannot be used, an index
entry whose last stable offset lies at or beyond that end does (Kafka: `RemoteLogManager`,
`collectAbortedTransactions`). Where the tier ends first, whoever has the log's rest must be asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tiered_stream.errors import CorruptDataError
from tiered_stream.fetch.base import IndexType
from tiered_stream.locate.index_cache import IndexCache, describe
from tiered_stream.locate.lineage import VisibleSegment, VisibleSegments
from tiered_stream.offsets import OffsetRange
from tiered_stream.records.indexes import parse_transaction_index
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

    def take(self, piece: VisibleSegment, indexes: dict[IndexType, bytes]) -> bool:
        """Add what touches the wanted offsets; True: everything that begins before their end is decided.

        Entries whose marker lies outside the offsets for which the segment counts are another segment's to tell.
        """
        segment = piece.segment
        entries = parse_transaction_index(indexes.get(IndexType.TRANSACTION, b""), segment.base_offset)
        if entries and entries[-1].transaction.last_offset > segment.end_offset:
            raise CorruptDataError(
                f"transaction index: a transaction that ended at {entries[-1].transaction.last_offset}, after it"
            )
        counting = [entry for entry in entries if entry.transaction.last_offset in piece.offsets]
        self.found.update(
            entry.transaction
            for entry in counting
            if entry.transaction.last_offset >= self.wanted.start and entry.transaction.first_offset < self.wanted.end
        )
        snapshot = indexes.get(IndexType.PRODUCER_SNAPSHOT)
        if snapshot is None or piece.offsets.end != segment.end_offset + 1:
            return any(entry.last_stable_offset >= self.wanted.end for entry in counting)
        # Unlike the index, the snapshot has a checksum.
        open_from = (producer.current_txn_first_offset for producer in parse_producer_snapshot(snapshot))
        return all(first is None or first >= self.wanted.end for first in open_from)

    def result(self, seam: int | None) -> AbortedSearch:
        return AbortedSearch(tuple(sorted(self.found)), seam)


def find_aborted(visible: Sequence[VisibleSegment], at: int, wanted: OffsetRange, cache: IndexCache) -> AbortedSearch:
    """The aborted transactions that touch `wanted`, which lies in `visible[at]`; `visible` is sorted and disjoint.

    Raises:
        StorageError: an index cannot be had.
        CorruptDataError, UnsupportedDataError: an index does not have its format; the message names the segment.
    """
    visible = visible if isinstance(visible, VisibleSegments) else VisibleSegments(visible)
    search = _Search(wanted)
    while True:
        at = visible.next_stop(at)
        piece = visible[at]
        if not piece.segment.transaction_index_empty:
            indexes = cache.get(piece.segment, TRANSACTION_INDEXES)
            try:
                if search.take(piece, indexes):
                    return search.result(None)
            except CorruptDataError as error:
                raise CorruptDataError(f"{describe(piece.segment)}: {error}") from error
        if visible.ends_at(at):
            return search.result(piece.offsets.end)
        at += 1
