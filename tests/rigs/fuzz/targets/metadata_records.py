"""Records of `__remote_log_metadata`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from random import Random

from tests.golden import NAMES, golden
from tests.locate.segments import named_partitions
from tests.rigs.fuzz.mutation import below, fixed, number, one, spoiled, uvarint
from tests.rigs.fuzz.target import MIB, Target
from tests.rigs.fuzz.targets.record_batches import with_crc
from tests.rigs.stack.batches import record_batch
from tests.rigs.stack.rows import Record
from tiered_stream.errors import TieredStreamError
from tiered_stream.locate.metadata_topic.remote_log_metadata import decode_remote_log_metadata
from tiered_stream.locate.metadata_topic.segment_table import (
    SegmentTable,
    TopicState,
    apply_record,
    apply_rows,
    restore_topic,
)
from tiered_stream.model import TopicPartition
from tiered_stream.records.value_scan import UsualRecords, scan_values
from tiered_stream.records.values import Value, read_values

PARTITION = TopicPartition("__remote_log_metadata", 0)
NAME = "t"
OURS = (bytes(15) + b"\1", bytes(14) + b"\1\1")
"""Topics that records are scanned for: that of the made ones, and another."""


@cache
def values() -> tuple[bytes, ...]:
    """What brokers wrote, each length once."""
    found = {len(value): value for name in NAMES for _, _, value in golden(name).remote_log_metadata()}
    return tuple(found.values())


def segment_value(random: Random) -> bytes:
    """A segment's record, made from its fields."""
    numbers = [(10, 8), (99, 8), (1, 4), (1 << 40, 8), (1 << 40, 8)]
    epochs = [(each, 10 + each) for each in range(one(random, (1, 1, 2, 30)))]
    size, state = 1000, below(random, 4)
    way = random.random()
    if way < 0.3:
        at = below(random, 5)
        numbers[at] = (number(random), numbers[at][1])
    elif way < 0.4:
        epochs[below(random, len(epochs))] = (number(random), number(random))
    elif way < 0.5:
        size, state = number(random), below(random, 256)
    count = uvarint(len(epochs) + 1 if random.random() < 0.9 else number(random))
    custom = one(random, (b"\0", b"\1", b"\5\1\0\1\0"))
    tags = one(random, (b"\0", b"\1\0\1\1", b"\1\0\0", b"\2\0\1\0\7\1\0"))
    name = b"\2t" + bytes(15) + b"\1" + fixed(0, 4) + b"\0" + bytes(15) + b"\2\0"
    data = b"\1\0\0" + name + b"".join(fixed(*each) for each in numbers) + count
    data += b"".join(fixed(epoch, 4) + fixed(start, 8) + b"\0" for epoch, start in epochs)
    return data + fixed(size, 4) + custom + fixed(state, 1) + tags


def record(random: Random) -> bytes:
    if random.random() < 0.6:
        made = segment_value(random)
        return spoiled(random, made) if random.random() < 0.5 else made
    return spoiled(random, one(random, values()), values())


def apply(data: bytes) -> None:
    """What it says is taken in, and given out as segments."""
    metadata = decode_remote_log_metadata(data)
    if metadata is None:
        return
    table = SegmentTable()
    table.apply(metadata)
    for segment in table.segments(metadata.partition):
        assert len(segment.offsets) >= 1
        str(segment)


def metadata_log(random: Random) -> bytes:
    """Batches of such records, some compressed, some spoiled."""
    parts, offset = [], 0
    for _ in range(1 + below(random, 4)):
        values = [record(random) for _ in range(1 + below(random, 3))]
        codec = one(random, ("none", "none", "none", "lz4"))
        batch = record_batch([Record(None, value) for value in values], codec, base_offset=offset)
        if random.random() < 0.3:
            batch = with_crc(spoiled(random, batch))
        parts.append(spoiled(random, batch) if random.random() < 0.1 else batch)
        offset += len(values)
    return b"".join(parts)


def scan(data: bytes) -> None:
    """Compiled and in plain Python, the same is found, or the same refused."""
    plain, compiled = said(read_values(data)), said(scan_values(data, dict.fromkeys(OURS, NAME)))
    assert plain == compiled, f"{plain} in plain Python, {compiled} compiled"


def said(read: Iterator[tuple[int, Iterator[Value | UsualRecords]]]) -> tuple[int, list[object], str]:
    """How far it was read, what each record said of the wanted topics, and why it ended."""
    following, found = 0, list[object]()
    try:
        for offset_after, values in read:
            for offset, apply in each_of(values):
                table = SegmentTable()
                told = {topic_id: TopicState(0, NAME, table) for topic_id in OURS}
                apply(told)
                packed = [topic.packed(topic_id) for topic_id, topic in told.items()]
                if any(each != NOTHING for each in packed):
                    found.append((offset, packed))
            following = offset_after
    except TieredStreamError as error:
        return following, found, str(error)
    return following, found, ""


NOTHING = TopicState(0).packed(bytes(16))


def each_of(values: Iterator[Value | UsualRecords]) -> Iterator[tuple[int, Callable[[dict[bytes, TopicState]], None]]]:
    """Each record's offset, and how it is applied."""
    for read in values:
        if not isinstance(read, tuple):
            for offset in read.offsets.tolist():
                yield offset, partial(apply_rows, records=read, start=offset, end=offset + 1)
        elif read[1] is not None:
            yield read[0], partial(apply_record, log_partition=PARTITION, offset=read[0], value=read[1])


def section(random: Random) -> bytes:
    """Of a kept file: the state that records lead to, some of them spoiled, as it is kept or spoiled itself."""
    topics = {OURS[0]: TopicState(0, NAME)}
    for _ in range(1 + below(random, 6)):
        apply_record(topics, PARTITION, number(random) & (1 << 62) - 1, record(random))
    packed = topics[OURS[0]].packed(OURS[0])
    return spoiled(random, packed) if random.random() < 0.8 else packed


def load(data: bytes) -> None:
    """As one whose digest is right; what it tells is told again by what is kept of it."""
    topic, again = TopicState(0, NAME), TopicState(0, NAME)
    restore_topic(data, OURS[0], topic, PARTITION, 1)
    for partition in named_partitions(topic.table):
        for segment, _ in topic.table.tracked(partition):
            assert len(segment.offsets) >= 1 and segment.leader_epochs
        topic.table.lone_updates(partition)
    restore_topic(topic.packed(OURS[0]), OURS[0], again, PARTITION, 1)
    assert topic.packed(OURS[0]) == again.packed(OURS[0])


TARGETS = (
    Target("metadata-records", record, apply),
    Target("metadata-scans", metadata_log, scan, memory=512 * MIB),
    Target("kept-metadata", section, load),
)
