"""A tiered topic once more, as the Aiven plugin lays it out: plain, or each chunk compressed and encrypted."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

from Crypto.PublicKey import RSA

from tests.rigs.bench.batch_reads import noop_seconds
from tests.rigs.bench.figures import Row
from tests.rigs.bench.rig import Rig
from tests.rigs.bench.shapes import Shape
from tests.rigs.bench.turns import Claim, Contender, rows_of
from tests.tier.layouts import LOCAL_SUFFIXES, AivenPlugin, put
from tests.tier.segments import TieredSegment
from tiered_stream.locate.log_source import open_log_source
from tiered_stream.model import RemoteLogSegment
from tiered_stream.options.parsing import parse_options
from tiered_stream.plan.batch import plan_batch
from tiered_stream.storage.aiven.aiven_fetcher import main_path
from tiered_stream.storage.local_layout import object_key

KEY_PREFIX = "kafka/"
CHUNK = 4 << 20
"""Strimzi's examples have it so."""
PLAIN, ENCRYPTED, AS_KAFKA = "plain", "zstd, AES-256-GCM", "A as Kafka lays it out"
CLAIMS = (Claim("F noop", PLAIN, AS_KAFKA, 0.9, 1.0), Claim("F noop", ENCRYPTED, AS_KAFKA, 0.5, 0.8))
_KEY_PAIR = "bench"


def measure(rig: Rig, runs: int) -> Iterator[Row]:
    """The segments of A in three layouts, none of the tail."""
    shape = rig.topic("A")
    segments = segments_of(rig.options(shape))
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


def segments_of(given: Mapping[str, str]) -> list[RemoteLogSegment]:
    """The tiered segments that a batch query with these options reads."""
    options = parse_options(given, streaming=False)
    with closing(open_log_source(options)) as source:
        splits = plan_batch(options, source)
    found = {each.segment.segment_id: each.segment for split in splits for each in split.locations}
    return sorted(found.values(), key=lambda each: (each.topic_partition, each.base_offset))


def aiven_objects(tier: Path, folder: Path, bootstrap_servers: str, topics: str) -> list[tuple[str, bytes]]:
    """Write the objects that Aiven's plugin makes of the topics' segments into a folder; return them by their keys."""
    given = {
        "kafka.bootstrap.servers": bootstrap_servers, "subscribe": topics, "remote.storage.uri": tier.as_uri(),
        "remote.storage.layout": "local",
    }  # fmt: skip
    for segment in segments_of(given):
        write(tier, folder, segment, None)
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [(path.relative_to(folder).as_posix(), path.read_bytes()) for path in files]


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
    files = {each: tier / object_key(segment, suffix) for each, suffix in LOCAL_SUFFIXES.items()}
    indexes = {each: file.read_bytes() if file.exists() else b"" for each, file in files.items()}
    log = tier / object_key(segment, ".log")
    plugin = AivenPlugin(KEY_PREFIX, CHUNK, public_key is not None, public_key, _KEY_PAIR)
    objects = plugin.objects(TieredSegment(segment, (log.read_bytes(),) if public_key else (), indexes))
    if public_key is None:
        place = KEY_PREFIX + main_path(segment) + ".log"
        (bucket / place).parent.mkdir(parents=True, exist_ok=True)
        (bucket / place).hardlink_to(log)
        del objects[place]
    put(bucket, objects)
