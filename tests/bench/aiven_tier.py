"""A tiered topic once more, as the Aiven plugin lays it out: plain, or each chunk compressed and encrypted."""

from __future__ import annotations

import json
import os
import shutil
import struct
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import cramjam
import google_crc32c
from Crypto.Cipher import PKCS1_OAEP
from Crypto.Hash import SHA3_512
from Crypto.PublicKey import RSA
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.bench.figures import Row
from tests.bench.noop import noop_seconds
from tests.bench.rig import Rig
from tests.bench.shapes import Shape
from tests.bench.turns import Claim, Contender, rows_of
from tests.locate.log_model import TieredSegment, manifest_of
from tiered_stream.locate.log_source import open_log_source
from tiered_stream.model import RemoteLogSegment
from tiered_stream.options.parsing import parse_options
from tiered_stream.plan.batch import plan_batch
from tiered_stream.storage.aiven.aiven_fetcher import main_path
from tiered_stream.storage.fetcher import IndexType
from tiered_stream.storage.local_layout import object_key

KEY_PREFIX = "kafka/"
CHUNK = 4 << 20
"""Strimzi's examples have it so."""
PLAIN, ENCRYPTED, AS_KAFKA = "plain", "zstd, AES-256-GCM", "A as Kafka lays it out"
CLAIMS = (Claim("F noop", PLAIN, AS_KAFKA, 0.9, 1.0), Claim("F noop", ENCRYPTED, AS_KAFKA, 0.5, 0.8))
_KEY_PAIR = "bench"
_NO_PRODUCERS = struct.pack(">i", 0)


def measure(rig: Rig, runs: int) -> Iterator[Row]:
    """The segments of A in three layouts, none of the tail."""
    shape = rig.topic("A")
    segments = segments_of(rig, shape)
    key = RSA.generate(2048)
    (rig.folder / "key.pem").write_bytes(key.export_key("PEM", pkcs=8))
    records = sum(each.end_offset - each.base_offset + 1 for each in segments)
    sources: dict[str, Mapping[str, str]] = {AS_KAFKA: as_kafka(rig, shape, segments)}
    with ExitStack() as ending:
        for name, public in ((PLAIN, None), (ENCRYPTED, key.public_key())):
            bucket = rig.stack.tier_dir.with_name(f"aiven-{len(sources)}-{os.getpid()}")
            ending.callback(shutil.rmtree, bucket)
            for segment in segments:
                write(rig.stack.tier_dir, bucket, segment, public)
            sources[name] = as_aiven(rig, shape, bucket.name)
        contenders = {
            name: Contender(partial(noop_seconds, rig.spark, "tiered_stream", options), records)
            for name, options in sources.items()
        }
        yield from rows_of(CLAIMS, contenders, runs)


def segments_of(rig: Rig, shape: Shape) -> list[RemoteLogSegment]:
    options = parse_options(rig.options(shape), streaming=False)
    source = open_log_source(options)
    try:
        splits = plan_batch(options, source)
    finally:
        source.close()
    found = {each.segment.segment_id: each.segment for split in splits for each in split.locations}
    return sorted(found.values(), key=lambda each: (each.topic_partition, each.base_offset))


def as_kafka(rig: Rig, shape: Shape, segments: list[RemoteLogSegment]) -> dict[str, str]:
    """Where the tier ends, the tail begins, which no archive has."""
    ends: dict[str, int] = {}
    for each in segments:
        ends[str(each.topic_partition.partition)] = each.end_offset + 1
    return {**rig.options(shape), "endingOffsets": json.dumps({shape.topic: ends})}


def as_aiven(rig: Rig, shape: Shape, bucket: str) -> dict[str, str]:
    """Without a broker, from a bucket of its own."""
    kept = {name: value for name, value in rig.options(shape).items() if not name.startswith("kafka.")}
    keys = {
        "remote.storage.uri": f"s3://{bucket}",
        "rsm.config.key.prefix": KEY_PREFIX,
        "rsm.config.encryption.key.pairs": _KEY_PAIR,
        f"rsm.config.encryption.key.pairs.{_KEY_PAIR}.private.key.file": str(rig.folder / "key.pem"),
    }
    return {**kept, **keys, "remote.storage.layout": "aiven", "remote.log.locator": "archive"}


def write(tier: Path, bucket: Path, segment: RemoteLogSegment, public_key: RSA.RsaKey | None) -> None:
    """The segment's objects in the folder `bucket`; without a key neither compressed nor encrypted."""
    indexes = {
        IndexType.OFFSET: (tier / object_key(segment, ".index")).read_bytes(),
        IndexType.TIMESTAMP: (tier / object_key(segment, ".timeindex")).read_bytes(),
        IndexType.PRODUCER_SNAPSHOT: struct.pack(">hI", 1, google_crc32c.value(_NO_PRODUCERS)) + _NO_PRODUCERS,
        IndexType.LEADER_EPOCH: b"0\n1\n0 0\n",
    }
    segment = replace(segment, transaction_index_empty=True)
    manifest = json.loads(manifest_of(TieredSegment(segment, b"", {**indexes, IndexType.TRANSACTION: b""})))
    main = bucket / (KEY_PREFIX + main_path(segment))
    main.parent.mkdir(parents=True, exist_ok=True)
    log = tier / object_key(segment, ".log")
    if public_key is None:
        main.with_name(f"{main.name}.log").hardlink_to(log)
    else:
        data_key, aad = os.urandom(32), os.urandom(32)
        cipher = AESGCM(data_key)

        def encrypted(data: bytes) -> bytes:
            nonce = os.urandom(12)
            return nonce + cipher.encrypt(nonce, data, aad)

        plain = log.read_bytes()
        chunks = [encrypted(bytes(cramjam.zstd.compress(plain[at : at + CHUNK]))) for at in range(0, len(plain), CHUNK)]
        main.with_name(f"{main.name}.log").write_bytes(b"".join(chunks))
        indexes = {each: encrypted(data) if data else b"" for each, data in indexes.items()}
        manifest = json.loads(manifest_of(TieredSegment(segment, b"", {**indexes, IndexType.TRANSACTION: b""})))
        wrapped = PKCS1_OAEP.new(public_key, hashAlgo=SHA3_512).encrypt(data_key)
        manifest |= {
            "compression": True,
            "encryption": {"dataKey": f"{_KEY_PAIR}:{b64encode(wrapped).decode()}", "aad": b64encode(aad).decode()},
            "chunkIndex": {
                "type": "variable", "originalChunkSize": CHUNK, "originalFileSize": len(plain),
                "transformedChunks": b64encode(bytes(cramjam.zstd.compress(packed([len(c) for c in chunks])))).decode(),
            },
        }  # fmt: skip
    main.with_name(f"{main.name}.indexes").write_bytes(b"".join(indexes.values()))
    main.with_name(f"{main.name}.rsm-manifest").write_text(json.dumps(manifest))


def packed(sizes: list[int]) -> bytes:
    """As `tiered_stream.storage.aiven.chunks` says, four bytes a value."""
    if len(sizes) < 2:
        return struct.pack(">i", len(sizes)) + b"".join(struct.pack(">i", each) for each in sizes)
    values = b"".join(struct.pack(">I", each) for each in sizes[:-1])
    return struct.pack(">iib", len(sizes), 0, 4) + values + struct.pack(">i", sizes[-1])
