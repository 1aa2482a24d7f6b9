"""Mapping of a log's bytes to the chunks of a transformed segment, and to bytes of the segment's object.

The Aiven plugin cuts a log into chunks of equal size (the last may be smaller). It transforms each chunk separately,
and writes the chunks one after another into the object. Its manifest gives the transformed sizes in one of two forms:
two numbers for all chunks (`fixed`), or a list (`variable`). The list is packed as follows (`ChunkSizesBinaryCodec`),
all big-endian:

    int32  count               nothing follows if it is 0, only the last size if it is 1
    int32  base
    int8   width               bytes of each value below, 1 to 4
    uint   values[count - 1]   each of `width` bytes: every size but the last, minus base
    int32  last size
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiered_stream.model import ByteRange

MAX_CHUNKS = 1 << 16
"""Maximum number of chunks of one segment.

The largest possible segment (2 GiB) has this number of chunks if a chunk has 32 KiB.
"""

MAX_BYTES = (1 << 31) - 1
"""Maximum of sizes and positions, which are Java ints."""

MAX_PACKED_BYTES = 13 + 4 * MAX_CHUNKS
"""Maximum number of bytes of a packed list of sizes."""

_HEAD = struct.Struct(">iib")  # count, base, width
_INT = struct.Struct(">i")


@dataclass(frozen=True, slots=True, eq=False)
class ChunkIndex:
    """Positions of one segment's chunks in the log and in the object.

    Chunk i holds the log's bytes from i times `original_chunk_size` on. `original_file_size` is the log's size in
    bytes. `positions` holds the position in the object at which each chunk begins, and then the object's size.

    Raises:
        ValueError: the sizes contradict each other, or exceed `MAX_CHUNKS` or `MAX_BYTES`.
    """

    original_chunk_size: int
    original_file_size: int
    positions: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        count = chunk_count(self.original_chunk_size, self.original_file_size)
        if len(self.positions) != count + 1:
            raise ValueError(f"{len(self.positions) - 1} chunks are listed, but the segment has {count}")
        if (np.diff(self.positions) <= 0).any():
            raise ValueError("a chunk has no bytes")
        if self.positions[-1] > MAX_BYTES:
            raise ValueError(f"the chunks have {self.positions[-1]} bytes together, more than an object may have")
        # zstd adds less than 0.5 % to data that does not compress, and the cipher adds 28 bytes.
        if (np.diff(self.positions) > 2 * self.original_chunk_size + 1024).any():
            raise ValueError(f"a chunk of {self.original_chunk_size} bytes takes too many bytes in the object")

    @property
    def largest(self) -> int:
        """Size in bytes of the largest chunk: in the object or in the log, whichever is larger."""
        restored = min(self.original_chunk_size, self.original_file_size)
        return max(restored, int(np.diff(self.positions).max(initial=0)))

    def covering(self, byte_range: ByteRange) -> range:
        """Return the indexes (from 0) of the chunks that hold the bytes `byte_range` (not empty) of the log."""
        return range(byte_range.start // self.original_chunk_size, (byte_range.end - 1) // self.original_chunk_size + 1)

    def original(self, chunk: int) -> ByteRange:
        """Return the byte range of the log that the chunk with the index `chunk` holds."""
        start = chunk * self.original_chunk_size
        return ByteRange(start, min(start + self.original_chunk_size, self.original_file_size))

    def transformed(self, chunks: range) -> ByteRange:
        """Return the byte range of the object that holds the chunks with the indexes `chunks`."""
        return ByteRange(int(self.positions[chunks.start]), int(self.positions[chunks.stop]))


def chunk_count(original_chunk_size: int, original_file_size: int) -> int:
    """Return the number of chunks of `original_chunk_size` bytes in a log of `original_file_size` bytes."""
    if not 0 < original_chunk_size <= MAX_BYTES or not 0 <= original_file_size <= MAX_BYTES:
        raise ValueError(f"a log of {original_file_size} bytes in chunks of {original_chunk_size} bytes cannot be")
    count = -(-original_file_size // original_chunk_size)
    if count > MAX_CHUNKS:
        raise ValueError(f"{count} chunks of {original_chunk_size} bytes are more than the {MAX_CHUNKS} allowed")
    return count


def fixed_sizes(count: int, size: int, final_size: int) -> npt.NDArray[np.int64]:
    """Return the transformed sizes of `count` chunks: `size` for each, and `final_size` for the last."""
    sizes = np.full(count, size, np.int64)
    sizes[-1:] = final_size
    return sizes


def unpack_sizes(packed: bytes) -> npt.NDArray[np.int64]:
    """Return the transformed sizes of all chunks in bytes. The module's docstring describes the packed list."""
    try:
        (count,) = _INT.unpack_from(packed)
        if not 0 <= count <= MAX_CHUNKS:
            raise ValueError(f"the list of chunk sizes claims {count} chunks")
        if count < 2:
            return np.frombuffer(packed, ">i4", count, _INT.size).astype(np.int64)
        _, base, width = _HEAD.unpack_from(packed)
        if base < 0 or not 1 <= width <= 4:
            raise ValueError(f"the list of chunk sizes has base {base} and {width} bytes a value")
        values = np.frombuffer(packed, np.uint8, (count - 1) * width, _HEAD.size).reshape(-1, width)
        (last,) = _INT.unpack_from(packed, _HEAD.size + values.size)
    except struct.error as error:
        raise ValueError("the list of chunk sizes is cut off") from error
    weights = 256 ** np.arange(width, dtype=np.int64)[::-1]
    return np.append(values @ weights + base, last)


def positions(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the byte positions at which chunks with these `sizes` begin, followed by the chunks' total size."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
