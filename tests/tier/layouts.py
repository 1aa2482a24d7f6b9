"""Objects in which storage plugins keep a segment, by their keys: `LocalTieredStorage`'s, and Aiven's plugin's."""

from __future__ import annotations

import json
import os
import struct
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import cramjam

from tests.tier.segments import TieredSegment
from tiered_stream.data_limits import DEFAULT_LIMITS, Limit
from tiered_stream.errors import StorageObjectNotFoundError
from tiered_stream.locate.archive.archive_listing import CopyListing, UnreadPlaces
from tiered_stream.locate.archive.archived_partitions import Archive
from tiered_stream.model import ByteRange, uuid_to_text
from tiered_stream.options.choices import StorageLayout
from tiered_stream.storage.aiven.aiven_fetcher import AivenLayoutFetcher, main_path
from tiered_stream.storage.aiven.encryption import KeyRing
from tiered_stream.storage.fetcher import IndexType, RemoteStorageFetcher
from tiered_stream.storage.local_layout import object_key
from tiered_stream.storage.object_store import ObjectStore
from tiered_stream.storage.segment_places import Place

if TYPE_CHECKING:
    from Crypto.PublicKey.RSA import RsaKey

LOCAL_SUFFIXES = {
    IndexType.OFFSET: ".index",
    IndexType.TIMESTAMP: ".timeindex",
    IndexType.PRODUCER_SNAPSHOT: ".snapshot",
    IndexType.LEADER_EPOCH: ".leader_epoch_checkpoint",
    IndexType.TRANSACTION: ".txnindex",
}
_INDEX_NAMES = {
    IndexType.OFFSET: "offset",
    IndexType.TIMESTAMP: "timestamp",
    IndexType.PRODUCER_SNAPSHOT: "producerSnapshot",
    IndexType.LEADER_EPOCH: "leaderEpoch",
    IndexType.TRANSACTION: "transaction",
}


@dataclass(frozen=True)
class AivenPlugin:
    """Settings of Aiven's plugin: chunks are compressed, and encrypted if there is a `public_key`."""

    prefix: str = ""
    chunk_size: int = 1 << 20
    compressed: bool = False
    public_key: RsaKey | None = None
    key_pair: str = "key1"

    def objects(self, tiered: TieredSegment) -> dict[str, bytes]:
        """Return the segment's log, indexes and manifest."""
        log, size = tiered.log, self.chunk_size
        encrypt, encryption = _cipher(self.public_key, self.key_pair)
        chunks = [log[at : at + size] for at in range(0, len(log), size)]
        if self.compressed:
            chunks = [bytes(cramjam.zstd.compress(chunk)) for chunk in chunks]
        chunks = [encrypt(chunk) for chunk in chunks]
        indexes = {each: encrypt(data) if (data := tiered.indexes[each]) else b"" for each in _INDEX_NAMES}
        manifest = {
            "version": "1",
            "chunkIndex": {
                "type": "variable" if self.compressed else "fixed",
                "originalChunkSize": size,
                "originalFileSize": tiered.segment.size,
                **(_packed(chunks) if self.compressed else _fixed(size, tiered.segment.size, len(encrypt(b"")))),
            },
            "segmentIndexes": _places(indexes, tiered.segment.transaction_index_empty),
            "compression": self.compressed,
            **encryption,
            "remoteLogSegmentMetadata": _metadata(tiered),
        }
        key = self.prefix + main_path(tiered.segment)
        return {
            f"{key}.log": b"".join(chunks),
            f"{key}.indexes": b"".join(indexes.values()),
            f"{key}.rsm-manifest": json.dumps(manifest, separators=(",", ":")).encode(),
        }


PLAIN = AivenPlugin()


def local_objects(tiered: TieredSegment) -> dict[str, bytes]:
    """Return the files of `LocalTieredStorage`, which has none for a transaction index that is empty."""
    files = {object_key(tiered.segment, LOCAL_SUFFIXES[each]): data for each, data in tiered.indexes.items()}
    if not tiered.indexes[IndexType.TRANSACTION]:
        del files[object_key(tiered.segment, ".txnindex")]
    return {object_key(tiered.segment, ".log"): tiered.log, **files}


def put(folder: Path, objects: Mapping[str, bytes]) -> None:
    """Write the objects below a folder."""
    for key, data in objects.items():
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(data)


class MemoryBucket(ObjectStore):
    """Bucket in memory, by default of segments as Aiven's plugin keeps them without compression and encryption."""

    def __init__(self, segments: Iterable[TieredSegment], plugin: AivenPlugin = PLAIN) -> None:
        self.objects = {key: data for each in segments for key, data in plugin.objects(each).items()}

    def fetcher(self, prefix: str = "", keys: KeyRing | None = None) -> AivenLayoutFetcher:
        return AivenLayoutFetcher(self, prefix, keys or KeyRing({}))

    def get(self, key: str, wanted: ByteRange | Limit) -> bytes:
        if key not in self.objects:
            raise StorageObjectNotFoundError(f"{key} does not exist")
        if isinstance(wanted, Limit):
            return self.objects[key]
        assert wanted.end <= len(self.objects[key])
        return self.objects[key][wanted.start : wanted.end]

    def size(self, key: str) -> int:
        return len(self.objects[key])

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        return (key for key in self.objects if key.startswith(prefix) and key > after)

    def describe(self, key: str) -> str:
        return f"memory:{key}"


def archive_in(
    store: ObjectStore,
    fetcher: RemoteStorageFetcher,
    key_prefix: str = "",
    topic_ids: Mapping[str, UUID] | None = None,
) -> Archive:
    """Archive of what is below a key prefix of a store, and nowhere else."""
    listing = CopyListing(store, (key_prefix,), DEFAULT_LIMITS.manifest, "rsm.config.")
    unread = UnreadPlaces(store, Place(StorageLayout.AIVEN, "", key_prefix), (key_prefix,), tuple)
    return Archive(listing, unread, fetcher, topic_ids or {})


def _cipher(public_key: RsaKey | None, key_pair: str) -> tuple[Callable[[bytes], bytes], Mapping[str, Any]]:
    """Return what encrypts chunks and indexes by a new data key, and the manifest's part about it."""
    if public_key is None:
        return bytes, {}
    from Crypto.Cipher import PKCS1_OAEP
    from Crypto.Hash import SHA3_512
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    data_key, aad = os.urandom(32), os.urandom(32)
    cipher = AESGCM(data_key)

    def encrypt(data: bytes) -> bytes:
        nonce = os.urandom(12)
        return nonce + cipher.encrypt(nonce, data, aad)

    wrapped = PKCS1_OAEP.new(public_key, hashAlgo=SHA3_512).encrypt(data_key)
    told = {"dataKey": f"{key_pair}:{b64encode(wrapped).decode()}", "aad": b64encode(aad).decode()}
    return encrypt, {"encryption": told}


def _fixed(chunk_size: int, log_size: int, more: int) -> dict[str, Any]:
    final = log_size - max(log_size - 1, 0) // chunk_size * chunk_size
    return {"transformedChunkSize": chunk_size + more, "finalTransformedChunkSize": final + more}


def _packed(chunks: Sequence[bytes]) -> dict[str, Any]:
    packed = cramjam.zstd.compress(pack_sizes(list(map(len, chunks))))
    return {"transformedChunks": b64encode(bytes(packed)).decode()}


def pack_sizes(sizes: Sequence[int]) -> bytes:
    """Return the packed sizes of chunks (Aiven: `ChunkSizesBinaryCodec`): the last one apart from the others."""
    *others, last = sizes
    packed = struct.pack(">i", len(sizes))
    if others:
        width = max(1, -(-(max(others) - min(others)).bit_length() // 8))
        packed += struct.pack(">ib", min(others), width)
        packed += b"".join((each - min(others)).to_bytes(width, "big") for each in others)
    return packed + struct.pack(">i", last)


def _places(indexes: Mapping[IndexType, bytes], no_transactions: bool) -> dict[str, dict[str, int] | None]:
    places: dict[str, dict[str, int] | None] = {}
    position = 0
    for each, name in _INDEX_NAMES.items():
        places[name] = {"position": position, "size": len(indexes[each])}
        position += len(indexes[each])
    return {**places, "transaction": None} if no_transactions else places


def _metadata(tiered: TieredSegment) -> dict[str, Any]:
    segment = tiered.segment
    partition = segment.topic_partition
    return {
        "remoteLogSegmentId": {
            "topicIdPartition": {
                "topicId": uuid_to_text(segment.topic_id),
                "topicPartition": {"topic": partition.topic, "partition": partition.partition},
            },
            "id": uuid_to_text(segment.segment_id),
        },
        "startOffset": segment.base_offset,
        "endOffset": segment.end_offset,
        "maxTimestampMs": segment.max_timestamp,
        "brokerId": 1,
        "eventTimestampMs": segment.max_timestamp,
        "segmentLeaderEpochs": {str(entry.epoch): entry.start_offset for entry in segment.leader_epochs},
        "txnIdxEmpty": segment.transaction_index_empty,
    }
