"""Bounds for the offsets of a segment part's record batches, by the segment's metadata and its offset index.

A batch's CRC-32C does not cover its base offset, and an offset index has no checksum. But segment and offset index both
state which offsets the bytes hold. If the two disagree, records would be missing without notice.
"""

from __future__ import annotations

from dataclasses import dataclass

from tiered_stream.errors import CorruptDataError
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

    def check_first(self, batch: memoryview) -> None:
        """Check the base offset of the part's first batch. Raises: CorruptDataError if it is out of bounds."""
        base_offset, _, magic = START.unpack_from(batch)
        if base_offset < self.lowest:
            raise CorruptDataError(f"its first batch begins at offset {base_offset}, before its segment")
        if magic >= MAGIC and self.first is not None and base_offset > self.first:
            raise CorruptDataError(
                f"the batch where offset {self.first} was looked for begins at {base_offset}: log or offset index was "
                "altered"
            )

    def check_last(self, offset: int) -> None:
        """Check the last offset of a batch. Raises: CorruptDataError if the offset lies beyond the segment."""
        if offset > self.highest:
            raise CorruptDataError(f"a batch ends at offset {offset}, beyond its segment")

    def check_end(self, next_offset: int) -> None:
        """Check the offset after the part's last batch. Raises: CorruptDataError if it is out of bounds."""
        if self.following is not None and not self.following[0] <= next_offset <= self.following[1]:
            raise CorruptDataError(
                f"the batches end before offset {next_offset}, the offset index says between {self.following[0]} and "
                f"{self.following[1]}: one of the two was altered"
            )
