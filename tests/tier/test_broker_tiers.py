"""What the builder makes of a broker's record batches is what the broker, and its storage plugin, made of them."""

from __future__ import annotations

import json
import struct
from base64 import b64decode
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any
from uuid import UUID

import cramjam
import pytest
from Crypto.PublicKey import RSA
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.golden import MASKED, NAMES, ROTATION, golden
from tests.locate.golden_locator import golden_table
from tests.rigs.stack.batches import CODECS
from tests.rigs.stack.consume import read_topic
from tests.rigs.stack.produce import RawProducer
from tests.rigs.stack.rows import Record
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import create_tiered_topic, roll, wait_until_tiered
from tests.rigs.stack.transactions import TransactionalProducer
from tests.storage import golden_aiven
from tests.tier.layouts import AivenPlugin, MemoryBucket, local_objects, pack_sizes
from tests.tier.metadata import segment_record, update_record
from tests.tier.segments import BatchHeader, ProducerEntry, TieredSegment, tiered
from tiered_stream.locate.metadata_topic.remote_log_metadata import (
    REMOTE_LOG_METADATA_TOPIC,
    SegmentMetadata,
    decode_remote_log_metadata,
)
from tiered_stream.model import RemoteLogSegment, uuid_from_text
from tiered_stream.storage.aiven.aiven_fetcher import main_path
from tiered_stream.storage.aiven.encryption import KeyRing
from tiered_stream.storage.aiven.manifest import parse_manifest
from tiered_stream.storage.fetcher import IndexType
from tiered_stream.storage.local_layout import object_key

ALL = [*NAMES, ROTATION, MASKED]
INDEX_INTERVAL = 1024
"""`index.interval.bytes` of every golden topic, and of the live one."""


def batches_of(log: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(log):
        size = BatchHeader.of(log[at : at + 61]).size
        yield log[at : at + size]
        at += size


def rebuilt(segments: Sequence[RemoteLogSegment], logs: Sequence[bytes]) -> list[TieredSegment]:
    """All segments of a partition, made of the logs and the ids alone."""
    first, batches = segments[0], [list(batches_of(log)) for log in logs]
    return tiered(
        first.topic_partition, batches, topic_id=first.topic_id, segment_ids=iter(each.segment_id for each in segments),
        index_interval=INDEX_INTERVAL,
    )  # fmt: skip


def golden_segments(name: str) -> Iterator[tuple[RemoteLogSegment, TieredSegment]]:
    """Each segment of the partitions whose first segment is there, and what the builder makes of its log."""
    fetcher = golden_aiven.fetcher(name)
    for segments in golden_table(name).values():
        ordered = sorted(segments, key=lambda each: each.base_offset)
        if ordered and ordered[0].base_offset == 0:
            logs = [fetcher.fetch_log_segment(each, 0) for each in ordered]
            yield from zip(ordered, rebuilt(ordered, logs), strict=True)


def producers(snapshot: bytes) -> set[ProducerEntry]:
    return {ProducerEntry(*entry) for entry in struct.iter_unpack(">qhiqiqiq", snapshot[10:])}


def check_snapshot(of_broker: bytes, built: TieredSegment) -> None:
    """Producers are in no order, and a broker drops those with old records when it starts, in another epoch."""
    found, expected = producers(of_broker), producers(built.indexes[IndexType.PRODUCER_SNAPSHOT])
    headers = [BatchHeader.of(batch) for batch in built.batches]
    since_start = {each.producer_id for each in headers if each.leader_epoch == headers[-1].leader_epoch}
    assert found <= expected
    assert not {each.producer_id for each in expected - found} & since_start


@pytest.mark.parametrize("name", ALL)
def test_metadata_and_indexes_of_golden_segments_follow_from_their_batches(name: str) -> None:
    fetcher, aborting = golden_aiven.fetcher(name), 0
    for segment, built in golden_segments(name):
        assert built.segment == replace(segment, custom_metadata=None)
        indexes = fetcher.fetch_indexes(segment, list(IndexType))
        check_snapshot(indexes.pop(IndexType.PRODUCER_SNAPSHOT), built)
        assert indexes.get(IndexType.TRANSACTION, b"") == built.indexes[IndexType.TRANSACTION]
        for each in (IndexType.OFFSET, IndexType.TIMESTAMP, IndexType.LEADER_EPOCH):
            assert indexes[each] == built.indexes[each], (segment, each)
        aborting += IndexType.TRANSACTION in indexes
    assert aborting > 3


def comparable(manifest: bytes) -> Any:
    """The manifest without times, without what is random, and without sizes that depend on the version of zstd."""
    found = json.loads(manifest)
    packed = found["chunkIndex"].pop("transformedChunks", None)
    encryption = {key: value.partition(":")[0] for key, value in found.pop("encryption", {}).items() if key != "aad"}
    for name in ("producerSnapshot", "leaderEpoch", "transaction"):
        found["segmentIndexes"][name] = found["segmentIndexes"][name] and found["segmentIndexes"][name].keys()
    del found["remoteLogSegmentMetadata"]["eventTimestampMs"]
    return found, packed is None, encryption


def check_chunk_sizes(manifest: bytes) -> None:
    """The plugin packs the sizes of its chunks as the builder does."""
    packed = cramjam.zstd.decompress(b64decode(json.loads(manifest)["chunkIndex"]["transformedChunks"]))
    positions = parse_manifest(manifest, "golden").chunks.positions
    assert pack_sizes([int(end - start) for start, end in pairwise(positions)]) == bytes(packed)


@pytest.mark.parametrize("name", NAMES)
def test_objects_of_golden_segments_are_those_of_the_plugin(name: str) -> None:
    prefix = golden_aiven.KEY_PREFIX[name]
    plugin, keys = AivenPlugin(prefix), KeyRing({})
    if name == "aiven-zstd-aesgcm":
        folder = golden(name).folder / "keys"
        public = RSA.import_key((folder / "test-only-public.pem").read_bytes())
        plugin = AivenPlugin(prefix, compressed=True, public_key=public)
        private = load_pem_private_key((folder / "test-only-private.pem").read_bytes(), None)
        keys = KeyRing({"key1": private})  # type: ignore[dict-item]
    several_chunks = 0
    for segment, built in golden_segments(name):
        objects = plugin.objects(built)
        of_plugin = {key: (golden(name).bucket / key).read_bytes() for key in objects}
        log, manifest = (f"{prefix}{main_path(segment)}{suffix}" for suffix in (".log", ".rsm-manifest"))
        assert comparable(objects[manifest]) == comparable(of_plugin[manifest])
        if plugin.compressed:
            check_chunk_sizes(of_plugin[manifest])
        else:
            assert objects[log] == of_plugin[log]
        several_chunks += segment.size > plugin.chunk_size
        fetcher = MemoryBucket([built], plugin).fetcher(prefix, keys)
        assert fetcher.fetch_log_segment(segment, 0) == built.log
        indexes = {each: data for each, data in built.indexes.items() if data or each is not IndexType.TRANSACTION}
        assert fetcher.fetch_indexes(segment, list(IndexType)) == indexes
    assert several_chunks == 2


@pytest.mark.parametrize("name", ALL)
def test_metadata_records_are_those_of_golden_brokers(name: str) -> None:
    started: dict[UUID, RemoteLogSegment] = {}
    finished = 0
    for _, _, value in golden(name).remote_log_metadata():
        metadata = decode_remote_log_metadata(value)
        if isinstance(metadata, SegmentMetadata) and not metadata.is_update:
            started[metadata.segment.segment_id] = metadata.segment
        finished += check_record(value, started)
    assert finished > 40


def check_record(value: bytes, started: dict[UUID, RemoteLogSegment]) -> bool:
    """The record is what the builder writes, but for the time; whether it says that a copy is finished."""
    metadata: Any = decode_remote_log_metadata(value)
    if not metadata.is_update:
        expected = segment_record(metadata.segment, metadata.state)
        name_end = expected.index(metadata.segment.segment_id.bytes) + 17
        event = slice(name_end + 8 + 8 + 4 + 8, name_end + 8 + 8 + 4 + 8 + 8)
        finished = False
    else:
        segment_id, custom_metadata = metadata.segment.segment_id, metadata.segment.custom_metadata
        segment = replace(started[segment_id], custom_metadata=custom_metadata)
        expected = update_record(segment, metadata.state)
        name_end = expected.index(segment_id.bytes) + 17
        event = slice(name_end + 4, name_end + 4 + 8)
        finished = metadata.state == 1
    assert value == expected[: event.start] + value[event] + expected[event.stop :]
    return finished


def test_a_broker_tiers_a_topic_as_the_builder_does(stack: TieredStack, topic: str) -> None:
    """Every codec, transactions that interleave and span segments, and times out of order, later than the markers'."""
    config = {"segment.ms": "5000", "index.interval.bytes": str(INDEX_INTERVAL)}
    create_tiered_topic(stack.broker, topic, config=config)
    times = [4_000_000_000_000 + 1000 * (at - 3 * (at % 4 == 1)) for at in range(40)]
    with (
        TransactionalProducer(stack.broker, f"{topic}-a") as aborting,
        TransactionalProducer(stack.broker, f"{topic}-b") as other,
        RawProducer(stack.broker) as plain,
    ):
        for at, time in enumerate(times):
            records = [Record(b"k", b"%d" % at * 300, (("h", None),), time + n) for n in range(1 + at % 3)]
            producer: Any = (aborting, other, plain)[at % 3]
            producer.send(topic, records, codec=list(CODECS)[at % 5])
            if at in (10, 31):
                aborting.abort()
            if at in (20, 33):
                other.commit() if at == 20 else other.abort()
        aborting.commit()
        other.commit()
    roll(stack.broker, topic)
    wait_until_tiered(stack.broker, topic)

    (folder,) = stack.tier_dir.glob(f"{topic}-0-*")
    files = {file.relative_to(stack.tier_dir).as_posix(): file.read_bytes() for file in folder.iterdir()}
    values = [row.value for row in read_topic(stack.broker, REMOTE_LOG_METADATA_TOPIC) if row.value is not None]
    records_of_topic = [
        value
        for value in values
        if (metadata := decode_remote_log_metadata(value)) and metadata.partition.topic_partition.topic == topic
    ]
    told = [decode_remote_log_metadata(value) for value in records_of_topic]
    whole = [each.segment for each in told if isinstance(each, SegmentMetadata) and not each.is_update]
    segments = {each.segment_id: each for each in whole}
    ordered = sorted(segments.values(), key=lambda each: each.base_offset)
    assert uuid_from_text(folder.name.removeprefix(f"{topic}-0-")) == ordered[0].topic_id
    built = rebuilt(ordered, [files[object_key(each, ".log")] for each in ordered])
    objects = {key: data for each in built for key, data in local_objects(each).items()}
    assert sorted(objects) == sorted(files)
    assert [each.segment for each in built] == ordered
    for key, data in files.items():
        if key.endswith(".snapshot"):
            assert producers(data) == producers(objects[key])
        else:
            assert objects[key] == data, key
    assert sum(key.endswith(".txnindex") for key in files) >= 2 and len(ordered) >= 4
    assert sum(check_record(value, segments) for value in records_of_topic) == len(ordered)
