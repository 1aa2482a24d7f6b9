"""`tiered-stream verify --storage`: the storage against a broker that tiers, sound and spoilt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.cli.running import report, run
from tests.reading import BY_STEP, FIRST_TIMESTAMP_MS, SEGMENT_STEP_MS, options, records
from tests.rigs.stack.bulk import produce_bulk
from tests.rigs.stack.produce import produce_segments
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import KEEP_LOCAL, create_tiered_topic, wait_until_tiered
from tests.rigs.stack.transactions import TransactionalProducer
from tiered_stream import scan


def verified(given: Mapping[str, str], status: int = 0) -> dict[str, Any]:
    return report("verify", given, "--storage", status=status)


def keep_locally(stack: TieredStack, topic: str, segments: int, partitions: int = 1) -> None:
    """Create the topic with segments of 40 records, in each partition, of which the broker keeps its own copies."""
    create_tiered_topic(stack.broker, topic, partitions=partitions, config={**BY_STEP, **KEEP_LOCAL})
    contents = [records(40, at * 40, timestamp_ms=FIRST_TIMESTAMP_MS + at * SEGMENT_STEP_MS) for at in range(segments)]
    for partition in range(partitions):
        produce_segments(stack.broker, topic, contents, partition)
    wait_until_tiered(stack.broker, topic, deleted_locally=False)


@pytest.mark.stack
def test_what_a_broker_has_on_its_disk_and_what_it_fetched_is_equal_to_the_storage(
    stack: TieredStack, topic: str
) -> None:
    create_tiered_topic(stack.broker, topic, partitions=2, config={**BY_STEP, **KEEP_LOCAL})
    segments = [records(40, at * 40, timestamp_ms=FIRST_TIMESTAMP_MS + at * SEGMENT_STEP_MS) for at in range(4)]
    produce_segments(stack.broker, topic, segments)
    with TransactionalProducer(stack.broker, topic) as producer:
        for number, end in enumerate((producer.commit, producer.abort, producer.commit)):
            stamp = FIRST_TIMESTAMP_MS + number * SEGMENT_STEP_MS
            producer.send(topic, records(10, number * 10, timestamp_ms=stamp), 1)
            end()
    wait_until_tiered(stack.broker, topic, deleted_locally=False)
    found = verified(options(stack, topic))
    first, second = found["partitions"]
    assert (first["compared"], first["records"], first["on_disk"]) == ([{"start": 0, "end": 120}], 120, 120)
    assert 0 < second["records"] < second["asked"]["end"]
    ended = run("verify", options(stack, topic), "--storage")
    assert ended.exit_code == 0 and "what the brokers give: " in ended.stdout

    (only,) = verified(options(stack, topic, {"startingOffsets": f'{{"{topic}":{{"0":45,"1":0}}}}'}))["partitions"][:1]
    assert only["compared"] == [{"start": 45, "end": 120}]


def spoil(stack: TieredStack, topic: str, old: bytes, new: bytes) -> None:
    """Change bytes of the one segment that has them, in the storage alone."""
    (file,) = (each for each in stack.tier_dir.glob(f"{topic}-*/*.log") if old in each.read_bytes())
    file.write_bytes(file.read_bytes().replace(old, new))


@pytest.mark.stack
def test_the_first_record_that_differs_is_named_and_what_comes_before_is_equal(stack: TieredStack, topic: str) -> None:
    keep_locally(stack, topic, 3)
    spoil(stack, topic, b"57 xxx", b"57 yyy")
    given = options(stack, topic, {"kafka.check.crcs": "false"})
    (partition,) = verified(given, status=3)["partitions"]
    assert (partition["first"]["offset"], partition["first"]["kind"]) == (57, "different")
    assert "value is b'57 yyy" in partition["first"]["detail"] and "b'57 xxx" in partition["first"]["detail"]
    assert "from offset 40" in partition["first"]["segment"]
    found = verified({**given, "endingOffsets": f'{{"{topic}":{{"0":57}}}}'})
    assert (found["equal"], found["records"]) == (True, 57)

    # With the batches' checksums looked at, it does not even come out of the storage.
    (partition,) = verified(options(stack, topic), status=3)["partitions"]
    assert partition["first"]["kind"] == "unreadable" and "CRC" in partition["first"]["detail"]


@pytest.mark.stack
def test_what_is_gone_from_the_storage_is_named_and_other_segments_are_compared(stack: TieredStack, topic: str) -> None:
    keep_locally(stack, topic, 4, partitions=2)

    def gone(file: str, given: Mapping[str, str]) -> dict[str, Any]:
        (segment,) = stack.tier_dir.glob(f"{topic}-1-*/{file}")
        segment.unlink()
        sound, broken = verified(options(stack, topic, {"remote.split.bytes": "1k", **given}), status=3)["partitions"]
        assert (sound["equal"], sound["records"]) == (True, 120)
        assert (broken["equal"], broken["first"]["kind"]) == (False, "unreadable")
        assert segment.name in broken["first"]["detail"]
        return dict(broken)

    # Within this segment a start is looked up in its index.
    broken = gone("*00000-*.index", {"startingOffsets": f'{{"{topic}":{{"0":0,"1":5}}}}'})
    assert (broken["first"]["offset"], broken["compared"]) == (5, [{"start": 40, "end": 120}])
    broken = gone("*00040-*.log", {})
    assert (broken["first"]["offset"], broken["records"]) == (40, 80)
    assert broken["compared"] == [{"start": 0, "end": 40}, {"start": 80, "end": 120}]
    # One split has all segments.
    assert verified(options(stack, topic), status=3)["partitions"][1] == broken


@pytest.mark.slow
@pytest.mark.stack
def test_of_many_buckets_the_one_record_that_differs_is_found(stack: TieredStack, topic: str) -> None:
    create_tiered_topic(stack.broker, topic, config=KEEP_LOCAL)
    produce_bulk(stack.broker, topic, 200_000, 20)
    wait_until_tiered(stack.broker, topic, deleted_locally=False)
    there = options(stack, topic, {"startingOffsets": f'{{"{topic}":{{"0":150000}}}}'})
    value: bytes = scan(there).read_next_batch()["value"][0].as_py()
    spoil(stack, topic, value, value[::-1])
    given = options(stack, topic, {"kafka.check.crcs": "false", "remote.split.bytes": "1m"})
    (partition,) = verified(given, status=3)["partitions"]
    assert (partition["first"]["offset"], partition["differing_buckets"]) == (150_000, 1)
    assert partition["records"] == partition["compared"][0]["end"] > 150_000
