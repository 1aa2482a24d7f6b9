"""Bounds for the offsets of the record batches in a part of a segment, which is a range of its bytes.

A batch's CRC-32C does not cover its base offset, and an offset index has no checksum at all. But the segment's metadata
and its offset index both state which offsets the bytes must have. Other offsets show that the log or the index is
altered.
"""

from __future__ import annotations

from dataclasses import dataclass

from tiered_stream.errors import CorruptDataError
from tiered_stream.records.header import MAGIC


@dataclass(frozen=True, slots=True)
class PartBounds:
    """Bounds for the offsets of the batches in a part of a segment. Methods raise CorruptDataError for other offsets.

    No batch may have an offset below `lowest` or above `highest`. The first batch must begin at offset `first` or
    before it. The offset after the last batch must lie between `following[0]` and `following[1]`, both included. A
    bound that is None is not checked.
    """

    lowest: int
    highest: int
    first: int | None = None
    following: tuple[int, int] | None = None

    def check_first(self, base_offset: int, magic: int) -> None:
        """Check the part's first batch: its base offset against `lowest` and, for magic 2, against `first`."""
        if base_offset < self.lowest:
            raise CorruptDataError(f"its first batch begins at offset {base_offset}, before its segment")
        if magic >= MAGIC and self.first is not None and base_offset > self.first:
            raise CorruptDataError(
                f"the batch where offset {self.first} was looked for begins at {base_offset}: log or offset index was "
                "altered"
            )

    def check_next(self, next_offset: int) -> None:
        """Check `next_offset`, the offset after a batch of the part, against `highest`."""
        if next_offset > self.highest + 1:
            raise CorruptDataError(f"a batch ends at offset {next_offset - 1}, beyond its segment")

    def check_end(self, next_offset: int) -> None:
        """Check `next_offset`, the offset after the part's last batch, against `following`."""
        if self.following is not None and not self.following[0] <= next_offset <= self.following[1]:
            first, last = self.following
            raise CorruptDataError(
                f"the batches end before offset {next_offset}, the offset index says between {first} and {last}: one "
                "of the two was altered"
            )
