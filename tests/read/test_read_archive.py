"""Golden archives as executors read them: in splits of any size, cut off anywhere, and damaged."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from kafka.record.memory_records import MemoryRecords

from tests.archives import (
    COMMITTED,
    PLAIN,
    UNCOMMITTED,
    archive_ends,
    archive_options,
    consumed,
    consumed_of_cluster,
    in_folder,
    planned,
    read_all,
)
from tests.depth import examples
from tests.golden import NAMES, NEWER, golden
from tests.locate.golden_locator import GoldenLocator
from tests.plan.planned_splits import plan_splits
from tests.rigs.stack.rows import Row
from tests.storage.golden_aiven import KEY_PREFIX, segments
from tiered_stream.errors import TieredStreamError
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.storage import open_fetcher as opened

pytestmark = pytest.mark.costly


@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
@pytest.mark.parametrize(
    "given",
    [
        {"remote.split.bytes": "1"},
        {"remote.split.bytes": "20k"},
        {"remote.split.bytes": "1m"},
        {"minPartitions": "300"},
        {"maxRecordsPerPartition": "97"},
    ],
    ids=lambda given: "-".join(*given.items()),
)
@pytest.mark.parametrize("name", NAMES)
def test_rows_do_not_depend_on_how_segments_are_split(name: str, given: dict[str, str], isolation: str) -> None:
    options = archive_options(name, {**given, "kafka.isolation.level": isolation})
    splits = planned(options)
    assert len(splits) > 11
    assert read_all(splits, options) == consumed(name, isolation)


@pytest.mark.drawn
@pytest.mark.parametrize("name", NAMES)
def test_any_range_gives_what_a_consumer_returned(name: str) -> None:
    random = Random(4)
    options = archive_options(name, {"remote.split.bytes": "8k"})
    for _ in range(examples(6)):
        ranges, expected = {}, {}
        for partition, end in archive_ends(name, COMMITTED).items():
            start = random.randrange(end)
            ranges[partition] = wanted = OffsetRange(start, random.randint(start, end))
            rows = [row for row in consumed(name, COMMITTED)[partition] if row.offset in wanted]
            expected |= {partition: rows} if rows else {}
        assert read_all(planned(options, ranges), options) == expected


@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
@pytest.mark.parametrize("name", NEWER)
def test_an_archive_of_the_newer_plugin_holds_what_a_consumer_returned_and_what_was_deleted(
    name: str, isolation: str
) -> None:
    options = archive_options(name, {"remote.split.bytes": "20k", "kafka.isolation.level": isolation})
    found = read_all(planned(options), options)
    expected = consumed(name, isolation)
    assert found.keys() == expected.keys()
    deleted_below = golden(name).manifest["deleted_below"]
    for partition, rows in found.items():
        start = deleted_below.get(str(partition), 0)
        assert [row for row in rows if row.offset >= start] == expected[partition]
        first = min(each.base_offset for each in segments(name) if each.topic_partition == partition)
        assert [row.offset for row in rows if row.offset < start] == list(range(first, start))
    assert sum(len(rows) for rows in found.values()) > sum(map(len, expected.values()))


@pytest.mark.parametrize("isolation", IsolationLevel)
@pytest.mark.parametrize("name", NEWER)
def test_segments_of_the_newer_plugin_are_found_by_the_metadata_topic_as_a_consumer_returned_them(
    name: str, isolation: IsolationLevel
) -> None:
    options = archive_options(name, {"kafka.isolation.level": isolation})
    with closing(GoldenLocator(name, isolation)) as locator:
        ranges = {
            partition: OffsetRange(visible[0].offsets.start, visible[-1].offsets.end)
            for partition, visible in locator.visible.items()
        }
        splits = plan_splits(ranges, locator, split_bytes=20_000)
    assert all(split.locations for split in splits)
    assert read_all(splits, options) == consumed(name, isolation)


def copied(name: str, partition: TopicPartition, bucket: Path) -> list[Path]:
    """Make `bucket` a copy of one partition alone; its logs, in offset order."""
    source = golden(name).bucket
    (topic,) = source.glob(f"{KEY_PREFIX[name]}{partition.topic}-*")
    folder = bucket / topic.relative_to(source) / str(partition.partition)
    shutil.copytree(topic / str(partition.partition), folder)
    return sorted(folder.glob("*.log"))


def undecided_from(logs: list[Path]) -> int | None:
    """Where the earliest transaction begins that has no marker in these segments, by kafka-python's reader."""
    begun: dict[int, int] = {}
    for log in logs:
        records = MemoryRecords(log.read_bytes())
        while (batch := records.next_batch()) is not None:
            if batch.is_control_batch:
                begun.pop(batch.producer_id, None)
            elif batch.is_transactional:
                begun.setdefault(batch.producer_id, batch.base_offset)
    return min(begun.values(), default=None)


@pytest.mark.parametrize("partition", [TopicPartition("s32-txn", 0), TopicPartition("s32-txn", 1)], ids=str)
def test_an_archive_that_was_cut_off_ends_before_its_undecided_transactions(
    tmp_path: Path, partition: TopicPartition
) -> None:
    logs = copied(PLAIN, partition, tmp_path)
    given = {"assign": f'{{"{partition.topic}":[{partition.partition}]}}'}
    undecided = 0
    while logs:
        end = 1 + next(each.end_offset for each in segments(PLAIN) if _is_log_of(each, logs[-1], partition))
        stable = undecided_from(logs)
        for isolation, until in ((COMMITTED, end if stable is None else stable), (UNCOMMITTED, end)):
            options = archive_options(PLAIN, {**given, "kafka.isolation.level": isolation}, in_folder(PLAIN, tmp_path))
            expected = [row for row in consumed_of_cluster(PLAIN, partition, isolation) if row.offset < until]
            assert read_all(planned(options), options).get(partition, []) == expected
        undecided += stable is not None
        last = logs.pop()
        for suffix in (".log", ".indexes", ".rsm-manifest"):
            last.with_suffix(suffix).unlink()
    assert undecided > 5


def _is_log_of(segment: object, log: Path, partition: TopicPartition) -> bool:
    return segment.topic_partition == partition and segment.base_offset == int(log.name[:20])  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Damaged:
    """One partition's objects in a folder, and what reading from it must give."""

    name: str
    bucket: Path
    partition: TopicPartition

    def outcome(self, isolation: str, split_bytes: str, wanted: OffsetRange) -> list[Row] | str:
        """The rows, or the error's text."""
        opened._fetchers._caches.clear()  # what it has cached is of the object before
        given = {"kafka.isolation.level": isolation, "remote.split.bytes": split_bytes}
        given["assign"] = f'{{"{self.partition.topic}":[{self.partition.partition}]}}'
        options = archive_options(self.name, given, in_folder(self.name, self.bucket))
        try:
            return read_all(planned(options, {self.partition: wanted}), options).get(self.partition, [])
        except TieredStreamError as error:
            return str(error)

    def expected(self, isolation: str, wanted: OffsetRange) -> list[Row]:
        return [row for row in consumed(self.name, isolation)[self.partition] if row.offset in wanted]


@pytest.fixture(params=NAMES)
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Damaged]:
    partition = TopicPartition(f"{golden(request.param).topic_prefix}txn", 0)
    copied(request.param, partition, tmp_path)
    yield Damaged(request.param, tmp_path, partition)
    opened._fetchers._caches.clear()


@pytest.mark.drawn
@pytest.mark.parametrize("suffix", [".log", ".indexes", ".rsm-manifest"])
def test_a_flipped_bit_gives_the_same_rows_or_an_error_that_names_the_segment(damaged: Damaged, suffix: str) -> None:
    """Of a plain log some bits do not matter, as those of the leader epoch in a batch."""
    random = Random(suffix)
    objects = sorted(damaged.bucket.rglob(f"*{suffix}"))
    errors = 0
    for _ in range(examples(100 if damaged.name == PLAIN else 50)):
        path = random.choice(objects)
        good = path.read_bytes()
        path.write_bytes(flipped(good, random.randrange(8 * len(good))))
        isolation = random.choice([COMMITTED, COMMITTED, UNCOMMITTED])
        end = archive_ends(damaged.name, isolation)[damaged.partition]
        start = random.choice([0, random.randrange(end)])
        wanted = OffsetRange(start, random.choice([end, random.randint(start, end)]))
        found = damaged.outcome(isolation, random.choice(["1k", "4k", "128m"]), wanted)
        path.write_bytes(good)
        if isinstance(found, str):
            errors += 1
            missing = "no segment in the archive holds" in found  # where a manifest says another end
            assert missing or path.stem[-22:] in found, found
        else:
            assert found == damaged.expected(isolation, wanted)
    assert errors > examples(5)


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("suffix", [".log", ".indexes", ".rsm-manifest"])
@pytest.mark.parametrize("left", [0, 0.3, 0.95])
def test_a_truncated_object_is_an_error_that_names_the_segment(damaged: Damaged, suffix: str, left: float) -> None:
    path = sorted(damaged.bucket.rglob(f"*{suffix}"))[3]
    path.write_bytes(path.read_bytes()[: int(left * path.stat().st_size)])
    found = damaged.outcome(COMMITTED, "4k", OffsetRange(0, archive_ends(damaged.name, COMMITTED)[damaged.partition]))
    assert isinstance(found, str)
    assert path.stem[-22:] in found
