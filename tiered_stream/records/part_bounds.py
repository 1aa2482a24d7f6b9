"""Bounds for the offsets of a segment part's record batches.

A batch's CRC-32C does not cover its base offset, and an offset index has no checksum at all. But segment and offset
index both state which offsets the bytes hold. If they disagree with the bytes, the bytes are not the wanted ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from tiered_stream.errors import CorruptDataError
from tiered_stream.records.header import MAGIC


@dataclass(frozen=True, slots=True)
class PartBounds:
    """Bounds for the offsets of the batches in a segment part. Methods raise CorruptDataError if a batch is outside.

    No batch has an offset below `lowest` or above `highest`. The first batch begins at offset `first` or before it;
    None means that this is not checked. The offset after the last batch lies from `following[0]` to `following[1]`,
    both included; None means that this is not checked.
    """

    lowest: int
    highest: int
    first: int | None = None
    following: tuple[int, int] | None = None

    def check_first(self, base_offset: int, magic: int) -> None:
        """Check base offset and magic of the part's first batch."""
        if base_offset < self.lowest:
            raise CorruptDataError(f"its first batch begins at offset {base_offset}, before its segment")
        if magic >= MAGIC and self.first is not None and base_offset > self.first:
            raise CorruptDataError(
                f"the batch where offset {self.first} was looked for begins at {base_offset}: log or offset index was "
                "altered"
            )

    def check_next(self, next_offset: int) -> None:
        """Check the offset after a batch of the part."""
        if next_offset > self.highest + 1:
            raise CorruptDataError(f"a batch ends at offset {next_offset - 1}, beyond its segment")

    def check_end(self, next_offset: int) -> None:
        """Check the offset after the part's last batch."""
        if self.following is not None and not self.following[0] <= next_offset <= self.following[1]:
            first, last = self.following
            raise CorruptDataError(
                f"the batches end before offset {next_offset}, the offset index says between {first} and {last}: one "
                "of the two was altered"
            )
