"""Reading a bucket without its cluster."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.archives import archive_options, consumed, in_folder, planned, read_all
from tests.cli.running import run
from tests.depth import examples
from tests.doctor.site import examined
from tests.golden import MASKED, NAMES, golden
from tests.locate.golden_locator import PLAIN, expected_timestamps
from tests.locate.segments import segment_ends
from tests.rigs.stack.rows import Record
from tests.storage import golden_aiven
from tests.tier.fetchers import IndexesOnly
from tests.tier.layouts import archive_in
from tests.tier.topics import topic_options, write_topic
from tiered_stream.errors import (
    ConfigurationError,
    CorruptDataError,
    DataLossError,
    TieredStreamError,
    UnknownTopicError,
)
from tiered_stream.locate.archive.archive_locator import ArchiveLocator
from tiered_stream.locate.archive.archive_offsets import ArchiveOffsetReader
from tiered_stream.locate.archive.archived_partitions import open_archive
from tiered_stream.locate.log_source import open_log_source
from tiered_stream.model import OffsetRange, TopicPartition, uuid_from_text
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.offset_json import EARLIEST, LATEST
from tiered_stream.options.parsing import StorageOptions, parse_options
from tiered_stream.storage.fetcher import RemoteStorageFetcher
from tiered_stream.storage.file_store import FileStore

pytestmark = pytest.mark.costly

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
        described = self.offsets.matching(lambda _: True)
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
    archive = archive_in(store, fetcher, golden_aiven.KEY_PREFIX[name], topic_ids)
    with (
        closing(ArchiveLocator(archive, fetcher, isolation)) as locator,
        closing(ArchiveOffsetReader(archive, fetcher, isolation)) as offsets,
    ):
        yield Opened(name, fetcher, offsets, locator)


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


@pytest.mark.parametrize("name", NAMES)
def test_the_archive_ends_where_an_undecided_transaction_begins(name: str) -> None:
    manifest = golden(name).manifest
    for text, last_stable_offset in manifest["archive_lso"].items():
        partition = TopicPartition(text[:-2], int(text[-1]))
        with opened(name, COMMITTED) as committed, opened(name, UNCOMMITTED) as uncommitted:
            assert committed.offsets.latest([partition]) == {partition: last_stable_offset}
            assert committed.offsets.final_ends({partition: 250}) == {partition: last_stable_offset}
            assert uncommitted.offsets.latest([partition]) == {partition: 250}
            beyond = committed.locator.locate({partition: OffsetRange(0, 250)})[partition]
            assert beyond[-1].offsets.end == last_stable_offset
            segments = committed.locator.segments({partition: OffsetRange(0, 250)})[partition]
            assert all(each.offsets.start < last_stable_offset for each in segments)


@settings(max_examples=examples(40))
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
    assert archive.offsets.for_timestamps({here: -(1 << 63)}) == {here: 0}


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


class WritesInPlace(FileStore):
    writes_in_place = True


def test_a_topic_is_listed_again_if_none_of_its_manifests_was_finished(tmp_path: Path) -> None:
    write_topic(tmp_path, "t", [[Record(b"k", b"v")]])
    (manifest,) = tmp_path.rglob("*.rsm-manifest")
    finished = manifest.read_bytes()
    manifest.write_bytes(b"")
    with closing(archive_in(WritesInPlace(tmp_path), IndexesOnly())) as archive:
        assert archive.describe(["t"])["t"].partitions == ()
        manifest.write_bytes(finished)
        assert archive.describe(["t"])["t"].partitions == (0,)


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
        assert len(segment_ends(archive.locator, {TXN: OffsetRange(before, after)})[TXN]) == 3


def test_many_topics_are_listed_at_once_each_with_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[str] = []
    one_by_one = FileStore.list

    def counted(store: FileStore, prefix: str, after: str = "") -> Iterator[str]:
        listed.append(prefix)
        return one_by_one(store, prefix, after)

    monkeypatch.setattr(FileStore, "list", counted)
    names = ["t", "t-1", *(f"topic-{number}" for number in range(30))]
    for number, name in enumerate(names):
        write_topic(tmp_path, name, [[Record(b"k", b"v")] * (number + 1)] * 2)
    options = parse_options(topic_options(tmp_path, ",".join(names), {}), streaming=False)
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


@pytest.mark.parametrize(
    ("name", "prefix", "given", "wanted", "error"),
    [
        (PLAIN, "plane/", {}, "plain/", ConfigurationError),
        (PLAIN, "", {}, "plain/", ConfigurationError),
        (MASKED, "masked/v1-", {}, "masked.prefix/v1-", ConfigurationError),
        (MASKED, "masked.prefix/", {}, "masked.prefix/v1-", ConfigurationError),
        (MASKED, "masked.prefix/", {"subscribePattern": "^mc-.*"}, "masked.prefix/v1-", ConfigurationError),
        (MASKED, "masked.prefix/", {"subscribe": "mc-codecs"}, "masked.prefix/v1-", ConfigurationError),
        (PLAIN, "", {"subscribe": "s32-txn", "fetchOffset.numRetries": "1"}, "plain/", UnknownTopicError),
    ],
)
def test_an_archive_without_segments_below_its_key_prefix_names_the_prefixes_that_are_there(
    name: str, prefix: str, given: dict[str, str], wanted: str, error: type[TieredStreamError]
) -> None:
    with pytest.raises(error, match=rf"set .*rsm\.config\.key\.prefix={wanted}$"):
        planned(archive_options(name, {**given, "rsm.config.key.prefix": prefix}))


def test_a_bucket_without_any_segment_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no segment")
    shutil.copytree(golden(PLAIN).bucket, tmp_path, dirs_exist_ok=True)
    for path in tmp_path.rglob("*.log"):
        path.unlink()
    with pytest.raises(ConfigurationError, match=re.escape(str(tmp_path))):
        planned(archive_options(PLAIN, storage=in_folder(PLAIN, tmp_path)))


def test_a_pattern_that_no_archived_topic_has_is_told_with_the_topics(caplog: pytest.LogCaptureFixture) -> None:
    assert planned(archive_options(PLAIN, {"subscribePattern": "orders.*"})) == []
    assert "s32-appendtime, s32-big, s32-codecs" in caplog.text
    caplog.clear()
    with opened() as archive:
        for _ in range(2):
            assert archive.offsets.matching(lambda topic: False) == {}
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("command", ["segments", "plan", "cat"])
def test_commands_refuse_a_key_prefix_without_segments(command: str) -> None:
    ended = run(command, archive_options(MASKED, {"rsm.config.key.prefix": "masked/"}))
    assert ended.exit_code == 2
    assert "rsm.config.key.prefix=masked.prefix/v1-" in ended.output


def test_doctor_names_the_prefixes_that_are_there_and_does_not_advise_to_wait() -> None:
    examination = examined(archive_options(MASKED, {"rsm.config.key.prefix": "masked/"}), [])
    (failed,) = examination.with_status("failed")
    assert "rsm.config.key.prefix=masked.prefix/v1-" in failed["found"]
    assert "wait" not in examination.text and examination.code == 1


@pytest.mark.parametrize("suffix", [".log", ".indexes", ".rsm-manifest"])
def test_offsets_that_no_segment_holds_are_told_with_the_object_that_is_missing(bucket: Path, suffix: str) -> None:
    missing = segment_files(bucket, TXN, "log")[3].with_suffix(suffix)
    missing.unlink()
    given = {"assign": '{"s32-txn":[0]}', "kafka.isolation.level": "read_uncommitted"}
    with pytest.raises(DataLossError, match=rf"offsets {int(missing.name[:20])} to \d+: .*{missing.name} "):
        planned(archive_options(PLAIN, given, in_folder(PLAIN, bucket)))


@pytest.mark.parametrize("at", [0, -1])
def test_a_segment_at_either_end_that_lacks_its_log_is_told(
    bucket: Path, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    missing = segment_files(bucket, TXN, "log")[at]
    missing.unlink()
    given = {"assign": '{"s32-txn":[0]}', "kafka.isolation.level": "read_uncommitted"}
    assert planned(archive_options(PLAIN, given, in_folder(PLAIN, bucket)))
    assert [line for line in caplog.messages if f"{missing.name} is missing" in line]


def test_doctor_names_an_archived_object_that_is_missing(bucket: Path) -> None:
    missing = segment_files(bucket, TXN, "log")[-1]
    missing.unlink()
    examination = examined(archive_options(PLAIN, storage=in_folder(PLAIN, bucket)), [])
    (warned,) = (each for each in examination.with_status("warning") if each["check"] == "offsets")
    assert f"{missing.name} is missing" in warned["found"] and "restore" in warned["fix"]


@pytest.fixture
def moved(bucket: Path) -> tuple[Path, int]:
    """The plain bucket, its partitions continued below `new/` from some segment on; the first offset of TXN there."""
    for file in sorted((bucket / "plain").rglob("*")):
        later = int(file.name[:20]) >= 100 if file.is_file() else False
        if later:
            target = bucket / "new" / file.relative_to(bucket / "plain")
            target.parent.mkdir(parents=True, exist_ok=True)
            file.rename(target)
    (folder,) = (bucket / "new").glob("s32-txn-*")
    return bucket, min(int(path.name[:20]) for path in (folder / "0").glob("*.log"))


@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
@pytest.mark.parametrize(("prefix", "more"), [("new/", "plain/"), ("plain/", "old/,new/"), ("n", "plain/,new/")])
def test_several_key_prefixes_are_one_archive(
    moved: tuple[Path, int], prefix: str, more: str, isolation: IsolationLevel
) -> None:
    prefixes = {"rsm.config.key.prefix": prefix, "remote.archive.key.prefixes": more}
    options = archive_options(PLAIN, {**prefixes, "kafka.isolation.level": isolation}, in_folder(PLAIN, moved[0]))
    assert read_all(planned(options), options) == consumed(PLAIN, isolation)


@pytest.mark.parametrize(("prefix", "other"), [("new/", "plain/"), ("plain/", "new/")])
def test_a_key_prefix_that_hides_segments_of_a_topic_is_named(
    moved: tuple[Path, int], prefix: str, other: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"subscribe": "s32-txn", "kafka.isolation.level": "read_uncommitted", "rsm.config.key.prefix": prefix}
    options = archive_options(PLAIN, given, in_folder(PLAIN, moved[0]))
    found = read_all(planned(options), options)[TXN]
    assert (found[0].offset == moved[1]) == (prefix == "new/")
    (said,) = caplog.messages
    assert "s32-txn" in said and f"key.prefix={other}," in said
    assert "remote.archive.key.prefixes" in said


def test_other_topics_below_another_key_prefix_are_nothing_to_warn_of(
    bucket: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder,) = (bucket / "plain").glob("s32-codecs-*")
    (bucket / "other cluster").mkdir()
    folder.rename(bucket / "other cluster" / folder.name)
    assert planned(archive_options(PLAIN, {"subscribe": "s32-txn"}, in_folder(PLAIN, bucket)))
    assert caplog.messages == []
