"""Parser of the Aiven plugin's `.rsm-manifest`: JSON that describes a segment's chunks, indexes and transformation.

    version                    "1"
    chunkIndex                 originalChunkSize, originalFileSize, type; with the type
        fixed                  transformedChunkSize, finalTransformedChunkSize
        variable               transformedChunks: the packed sizes (below), compressed with zstd, as base64
    segmentIndexes             offset, timestamp, producerSnapshot, leaderEpoch, transaction: position and size in the
                               `.indexes` object, or null
    compression                whether each chunk is a zstd frame
    encryption                 absent, or
        dataKey                KEYPAIRID:base64 of the AES key, encrypted with that key pair
        aad                    base64 of the additional authenticated data
    remoteLogSegmentMetadata   KIP-405's metadata; manifests of early plugin versions lack it

(Aiven: `SegmentManifestV1`, `KafkaTypeSerdeModule`.) The plugin cuts a log into chunks of equal size (the last may be
smaller). It compresses each chunk (but not indexes), encrypts chunks and indexes, and writes the chunks one after
another into the object. The list of their sizes is packed as follows (`ChunkSizesBinaryCodec`), all big-endian:

    int32  count               nothing follows if it is 0, only the last size if it is 1
    int32  base
    int8   width               bytes of each value below, 1 to 4
    uint   values[count - 1]   each of `width` bytes: every size but the last, minus base
    int32  last size
"""

from __future__ import annotations

import re
import struct
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import cramjam
import numpy as np
import numpy.typing as npt
import orjson

from tiered_stream.errors import CorruptDataError, UnsupportedDataError
from tiered_stream.model import ByteRange, LeaderEpoch, RemoteLogSegment, TopicPartition, is_topic_name, uuid_from_text
from tiered_stream.storage.fetcher import IndexType

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
    """Return the number of chunks of `original_chunk_size` bytes in a log of `original_file_size` bytes.

    Raises:
        ValueError: a size is impossible, or there are more than `MAX_CHUNKS` chunks.
    """
    if not 0 < original_chunk_size <= MAX_BYTES or not 0 <= original_file_size <= MAX_BYTES:
        raise ValueError(f"a log of {original_file_size} bytes in chunks of {original_chunk_size} bytes cannot be")
    count = -(-original_file_size // original_chunk_size)
    if count > MAX_CHUNKS:
        raise ValueError(f"{count} chunks of {original_chunk_size} bytes are more than the {MAX_CHUNKS} allowed")
    return count


def unpack_sizes(packed: bytes) -> npt.NDArray[np.int64]:
    """Return the transformed (compressed, encrypted) sizes in bytes of all chunks, from the packed list `packed`.

    The module's docstring describes the packed list.

    Raises:
        ValueError: the list is malformed, cut off, or has more than `MAX_CHUNKS` chunks.
    """
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


_T = TypeVar("_T")
_Json = dict[str, Any]

_base64 = partial(b64decode, validate=True)
_INDEX_NAMES = {
    "offset": IndexType.OFFSET,
    "timestamp": IndexType.TIMESTAMP,
    "producerSnapshot": IndexType.PRODUCER_SNAPSHOT,
    "leaderEpoch": IndexType.LEADER_EPOCH,
    "transaction": IndexType.TRANSACTION,
}


@dataclass(frozen=True, slots=True)
class SegmentEncryption:
    """AES key of one segment, which is encrypted with the RSA key pair `key_pair_id`.

    `aad` is the additional authenticated data of the segment's chunks and indexes.
    """

    key_pair_id: str
    encrypted_data_key: bytes
    aad: bytes


@dataclass(frozen=True, slots=True)
class SegmentManifest:
    """Contents of one segment's manifest.

    `indexes` has the byte range of each index in the `.indexes` object. `compression` is true if the chunks are
    compressed. `encryption` is None if the chunks are not encrypted. `segment` is None if an early plugin version wrote
    the manifest.
    """

    chunks: ChunkIndex
    indexes: Mapping[IndexType, ByteRange]
    compression: bool
    encryption: SegmentEncryption | None
    segment: RemoteLogSegment | None

    @property
    def is_transformed(self) -> bool:
        """True if the segment's chunks are compressed or encrypted."""
        return self.compression or self.encryption is not None


def parse_manifest(data: bytes, name: str) -> SegmentManifest:
    """Parse the manifest in `data`; `name` is the name of its object, for errors.

    Raises:
        CorruptDataError: `data` is not a manifest.
        UnsupportedDataError: the version of the manifest is unknown.
    """
    try:
        document = _checked(orjson.loads(data), dict, "the manifest")
        version = document.get("version")
        if version != "1":
            raise UnsupportedDataError(f"{name} is a manifest of version {str(version)[:20]!r}; only 1 is known")
        return _manifest(document)
    except (ValueError, cramjam.DecompressionError) as error:  # orjson's and base64's errors are ValueErrors
        raise CorruptDataError(f"{name} is not a segment manifest: {error}") from error


def _manifest(document: _Json) -> SegmentManifest:
    chunks = _chunk_index(_get(document, "chunkIndex", dict))
    indexes = _indexes(_get(document, "segmentIndexes", dict))
    compression = _get(document, "compression", bool)
    encryption = _encryption(document["encryption"]) if document.get("encryption") is not None else None
    if not compression and encryption is None and chunks.positions[-1] != chunks.original_file_size:
        raise ValueError("its chunks are not transformed, but do not have the sizes of the log's")
    metadata = document.get("remoteLogSegmentMetadata")
    segment = _segment(_checked(metadata, dict, "remoteLogSegmentMetadata"), chunks, indexes) if metadata else None
    return SegmentManifest(chunks, indexes, compression, encryption, segment)


def _chunk_index(json: _Json) -> ChunkIndex:
    chunk_size, file_size = _get(json, "originalChunkSize", int), _get(json, "originalFileSize", int)
    kind = json.get("type")
    if kind == "fixed":
        sizes = np.full(chunk_count(chunk_size, file_size), _integer(json, "transformedChunkSize"), np.int64)
        sizes[-1:] = _integer(json, "finalTransformedChunkSize")
    elif kind == "variable":
        packed = bytearray(MAX_PACKED_BYTES)  # this bounds the output, whatever size the frame claims
        size = cramjam.zstd.decompress_into(_base64(_get(json, "transformedChunks", str)), packed)
        sizes = unpack_sizes(bytes(packed[:size]))
    else:
        raise ValueError(f"its chunk index is of type {str(kind)[:20]!r}, not fixed or variable")
    return ChunkIndex(chunk_size, file_size, np.append(0, sizes).cumsum())


def _indexes(json: _Json) -> dict[IndexType, ByteRange]:
    indexes = {}
    for name, index_type in _INDEX_NAMES.items():
        index = json.get(name)
        if index is None and name == "transaction":
            continue
        index = _checked(index, dict, f"segmentIndexes.{name}")
        start, size = _integer(index, "position"), _integer(index, "size")
        if start + size > MAX_BYTES:
            raise ValueError(f"segmentIndexes.{name} ends at byte {start + size}, further than indexes may")
        indexes[index_type] = ByteRange(start, start + size)
    return indexes


def _encryption(json: object) -> SegmentEncryption:
    encryption = _checked(json, dict, "encryption")
    key_pair_id, colon, data_key = _get(encryption, "dataKey", str).partition(":")
    if not key_pair_id or not colon:
        raise ValueError("encryption.dataKey is not of the form KEYPAIRID:base64")
    return SegmentEncryption(key_pair_id, _base64(data_key), _base64(_get(encryption, "aad", str)))


def _segment(json: _Json, chunks: ChunkIndex, indexes: Mapping[IndexType, ByteRange]) -> RemoteLogSegment:
    segment_id = _get(json, "remoteLogSegmentId", dict)
    topic_id_partition = _get(segment_id, "topicIdPartition", dict)
    topic_partition = _get(topic_id_partition, "topicPartition", dict)
    topic, partition = _get(topic_partition, "topic", str), _integer(topic_partition, "partition")
    base_offset, end_offset = _get(json, "startOffset", int), _get(json, "endOffset", int)
    if not is_topic_name(topic):
        raise ValueError(f"{topic[:40]!r} is not a topic's name")
    if not 0 <= base_offset <= end_offset < (1 << 63) - 1:
        raise ValueError(f"a segment cannot have offsets {base_offset} to {end_offset}")
    no_transactions = IndexType.TRANSACTION not in indexes
    if no_transactions and json.get("txnIdxEmpty") is False:  # older plugins do not write txnIdxEmpty
        raise ValueError("it says that the transaction index is not empty, but not where it is")
    return RemoteLogSegment(
        topic_partition=TopicPartition(topic, partition),
        topic_id=uuid_from_text(_get(topic_id_partition, "topicId", str)),
        segment_id=uuid_from_text(_get(segment_id, "id", str)),
        base_offset=base_offset,
        end_offset=end_offset,
        size=chunks.original_file_size,
        max_timestamp=_integer(json, "maxTimestampMs", -(1 << 63), 1 << 63),
        leader_epochs=_leader_epochs(_get(json, "segmentLeaderEpochs", dict)),
        transaction_index_empty=no_transactions,
    )


def _leader_epochs(json: _Json) -> tuple[LeaderEpoch, ...]:
    epochs = []
    for epoch, start_offset in json.items():
        if not re.fullmatch(r"\d{1,10}", epoch, re.ASCII) or int(epoch) >= 1 << 31:
            raise ValueError(f"{epoch[:40]!r} is not a leader epoch")
        start_offset = _checked(start_offset, int, f"the start offset of leader epoch {epoch}")
        if not 0 <= start_offset < 1 << 63:
            raise ValueError(f"leader epoch {epoch} starts at offset {start_offset}")
        epochs.append(LeaderEpoch(int(epoch), start_offset))
    return tuple(sorted(epochs, key=lambda entry: entry.epoch))


def _get(json: _Json, name: str, kind: type[_T]) -> _T:
    """Return the field `name`. Raises ValueError if it is missing or not of type `kind`."""
    return _checked(json.get(name), kind, name)


def _checked(value: object, kind: type[_T], name: str) -> _T:
    if type(value) is not kind:  # not isinstance, because `True` is an instance of int
        raise ValueError(f"{name} is missing" if value is None else f"{name} is not of type {kind.__name__}")
    return value


def _integer(json: _Json, name: str, lowest: int = 0, end: int = 1 << 31) -> int:
    """Return the field `name`. Raises ValueError if it is no integer from `lowest` (inclusive) to `end` (exclusive)."""
    value = _get(json, name, int)
    if not lowest <= value < end:
        raise ValueError(f"{name} {value} is out of range")
    return value
