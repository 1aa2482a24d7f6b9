"""The Aiven plugin's objects: manifests, chunks, indexes, custom metadata. The store is in memory.

A segment is so many bytes of manifest, of `.log` object and of `.indexes` object, each with its size (int32) before it.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any
from uuid import UUID

import cramjam
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.rigs.fuzz.mutation import below, fixed, number, one, spoiled, spoiled_json, spoiled_text, uvarint, varint
from tests.rigs.fuzz.target import MIB, Target
from tests.tier.layouts import pack_sizes
from tiered_stream.data_limits import Limit
from tiered_stream.errors import CorruptDataError
from tiered_stream.model import ByteRange, RemoteLogSegment, TopicPartition, uuid_to_text
from tiered_stream.storage.aiven.aiven_fetcher import AivenLayoutFetcher
from tiered_stream.storage.aiven.custom_metadata import parse_custom_metadata
from tiered_stream.storage.aiven.encryption import ChunkCipher, KeyRing
from tiered_stream.storage.aiven.manifest import SegmentEncryption, SegmentManifest, parse_manifest
from tiered_stream.storage.fetcher import IndexType
from tiered_stream.storage.object_store import ObjectStore, too_short

SEGMENT = RemoteLogSegment(TopicPartition("topic", 0), UUID(int=1), UUID(int=2), 0, 99, 3000)
CHUNK = 1000
LOG = b"".join(b"record %d, " % each for each in range(300))[: SEGMENT.size]
AES_KEY, AAD = bytes(range(32)), b"aad"
INDEX_SIZES = {"offset": 80, "timestamp": 120, "producerSnapshot": 10, "leaderEpoch": 15, "transaction": 34}
_FORMS = ("plain", "zstd", "aes", "zstd-aes")


class KnownKeyRing(KeyRing):
    """Has the data key of every segment: to decrypt one takes milliseconds, and has a target of its own."""

    def __init__(self) -> None:
        super().__init__({})

    def cipher(self, encryption: SegmentEncryption, name: str) -> ChunkCipher:
        return ChunkCipher(AES_KEY, encryption.aad)


class MemoryStore(ObjectStore):
    """Objects by the last part of their keys' names."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self._objects = objects

    def get(self, key: str, wanted: ByteRange | Limit) -> bytes:
        data = self._objects[key.rpartition(".")[2]]
        if isinstance(wanted, Limit):
            wanted.check(len(data), key)
            return data
        if wanted.end > len(data):
            raise too_short(key, wanted, len(data))
        return data[wanted.start : wanted.end]

    def size(self, key: str) -> int:
        return len(self._objects[key.rpartition(".")[2]])

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        return iter(())

    def describe(self, key: str) -> str:
        return f"memory://{key}"


def chunks(form: str) -> list[bytes]:
    """The log's chunks, transformed."""
    plain = [LOG[at : at + CHUNK] for at in range(0, len(LOG), CHUNK)]
    if "zstd" in form:
        plain = [bytes(cramjam.zstd.compress(each)) for each in plain]
    return [_encrypted(each) for each in plain] if "aes" in form else plain


def _encrypted(plain: bytes) -> bytes:
    return bytes(12) + AESGCM(AES_KEY).encrypt(bytes(12), plain, AAD)


def manifest(form: str, packed: bytes | None = None) -> dict[str, Any]:
    """The manifest of the segment; `packed`: the sizes of its chunks in place of the right ones."""
    sizes = [len(each) for each in chunks(form)]
    index: dict[str, Any] = {"originalChunkSize": CHUNK, "originalFileSize": SEGMENT.size}
    if form == "plain":
        index |= {"type": "fixed", "transformedChunkSize": CHUNK, "finalTransformedChunkSize": CHUNK}
    else:
        compressed = bytes(cramjam.zstd.compress(pack_sizes(sizes) if packed is None else packed))
        index |= {"type": "variable", "transformedChunks": b64encode(compressed).decode()}
    position, indexes = 0, {}
    for name, size in INDEX_SIZES.items():
        indexes[name] = {"position": position, "size": size}
        position += size
    partition = {"topicId": uuid_to_text(SEGMENT.topic_id), "topicPartition": {"topic": "topic", "partition": 0}}
    found = {
        "version": "1", "chunkIndex": index, "segmentIndexes": indexes, "compression": "zstd" in form,
        "remoteLogSegmentMetadata": {
            "remoteLogSegmentId": {"topicIdPartition": partition, "id": uuid_to_text(SEGMENT.segment_id)},
            "startOffset": 0, "endOffset": 99, "maxTimestampMs": 1, "segmentLeaderEpochs": {"0": 0, "3": 50},
        },
    }  # fmt: skip
    if "aes" in form:
        found["encryption"] = {"dataKey": f"key1:{b64encode(b'key').decode()}", "aad": b64encode(AAD).decode()}
    return found


MANIFESTS = {form: manifest(form) for form in _FORMS}
LOGS = {form: chunks(form) for form in _FORMS}


def manifest_text(random: Random) -> bytes:
    form = one(random, _FORMS)
    way = random.random()
    if way < 0.2:
        packed = pack_sizes([len(each) for each in LOGS[form]])
        return json.dumps(manifest(form, spoiled(random, packed))).encode()
    if way < 0.22 and form != "plain":
        return json.dumps(manifest(form, bytes(one(random, (300_000, 8 * MIB))))).encode()
    return spoiled_json(random, MANIFESTS[form])


def read_manifest(data: bytes) -> None:
    found = parse_manifest(data, "memory://manifest")
    if found.chunks.original_file_size:
        wanted = ByteRange(0, found.chunks.original_file_size)
        numbers = found.chunks.covering(wanted)
        assert found.chunks.transformed(numbers).end <= 1 << 31
        assert found.chunks.original(numbers[-1]).end == wanted.end


def segment(random: Random) -> bytes:
    """The three objects, one of them spoiled."""
    form, way = one(random, _FORMS), random.random()
    parts = list(LOGS[form])
    index_bytes = [bytes(size) for size in INDEX_SIZES.values()]
    if "aes" in form:
        index_bytes = [_encrypted(each) for each in index_bytes]
    description: Any = json.loads(json.dumps(MANIFESTS[form]))
    position = 0
    for name, each in zip(INDEX_SIZES, index_bytes, strict=True):
        description["segmentIndexes"][name] = {"position": position, "size": len(each)}
        position += len(each)
    if way < 0.4:
        at = below(random, len(parts))
        if way < 0.02 and "zstd" in form:
            bomb = bytes(cramjam.zstd.compress(bytes(8 * MIB)))
            parts[at] = _encrypted(bomb) if "aes" in form else bomb
        elif way < 0.2 and form == "zstd-aes":  # right for the cipher, wrong within
            parts[at] = _encrypted(spoiled(random, bytes(cramjam.zstd.compress(LOG[:CHUNK])), parts))
        else:
            parts[at] = spoiled(random, parts[at], parts)
        if way > 0.1 and form != "plain":
            sizes = pack_sizes([max(1, len(each)) for each in parts])
            description["chunkIndex"] = manifest(form, sizes)["chunkIndex"]
    elif way < 0.5:
        index_bytes[below(random, 5)] = spoiled(random, one(random, index_bytes))
    elif way < 0.7:
        size = one(random, (0, 1, 999, 1001, 3001, (1 << 31) - 1, 1_900_000_000, number(random)))
        description["chunkIndex"][one(random, ("originalChunkSize", "originalFileSize"))] = size
        if way < 0.6:
            description["chunkIndex"] |= {"originalChunkSize": size, "originalFileSize": size}
    text = json.dumps(description).encode() if way < 0.9 else spoiled_json(random, description)
    return b"".join(fixed(len(each), 4) + each for each in (text, b"".join(parts), b"".join(index_bytes)))


def _parts(data: bytes) -> list[bytes]:
    found, at = [], 0
    for _ in range(3):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        found.append(data[at + 4 : end])
        at = end
    return found


def read_segment(data: bytes) -> None:
    """The segment's metadata says of its size what the manifest says: who can write the one can write the other."""
    text, log, indexes = _parts(data)
    store = MemoryStore({"rsm-manifest": text, "log": log, "indexes": indexes})
    fetcher = AivenLayoutFetcher(store, "prefix/", KnownKeyRing())
    found: SegmentManifest = parse_manifest(text, "memory://manifest")
    size = found.chunks.original_file_size
    described = found.segment or SEGMENT
    segment = RemoteLogSegment(
        described.topic_partition, described.topic_id, described.segment_id, 0, 99, size, transaction_index_empty=False
    )
    fetcher.request_ranges(segment, ByteRange(0, size), 8 * MIB)
    refused: CorruptDataError | None = None
    for wanted in (ByteRange(0, min(size, 1 << 16)), ByteRange(size // 2, size // 2 + min(size - size // 2, 10))):
        try:
            assert len(fetcher.fetch_log_segment(segment, wanted.start, wanted.end)) == len(wanted)
        except CorruptDataError as error:
            refused = error
    fetcher.fetch_indexes(segment, tuple(IndexType))
    if refused is not None:
        raise refused


def custom_metadata(random: Random) -> bytes:
    texts = [one(random, ("prefix/", "", "topic-AAA/0/1", "é" * 40)).encode() for _ in range(2)]
    if random.random() < 0.2:
        texts[0] = spoiled_text(random, "prefix/").encode(errors="surrogatepass")
    fields = [varint(1 << 40), *(uvarint(len(text) + 1) + text for text in texts)]
    data = uvarint(3) + b"".join(uvarint(tag) + uvarint(len(each)) + each for tag, each in enumerate(fields))
    return spoiled(random, data) if random.random() < 0.9 else data


@cache
def private_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 1024)


def data_key(random: Random) -> bytes:
    """Encrypted data keys: not of the key pair, of other sizes, or larger than its modulus."""
    return random.randbytes(one(random, (128, 128, 128, 127, 129, 0, 1, 256)))


def decrypt_data_key(data: bytes) -> None:
    KeyRing({"key1": private_key()}).cipher(SegmentEncryption("key1", data, b""), "memory://manifest")


TARGETS = (
    Target("aiven-manifest", manifest_text, read_manifest),
    Target("aiven-segment", segment, read_segment),
    Target("aiven-custom-metadata", custom_metadata, parse_custom_metadata),
    Target("aiven-data-key", data_key, decrypt_data_key),
)
