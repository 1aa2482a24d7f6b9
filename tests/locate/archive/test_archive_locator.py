"""Reading a bucket without its cluster."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.delta.typed_archive import typed_options, write_topic
from tests.golden import NAMES, golden
from tests.locate.golden_locator import PLAIN, expected, expected_timestamps, read
from tests.stack.rows import Record
from tests.storage import golden_aiven
from tiered_stream.errors import ConfigurationError, CorruptDataError, DataLossError, UnknownTopicError
from tiered_stream.locate.archive.archive_locator import ArchiveLocator
from tiered_stream.locate.archive.archive_offsets import ArchiveOffsetReader
from tiered_stream.locate.archive.archived_partitions import Archive, open_archive
from tiered_stream.locate.log_source import open_log_source
from tiered_stream.model import OffsetRange, TopicPartition, uuid_from_text
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.offset_json import EARLIEST, LATEST
from tiered_stream.options.parsing import StorageOptions, parse_options
from tiered_stream.storage.fetcher import RemoteStorageFetcher
from tiered_stream.storage.file_store import FileStore

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
TOPICS = ("codecs", "txn", "appendtime", "epochs", "big", "open")
TXN, OPEN = TopicPartition("s32-txn", 0), TopicPartition("s32-open", 0)


@dataclass(frozen=True)
class Opened:
    """An archive with its two doors."""

    name: str
    fetcher: RemoteStorageFetcher
    offsets: ArchiveOffsetReader
    locator: ArchiveLocator

    def partitions(self) -> list[TopicPartition]:
        described = self.offsets.partitions(self.offsets.topics())
        return [TopicPartition(topic, number) for topic, each in described.items() for number in each.partitions]


@contextmanager
def opened(
    name: str = PLAIN,
    isolation: IsolationLevel = COMMITTED,
    bucket: Path | None = None,
    topic_ids: dict[str, UUID] | None = None,
) -> Iterator[Opened]:
    fetcher = golden_aiven.fetcher(name, bucket)
    store = FileStore(bucket or golden(name).bucket)
    archive = Archive(store, fetcher, golden_aiven.KEY_PREFIX[name], topic_ids)
    locator = ArchiveLocator(archive, fetcher, isolation)
    offsets = ArchiveOffsetReader(archive, fetcher, isolation)
    yield Opened(name, fetcher, offsets, locator)
    locator.close()
    offsets.close()


@pytest.fixture(scope="module", params=NAMES)
def archive(request: pytest.FixtureRequest) -> Iterator[Opened]:
    with opened(request.param, UNCOMMITTED) as archive:
        yield archive


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    """A copy of the plain bucket, to be changed."""
    shutil.copytree(golden(PLAIN).bucket, tmp_path / "bucket")
    return tmp_path / "bucket"


def segment_files(bucket: Path, partition: TopicPartition, suffix: str = "*") -> list[Path]:
    """The partition's objects, in offset order."""
    (folder,) = (bucket / "plain").glob(f"{partition.topic}-*")
    return sorted((folder / str(partition.partition)).glob(f"*.{suffix}"))


@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
@pytest.mark.parametrize("name", NAMES)
def test_everything_up_to_the_end_reads_back_as_a_consumer_returned_it(name: str, isolation: IsolationLevel) -> None:
    with opened(name, isolation) as archive:
        assert archive.offsets.topics() == {golden(name).topic_prefix + topic for topic in TOPICS}
        partitions = archive.partitions()
        assert len(partitions) == 11
        starts, ends = archive.offsets.earliest(partitions), archive.offsets.latest(partitions)
        located = archive.locator.locate({each: OffsetRange(starts[each], ends[each]) for each in partitions})
        for partition, locations in located.items():
            rows = [row for location in locations for row in read(archive.fetcher, location)]
            assert rows == expected(name, partition, 0, ends[partition], isolation)


@pytest.mark.parametrize("name", NAMES)
def test_the_archive_ends_where_an_undecided_transaction_begins(name: str) -> None:
    manifest = golden(name).manifest
    for text, last_stable_offset in manifest["archive_lso"].items():
        partition = TopicPartition(text[:-2], int(text[-1]))
        with opened(name, COMMITTED) as committed, opened(name, UNCOMMITTED) as uncommitted:
            assert committed.offsets.latest([partition]) == {partition: last_stable_offset}
            assert uncommitted.offsets.latest([partition]) == {partition: 250}
            beyond = committed.locator.locate({partition: OffsetRange(0, 250)})[partition]
            assert beyond[-1].offsets.end == last_stable_offset
            assert committed.locator.segment_ends({partition: OffsetRange(0, 250)}) == {partition: ()}


@settings(max_examples=40)
@given(data=st.data())
def test_a_timestamp_leads_to_the_first_record_at_or_after_it(data: st.DataObject, archive: Opened) -> None:
    partition = data.draw(st.sampled_from(archive.partitions()))
    end = archive.offsets.latest([partition])[partition]
    records = expected_timestamps(archive.name, partition, end)
    timestamp = data.draw(st.sampled_from([time for _, time in records])) + data.draw(st.sampled_from([-1, 0, 1]))
    first = next((offset for offset, time in records if time >= timestamp), None)
    assert archive.offsets.for_timestamps({partition: timestamp}) == {partition: first}


def test_special_and_extreme_timestamps_have_offsets_too(archive: Opened) -> None:
    prefix = golden(archive.name).topic_prefix
    here, there = TopicPartition(f"{prefix}codecs", 0), TopicPartition(f"{prefix}codecs", 1)
    ends = archive.offsets.latest([here, there])
    assert archive.offsets.for_timestamps({here: EARLIEST, there: LATEST}) == {here: 0, there: ends[there]}
    assert archive.offsets.for_timestamps({there: (1 << 63) - 1, here: 0}) == {there: None, here: 0}


def test_a_timestamp_beyond_the_last_stable_offset_has_no_offset() -> None:
    offset, timestamp = expected_timestamps(PLAIN, OPEN, 250)[-1]
    with opened(PLAIN, COMMITTED) as committed, opened(PLAIN, UNCOMMITTED) as uncommitted:
        assert committed.offsets.for_timestamps({OPEN: timestamp}) == {OPEN: None}
        found = uncommitted.offsets.for_timestamps({OPEN: timestamp})[OPEN]
        assert found is not None
        assert found <= offset


def test_topics_and_partitions_that_are_not_there_are_named(archive: Opened) -> None:
    with pytest.raises(UnknownTopicError, match="'nowhere'"):
        archive.offsets.partitions(["nowhere"])
    with pytest.raises(UnknownTopicError, match="nowhere-3"):
        archive.offsets.latest([TopicPartition("nowhere", 3)])
    assert archive.locator.locate({TopicPartition("nowhere", 3): OffsetRange(0, 9)}) == {
        TopicPartition("nowhere", 3): ()
    }


def test_two_topics_of_one_name_must_be_told_apart(bucket: Path) -> None:
    (old,) = (bucket / "plain").glob("s32-codecs-*")
    (other,) = (bucket / "plain").glob("s32-txn-*")
    twin = old.with_name(f"s32-codecs-{other.name[-22:]}")
    shutil.copytree(old, twin)
    with opened(bucket=bucket) as archive, pytest.raises(ConfigurationError, match=r"remote\.topic\.id") as raised:
        archive.offsets.partitions(["s32-codecs"])
    assert old.name[-22:] in str(raised.value)
    assert twin.name[-22:] in str(raised.value)
    pinned = uuid_from_text(old.name[-22:])
    with opened(bucket=bucket, topic_ids={"s32-codecs": pinned}) as archive:
        assert archive.offsets.partitions(["s32-codecs"])["s32-codecs"].topic_id == pinned


def test_a_layout_without_manifests_is_no_archive() -> None:
    with pytest.raises(ConfigurationError, match=r"remote\.storage\.layout"):
        open_archive(StorageOptions(uri="file:///tier", layout="local"), {})


def test_an_archive_opens_by_options() -> None:
    archive = open_archive(golden_aiven.options(PLAIN), {})
    assert {f"s32-{topic}" for topic in TOPICS} == archive.topic_names()
    archive.close()


def test_a_copy_without_all_of_its_objects_does_not_count(bucket: Path) -> None:
    last = segment_files(bucket, TXN, "rsm-manifest")[-1]
    for suffix in (".indexes", ".log", ".rsm-manifest"):
        last.with_suffix(suffix).unlink()
        with opened(isolation=UNCOMMITTED, bucket=bucket) as archive:
            assert archive.offsets.latest([TXN]) == {TXN: int(last.name[:20])}


def test_a_manifest_under_another_segments_key_is_refused(bucket: Path) -> None:
    first, second, *_ = segment_files(bucket, TXN, "rsm-manifest")
    shutil.copy(first, second)
    with opened(bucket=bucket) as archive, pytest.raises(CorruptDataError, match="describes another segment"):
        archive.offsets.latest([TXN])


def test_segments_that_come_later_are_seen_when_the_end_is_asked_for(bucket: Path, tmp_path: Path) -> None:
    for path in segment_files(bucket, TXN)[-9:]:
        path.rename(tmp_path / path.name)
    folder = segment_files(bucket, TXN)[0].parent
    with opened(isolation=UNCOMMITTED, bucket=bucket) as archive:
        before = archive.offsets.latest([TXN])[TXN]
        for path in tmp_path.glob("0*"):
            path.rename(folder / path.name)
        after = archive.offsets.latest([TXN])[TXN]
        assert len(archive.locator.segment_ends({TXN: OffsetRange(before, after)})[TXN]) == 3


def test_many_topics_are_listed_at_once_each_with_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[str] = []
    one_by_one = FileStore.list

    def counted(store: FileStore, prefix: str) -> Iterator[str]:
        listed.append(prefix)
        return one_by_one(store, prefix)

    monkeypatch.setattr(FileStore, "list", counted)
    names = ["t", "t-1", *(f"topic-{number}" for number in range(30))]
    for number, name in enumerate(names):
        write_topic(tmp_path, name, [[Record(b"k", b"v")] * (number + 1)] * 2)
    options = parse_options(typed_options(tmp_path, ",".join(names), {}), streaming=False)
    for some, prefixes in ((names, [""]), (names[:2], ["t-", "t-1-"])):
        with closing(open_log_source(options)) as source:
            described = source.offset_reader.partitions(some)
            assert listed == prefixes and [each.partitions for each in described.values()] == [(0, 1)] * len(some)
            ends = source.offset_reader.latest([TopicPartition(name, 1) for name in some])
        assert list(ends.values()) == [number + 1 for number in range(len(some))]
        listed.clear()


def test_a_missing_segment_leaves_a_gap_and_says_what_cannot_be_told(bucket: Path) -> None:
    everything = OffsetRange(0, 10_000)
    with opened(bucket=bucket) as archive:
        spanned = {
            location.segment.base_offset: location
            for location in archive.locator.locate({TXN: everything})[TXN]
            if any(each.first_offset < location.offsets.start for each in location.aborted_transactions)
        }
    missing = next(iter(spanned))
    for path in segment_files(bucket, TXN):
        if int(path.name[:20]) == missing:
            path.unlink()
    with opened(isolation=UNCOMMITTED, bucket=bucket) as archive:
        located = archive.locator.locate({TXN: everything})[TXN]
        assert missing not in {location.offsets.start for location in located}
    with opened(bucket=bucket) as archive, pytest.raises(DataLossError, match=f"offsets {missing} to"):
        archive.locator.locate({TXN: everything})
