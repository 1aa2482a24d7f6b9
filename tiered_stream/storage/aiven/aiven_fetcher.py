"""Fetcher for the layout of Aiven's tiered storage plugin (`io.aiven.kafka.tieredstorage.RemoteStorageManager`).

    PREFIX TOPIC-TOPICID/PARTITION/OFFSET20-SEGMENTID.log             the chunks of the segment
    PREFIX TOPIC-TOPICID/PARTITION/OFFSET20-SEGMENTID.indexes         all indexes, one after another
    PREFIX TOPIC-TOPICID/PARTITION/OFFSET20-SEGMENTID.rsm-manifest    positions of chunks and indexes, transformations

PREFIX is `key.prefix` unchanged (it ends with a slash only if `key.prefix` does); ids are in Kafka's text form. A
prefix or key in the segment's custom metadata takes precedence. Manifests are of version 1. Byte positions outside this
module are positions in the log as the broker wrote it, before any transformation.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import cramjam
import numpy as np

from tiered_stream.data_limits import DEFAULT_LIMITS, Limits
from tiered_stream.errors import CorruptDataError
from tiered_stream.model import ByteRange, RemoteLogSegment, uuid_to_text
from tiered_stream.process.caches import SingleFlightCache
from tiered_stream.records.codecs import Buffer
from tiered_stream.records.memory import allocate
from tiered_stream.storage.aiven.custom_metadata import parse_custom_metadata
from tiered_stream.storage.aiven.encryption import ChunkCipher, KeyRing
from tiered_stream.storage.aiven.manifest import SegmentManifest, parse_manifest
from tiered_stream.storage.fetcher import SNAPSHOTS, IndexType, StoreFetcher, cut
from tiered_stream.storage.object_store import ObjectStore

_CACHED_MANIFESTS = 256


@dataclass(frozen=True, slots=True)
class _OpenSegment:
    """Manifest of a segment, and the cipher of its chunks and indexes (None if they are not encrypted)."""

    manifest: SegmentManifest
    cipher: ChunkCipher | None


class AivenLayoutFetcher(StoreFetcher):
    """Fetcher of segments and indexes that the Aiven plugin wrote, with or without compression and encryption.

    Args:
        key_prefix: the plugin's `key.prefix`.
        key_ring: private keys, for encrypted segments.
    """

    def __init__(self, store: ObjectStore, key_prefix: str, key_ring: KeyRing, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(store, limits)
        self._key_prefix = key_prefix
        self._key_ring = key_ring
        self._open_segments: SingleFlightCache[str, _OpenSegment] = SingleFlightCache(_CACHED_MANIFESTS)

    def fetch_log_segment(self, segment: RemoteLogSegment, start: int, end: int = -1) -> bytes:
        byte_range = ByteRange(start, segment.size if end == -1 else end)
        key = self.key(segment, ".log")
        opened = self._open(segment)
        if byte_range.end > segment.size:
            raise CorruptDataError(f"{self.store.describe(key)} holds {segment.size} bytes of log, not {byte_range}")
        if not byte_range:
            return b""
        if not opened.manifest.is_transformed:
            return self.store.get(key, byte_range)
        return self._fetch_chunks(key, opened, byte_range)

    def fetch_indexes(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> dict[IndexType, bytes]:
        if segment.transaction_index_empty:
            types = set(types) - {IndexType.TRANSACTION}
        if not types:
            return {}
        opened = self._open(segment)
        ranges = {index_type: place for index_type, place in opened.manifest.indexes.items() if index_type in types}
        if not ranges:
            return {}
        # Read all indexes by one GET (KAFKA-15805), because the bytes between them are few.
        key, start = self.key(segment, ".indexes"), min(index.start for index in ranges.values())
        byte_range = ByteRange(start, max(index.end for index in ranges.values()))
        self.limits.index.check(len(byte_range), f"the bytes of indexes in {self.store.describe(key)}")
        for index_type in SNAPSHOTS & ranges.keys():
            self.limits.snapshot.check(
                len(ranges[index_type]), f"the {index_type.value} index in {self.store.describe(key)}"
            )
        data = memoryview(self.store.get(key, byte_range))
        return {
            index_type: self._plain_index(key, index_type, opened, data[index.start - start : index.end - start])
            for index_type, index in ranges.items()
        }

    def request_ranges(
        self, segment: RemoteLogSegment, byte_range: ByteRange, request_bytes: int
    ) -> Sequence[ByteRange]:
        manifest = self._open(segment).manifest
        return cut(byte_range, request_bytes, manifest.chunks.original_chunk_size if manifest.is_transformed else 1)

    def segment_metadata(self, segment: RemoteLogSegment) -> RemoteLogSegment | None:
        key = self.key(segment, ".rsm-manifest")
        described = self._open_segments.get(key, lambda: self._read_manifest(key)).manifest.segment
        if described is None:  # an early plugin version wrote the manifest
            return None
        if (described.segment_id, described.topic_id) != (segment.segment_id, segment.topic_id):
            raise CorruptDataError(f"{self.store.describe(key)} is of another segment: {described.segment_id}")
        return replace(described, custom_metadata=segment.custom_metadata)

    def signed_location(self, segment: RemoteLogSegment, seconds: int) -> str | None:
        """Return a signed URL of the log's object, which is valid for `seconds` seconds.

        Return None if the store cannot sign URLs. Also return None if the log was compressed or encrypted, because a
        reader of the object could not restore the log.
        """
        if self._open(segment).manifest.is_transformed:
            return None
        return super().signed_location(segment, seconds)

    def placed_by_metadata(self, segment: RemoteLogSegment) -> bool:
        return parse_custom_metadata(segment.custom_metadata).object_prefix is not None

    def key(self, segment: RemoteLogSegment, suffix: str) -> str:
        metadata = parse_custom_metadata(segment.custom_metadata)
        prefix = self._key_prefix if metadata.object_prefix is None else metadata.object_prefix
        return prefix + (main_path(segment) if metadata.object_key is None else metadata.object_key) + suffix

    def _open(self, segment: RemoteLogSegment) -> _OpenSegment:
        """Return the segment's manifest with the cipher, from the cache or the store.

        Raises:
            CorruptDataError: the manifest is malformed, or contradicts the segment's metadata.
        """
        key = self.key(segment, ".rsm-manifest")
        opened = self._open_segments.get(key, lambda: self._read_manifest(key))
        manifest, name = opened.manifest, self.store.describe(key)
        if manifest.segment is not None and manifest.segment.segment_id != segment.segment_id:
            raise CorruptDataError(f"{name} is of another segment: {manifest.segment.segment_id}")
        if manifest.chunks.original_file_size != segment.size:
            raise CorruptDataError(
                f"{name} says that the log has {manifest.chunks.original_file_size} bytes, "
                f"but the segment's metadata says {segment.size}"
            )
        return opened

    def _read_manifest(self, key: str) -> _OpenSegment:
        name = self.store.describe(key)
        manifest = parse_manifest(self.store.get(key, self.limits.manifest), name)
        if manifest.is_transformed:
            self.limits.chunk.check(manifest.chunks.largest, f"the bytes of a chunk, as {name} says")
        cipher = self._key_ring.cipher(manifest.encryption, name) if manifest.encryption else None
        return _OpenSegment(manifest, cipher)

    def _fetch_chunks(self, key: str, opened: _OpenSegment, byte_range: ByteRange) -> bytes:
        """Return the bytes `byte_range` of the log whose object has the key `key`.

        `opened` is the segment's manifest with the cipher. One GET fetches the chunks that hold these bytes. Then the
        chunks are decrypted and decompressed.
        """
        index = opened.manifest.chunks
        chunks = index.covering(byte_range)
        object_range = index.transformed(chunks)
        data = memoryview(self.store.get(key, object_range))
        log_start = index.original(chunks[0]).start
        log = allocate(index.original(chunks[-1]).end - log_start, np.uint8)
        for chunk in chunks:
            transformed, original = index.transformed(range(chunk, chunk + 1)), index.original(chunk)
            self._restore_chunk(
                f"chunk {chunk} of {self.store.describe(key)}",
                opened,
                data[transformed.start - object_range.start : transformed.end - object_range.start],
                log[original.start - log_start : original.end - log_start],
            )
        return log[byte_range.start - log_start : byte_range.end - log_start].tobytes()

    def _restore_chunk(self, name: str, opened: _OpenSegment, data: memoryview, log: Buffer) -> None:
        """Decrypt and decompress the chunk `data` into the buffer `log`; the result must fill the buffer exactly.

        `opened` is the segment's manifest with the cipher. `name` names the chunk in errors.
        """
        plain = data if opened.cipher is None else opened.cipher.decrypt(data, name)
        try:
            if opened.manifest.compression:
                size = cramjam.zstd.decompress_into(plain, log)  # fails if `log` is too small
            else:
                size = len(plain)
                log[:] = np.frombuffer(plain, np.uint8)
        except (cramjam.DecompressionError, ValueError) as error:
            raise CorruptDataError(f"{name} does not have the {len(log)} bytes of its chunk: {error}") from error
        if size != len(log):
            raise CorruptDataError(f"{name} has {size} bytes of log, not the {len(log)} of its chunk")

    def _plain_index(self, key: str, index_type: IndexType, opened: _OpenSegment, data: memoryview) -> bytes:
        if opened.cipher is None or not data:
            return bytes(data)
        return opened.cipher.decrypt(data, f"the {index_type.value} index in {self.store.describe(key)}")


def main_path(segment: RemoteLogSegment) -> str:
    """Return the key of the segment's objects without prefix and suffix (Aiven: `ObjectKeyFactory`)."""
    folder = f"{segment.topic_partition.topic}-{uuid_to_text(segment.topic_id)}/{segment.topic_partition.partition}"
    return f"{folder}/{segment.base_offset:020d}-{uuid_to_text(segment.segment_id)}"
