"""Decompression of record batches into allocated memory, so that no batch can take more memory than a limit.

Codec numbers in a batch's attributes (Kafka: `CompressionType`): 1 gzip, 2 snappy, 3 lz4 (frame), 4 zstd. Snappy data
is one bare block, or has the framing of snappy-java: 16 bytes (magic `82 SNAPPY 00`, version and lowest compatible
version int32 each), then blocks, each after its length (int32).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cramjam
import numpy as np

from tiered_stream.data_limits import Limit
from tiered_stream.errors import CorruptDataError, UnsupportedDataError
from tiered_stream.records.memory import allocate

_SNAPPY_JAVA_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_JAVA_HEADER = 16
_TOO_SMALL = "failed to write whole buffer"
_SMALLEST, _GROWTH = 1 << 16, 16

Buffer = Any
"""A numpy array of uint8."""


class _TooSmallError(Exception):
    """Error for decompressed data that does not fit into the output buffer, but may fit into a larger one."""


def _framed(decompress_into: Callable[[Any, Any], int]) -> Callable[[memoryview, Buffer], int]:
    def decompress(packed: memoryview, to: Buffer) -> int:
        try:
            return decompress_into(packed, to)
        except cramjam.DecompressionError as error:
            if _TOO_SMALL in str(error):
                raise _TooSmallError from error
            raise

    return decompress


def _snappy_block(packed: memoryview, to: Buffer) -> int:
    if cramjam.snappy.decompress_raw_len(packed) > len(to):
        raise _TooSmallError
    return cramjam.snappy.decompress_raw_into(packed, to)


def _snappy(packed: memoryview, to: Buffer) -> int:
    if packed[: len(_SNAPPY_JAVA_MAGIC)] != _SNAPPY_JAVA_MAGIC:
        return _snappy_block(packed, to)
    at, written = _SNAPPY_JAVA_HEADER, 0
    while at < len(packed):
        size = int.from_bytes(packed[at : at + 4], "big")
        block = packed[at + 4 : at + 4 + size]
        if len(block) != size:
            raise cramjam.DecompressionError("a snappy block is longer than its batch")
        written += _snappy_block(block, to[written:])
        at += 4 + size
    return written


_CODECS: dict[int, tuple[str, Callable[[memoryview, Buffer], int]]] = {
    1: ("gzip", _framed(cramjam.gzip.decompress_into)),
    2: ("snappy", _snappy),
    3: ("lz4", _framed(cramjam.lz4.decompress_into)),
    4: ("zstd", _framed(cramjam.zstd.decompress_into)),
}


class DecompressedRecords:
    """Buffer of about `size` bytes for the decompressed records of several batches, one batch after the other.

    If the first batch needs more bytes, the buffer grows up to `limit`. Later batches must fit into the rest of the
    buffer. The attribute `used` is the number of bytes that are filled.
    """

    def __init__(self, size: int, limit: Limit) -> None:
        self._buffer: Buffer = np.empty(0, np.uint8)
        self._size = max(_SMALLEST, size)
        self._limit = limit
        self.used = 0

    def append(self, codec: int, packed: memoryview) -> tuple[int, int] | None:
        """Decompress a batch's records, which are `packed`; return the positions of their start and end in `data()`.

        `codec` is the number of the codec. The result is None if the rest of the buffer is too small for the records.

        Raises:
            CorruptDataError: `packed` is not valid data of the codec.
            DataLimitError: `packed` decompresses to more than the limit.
            UnsupportedDataError: the codec is unknown.
        """
        if codec not in _CODECS:
            raise UnsupportedDataError(f"compression codec {codec}; known are 1 gzip, 2 snappy, 3 lz4, 4 zstd")
        name, decompress = _CODECS[codec]
        if not len(self._buffer):
            self._buffer = allocate(self._size, np.uint8)
        while True:
            free = self._buffer[self.used : self.used + self._limit.maximum]
            try:
                written = decompress(packed, free)
            except _TooSmallError:
                if len(free) == self._limit.maximum:
                    what = f"the batch's {name} data decompresses to more than {len(free)} bytes"
                    raise self._limit.exceeded(what) from None
                if self.used:
                    return None
                size = min(_GROWTH * len(self._buffer), self._limit.maximum)
                del free, self._buffer
                self._buffer = allocate(size, np.uint8)
            except cramjam.DecompressionError as error:
                raise CorruptDataError(f"{name} data does not decompress: {error}") from error
            else:
                start, self.used = self.used, self.used + written
                return start, self.used

    def data(self) -> Buffer:
        """Return the records of all batches that have been appended so far, as a read-only array of bytes."""
        data = self._buffer[: self.used]
        data.flags.writeable = False
        return data
