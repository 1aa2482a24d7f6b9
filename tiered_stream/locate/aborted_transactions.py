"""Finds the aborted transactions of tiered offsets in transaction indexes.

A transaction is listed in the index of the segment that holds its abort marker. So the search goes on through later
segments until no transaction that began in the wanted offsets can still be undecided. The producer snapshot at a
segment's end proves that if it lists no open transaction from before the wanted end. If there is no usable snapshot, an
index entry whose last stable offset is at or beyond the wanted end proves it (Kafka: `RemoteLogManager`,
`collectAbortedTransactions`). If the tier ends before that, the brokers must be asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tiered_stream.errors import CorruptDataError, StorageAccessError, StorageObjectNotFoundError, naming
from tiered_stream.locate.indexes.index_cache import IndexCache
from tiered_stream.locate.indexes.index_files import parse_transaction_index
from tiered_stream.locate.lineage import VisibleSegment, VisibleSegments
from tiered_stream.model import AbortedTransaction, OffsetRange, RemoteLogSegment
from tiered_stream.records.snapshots import open_transactions, parse_producer_snapshot
from tiered_stream.storage.fetcher import IndexType

TRANSACTION_INDEXES = (IndexType.TRANSACTION, IndexType.PRODUCER_SNAPSHOT)


@dataclass(frozen=True, slots=True)
class AbortedSearch:
    """Result of a search for aborted transactions, sorted.

    `seam` is the offset at which the tier ended before all transactions were decided, or None if all were decided.
    """

    found: tuple[AbortedTransaction, ...]
    seam: int | None


@dataclass(slots=True)
class _Search:
    visible: VisibleSegments
    wanted: OffsetRange
    cache: IndexCache
    found: set[AbortedTransaction] = field(default_factory=set)

    def take(self, at: int) -> bool:
        """Add the segment's aborted transactions that touch the wanted offsets.

        Return True if every transaction that begins before the wanted end is decided. If a marker lies outside the
        offsets for which this segment counts, its entry is ignored, because another segment lists it.
        """
        part = self.visible[at]
        data = self._indexes(part.segment).get(IndexType.TRANSACTION, b"")
        entries = parse_transaction_index(data, part.segment.base_offset)
        counting = [entry for entry in entries if entry.transaction.last_offset in part.offsets]
        self._check([entry.transaction for entry in entries], at)
        self.found.update(
            entry.transaction
            for entry in counting
            if entry.transaction.last_offset >= self.wanted.start and entry.transaction.first_offset < self.wanted.end
        )
        open_then = self._open_at_end(at)
        if open_then is None:
            return any(entry.last_stable_offset >= self.wanted.end for entry in counting)
        return all(first >= self.wanted.end for _, first in open_then)

    def _check(self, transactions: Sequence[AbortedTransaction], at: int) -> None:
        """Check the transaction index, which has no checksum, against the segment and the producer snapshot
        before it.
        """
        part = self.visible[at]
        if transactions and transactions[-1].last_offset > part.segment.end_offset:
            raise CorruptDataError(f"transaction index: a transaction that ended at {transactions[-1].last_offset}")
        earlier = [each for each in transactions if each.first_offset < part.segment.base_offset]
        if not earlier or not at or self.visible.ends_at(at - 1) or part.offsets.start != part.segment.base_offset:
            return
        try:
            with naming(f"before it, {self.visible[at - 1].segment}"):
                open_before = self._open_at_end(at - 1)
        except (StorageObjectNotFoundError, StorageAccessError):  # deleted meanwhile: no index to compare with
            return
        for each in earlier:
            if open_before is not None and (each.producer_id, each.first_offset) not in open_before:
                raise CorruptDataError(
                    f"transaction index: no transaction of producer {each.producer_id} from offset "
                    f"{each.first_offset} was open when the segment began, its producer snapshot says"
                )

    def _open_at_end(self, at: int) -> frozenset[tuple[int, int]] | None:
        """Return (producer id, first offset) of each transaction open at the segment's end; None if unknown."""
        part = self.visible[at]
        snapshot = self._indexes(part.segment).get(IndexType.PRODUCER_SNAPSHOT)
        if snapshot is None or part.offsets.end != part.segment.end_offset + 1:
            return None
        return frozenset(open_transactions(parse_producer_snapshot(snapshot)))

    def _indexes(self, segment: RemoteLogSegment) -> dict[IndexType, bytes]:
        only_snapshot = (IndexType.PRODUCER_SNAPSHOT,)
        return self.cache.get(segment, only_snapshot if segment.transaction_index_empty else TRANSACTION_INDEXES)


def find_aborted(visible: Sequence[VisibleSegment], at: int, wanted: OffsetRange, cache: IndexCache) -> AbortedSearch:
    """Find the aborted transactions that touch `wanted`, a range in `visible[at]`; `visible` is sorted and disjoint.

    Raises:
        StorageError: an index cannot be read.
        CorruptDataError, UnsupportedDataError: an index is malformed; the message names the segment.
    """
    visible = visible if isinstance(visible, VisibleSegments) else VisibleSegments(visible)
    search = _Search(visible, wanted, cache)
    while True:
        at = visible.next_stop(at)
        part = visible[at]
        with naming(part.segment):
            decided = not part.segment.transaction_index_empty and search.take(at)
        if decided or visible.ends_at(at):
            return AbortedSearch(tuple(sorted(search.found)), None if decided else part.offsets.end)
        at += 1
