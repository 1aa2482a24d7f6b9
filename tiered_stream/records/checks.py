"""Checks of a segment part's record batches against what its indexes say.

A batch's CRC-32C does not cover its base offset, and offset and transaction indexes have no checksum at all. But some
facts are stored twice: segment and offset index both state which offsets the bytes hold, and the log has a marker at
the end of each transaction. If the two disagree, some of the bytes are not the bytes that the broker wrote.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tiered_stream.errors import CorruptDataError
from tiered_stream.model import AbortedTransaction
from tiered_stream.records import kernels
from tiered_stream.records.header import MAGIC, START


@dataclass(frozen=True, slots=True)
class PartBounds:
    """Bounds for the offsets of the batches in a segment part.

    No batch has an offset below `lowest` or above `highest`. The first batch begins at offset `first` or before it;
    None means that this is not checked. The offset after the last batch lies from `following[0]` to `following[1]`,
    both included; None means that this is not checked.
    """

    lowest: int
    highest: int
    first: int | None = None
    following: tuple[int, int] | None = None


@dataclass(slots=True)
class PartCheck:
    """Check of a segment part's batches, in order as they are decoded. Methods raise CorruptDataError on a fault.

    `offsets` are the start and the end (exclusive) of the offsets that are read. `aborted` lists the aborted
    transactions that are filtered out; None means that transactions are not filtered.
    """

    bounds: PartBounds
    offsets: tuple[int, int]
    aborted: Collection[AbortedTransaction] | None = None
    _begun: bool = False
    _gaps: bool = False
    _begins: set[tuple[int, int]] = field(init=False)
    _ends: set[tuple[int, int]] = field(init=False)
    _covered: dict[int, bool] = field(default_factory=dict)
    """Whether the producer's records since its last marker count as aborted, by producer id."""

    def __post_init__(self) -> None:
        start, end = self.offsets
        aborted = self.aborted or ()
        self._begins = {(each.producer_id, each.first_offset) for each in aborted if start <= each.first_offset < end}
        self._ends = {(each.producer_id, each.last_offset) for each in aborted if start <= each.last_offset < end}

    def batches(self, data: memoryview, next_offset: int) -> None:
        """Check the offsets of the whole batches in `data`; `next_offset` is the offset after the last of them."""
        if not data:
            return
        if not self._begun:
            self._begun = True
            base_offset, _, magic = START.unpack_from(data)
            self._check_first(base_offset, magic)
            self._gaps = base_offset > self.offsets[0]
        if next_offset > self.bounds.highest + 1:
            raise CorruptDataError(f"a batch ends at offset {next_offset - 1}, beyond its segment")

    def transactions(self, batches: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        """Check transactional batches against `aborted`; `batches` are rows that `kernels.scan_batches` has listed."""
        if self.aborted is None:
            return
        for offset, producer_id, kind, covered in batches.tolist():
            agrees = True
            if kind == kernels.RECORDS:
                agrees = self._covered.setdefault(producer_id, bool(covered)) == bool(covered)
                self._begins.discard((producer_id, offset))
            elif kind == kernels.COMMIT_MARKER:
                agrees = not covered and not self._covered.pop(producer_id, False)
            elif kind == kernels.ABORT_MARKER:
                agrees = self._covered.pop(producer_id, True) and (not covered or (producer_id, offset) in self._ends)
                self._ends.discard((producer_id, offset))
            if not agrees:
                raise _disagreement(f"what became of producer {producer_id}'s transaction at offset {offset}")

    def end(self, next_offset: int, gaps: bool) -> None:
        """Check the end of the part, after its last batch; `gaps` states that offsets are missing between batches.

        Compaction leaves gaps and may remove a transaction's first batch: between other batches of the part, or before
        or after all of them. So missing first records of transactions are an error only in a part without gaps.
        """
        gaps = gaps or self._gaps or next_offset < self.offsets[1]
        following = self.bounds.following
        if following is not None and not following[0] <= next_offset <= following[1]:
            raise CorruptDataError(
                f"the batches end before offset {next_offset}, the offset index says between {following[0]} and "
                f"{following[1]}: one of the two was altered"
            )
        if self._ends:
            producer_id, offset = min(self._ends)
            raise _disagreement(f"producer {producer_id}'s marker at offset {offset}")
        if self._begins and not gaps:
            producer_id, offset = min(self._begins)
            raise _disagreement(f"producer {producer_id}'s first record at offset {offset}")

    def _check_first(self, base_offset: int, magic: int) -> None:
        if base_offset < self.bounds.lowest:
            raise CorruptDataError(f"its first batch begins at offset {base_offset}, before its segment")
        if magic >= MAGIC and self.bounds.first is not None and base_offset > self.bounds.first:
            raise CorruptDataError(
                f"the batch where offset {self.bounds.first} was looked for begins at {base_offset}: log or offset "
                "index was altered"
            )


def _disagreement(about: str) -> CorruptDataError:
    return CorruptDataError(
        f"the transaction indexes and the log do not agree on {about}: one of them was altered. "
        "With kafka.isolation.level=read_uncommitted no transaction index is needed"
    )
