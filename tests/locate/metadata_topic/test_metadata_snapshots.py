"""The files that keep what the metadata topic told: whole or not at all, the user's alone, bounded."""

from __future__ import annotations

import os
import stat
from io import BytesIO
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered_stream.errors import CorruptDataError
from tiered_stream.locate.metadata_topic import metadata_snapshots
from tiered_stream.locate.metadata_topic.metadata_snapshots import (
    LastBatch,
    MetadataSnapshots,
    SnapshotKey,
    TopicSnapshot,
    encode_snapshot,
    open_snapshots,
    read_snapshot,
)

WHOSE = SnapshotKey("cluster", UUID(int=1), 50, 3)
A, B = UUID(int=7), UUID(int=8)
SNAPSHOT = {
    A: TopicSnapshot(10, LastBatch(9, 0xFFFFFFFF), b"first and second"),
    B: TopicSnapshot(12, LastBatch(11, 0), b""),
}


@pytest.fixture
def snapshots(tmp_path: Path) -> MetadataSnapshots:
    return MetadataSnapshots(tmp_path / "kept")


def test_what_is_kept_is_found_by_topic(snapshots: MetadataSnapshots) -> None:
    assert snapshots.load(WHOSE) == {}
    snapshots.save(WHOSE, SNAPSHOT)
    assert snapshots.load(WHOSE) == SNAPSHOT
    assert snapshots.load(WHOSE, [A]) == {A: SNAPSHOT[A]}


@pytest.mark.parametrize(
    "other",
    [
        SnapshotKey("other", UUID(int=1), 50, 3),
        SnapshotKey("cluster", UUID(int=2), 50, 3),
        SnapshotKey("cluster", UUID(int=1), 5, 3),
    ],
)
def test_of_another_cluster_or_metadata_topic_nothing_is_found_whatever_its_file_is_called(
    snapshots: MetadataSnapshots, tmp_path: Path, other: SnapshotKey
) -> None:
    snapshots.save(WHOSE, SNAPSHOT)
    assert snapshots.load(other) == {}
    (file,) = (tmp_path / "kept").iterdir()
    snapshots.save(other, {})
    for each in (tmp_path / "kept").iterdir():
        each.write_bytes(file.read_bytes())
    assert snapshots.load(other) == {}
    assert snapshots.load(WHOSE) == SNAPSHOT


def test_other_topics_stay_when_one_is_kept_anew(snapshots: MetadataSnapshots) -> None:
    snapshots.save(WHOSE, SNAPSHOT)
    newer = TopicSnapshot(20, LastBatch(19, 1), b"newer")
    snapshots.save(WHOSE, {A: newer})
    assert snapshots.load(WHOSE) == {A: newer, B: SNAPSHOT[B]}


@given(at=st.integers(0, 1000), mask=st.integers(0, 255), kept=st.integers(0, 1000))
def test_a_file_that_was_altered_or_cut_off_tells_nothing_wrong(at: int, mask: int, kept: int) -> None:
    data = bytearray(encode_snapshot(SNAPSHOT, WHOSE))
    data[at % len(data)] ^= mask
    del data[kept + 1 :]
    try:
        found = read_snapshot(BytesIO(data), WHOSE)
    except CorruptDataError:
        return
    assert found == SNAPSHOT


def test_a_file_that_was_altered_is_as_if_it_were_not_there(
    snapshots: MetadataSnapshots, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    snapshots.save(WHOSE, SNAPSHOT)
    (file,) = (tmp_path / "kept").iterdir()
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert snapshots.load(WHOSE) == {}
    assert file.name in caplog.text
    snapshots.save(WHOSE, SNAPSHOT)
    assert snapshots.load(WHOSE) == SNAPSHOT


def test_folder_and_files_are_the_users_alone(snapshots: MetadataSnapshots, tmp_path: Path) -> None:
    snapshots.save(WHOSE, SNAPSHOT)
    (file,) = (tmp_path / "kept").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o700


def test_a_folder_to_which_others_may_write_is_neither_read_nor_written(
    snapshots: MetadataSnapshots, tmp_path: Path
) -> None:
    snapshots.save(WHOSE, SNAPSHOT)
    (tmp_path / "kept").chmod(0o777)
    assert snapshots.load(WHOSE) == {}
    snapshots.save(SnapshotKey("other", UUID(int=1), 50, 3), SNAPSHOT)
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_where_nothing_can_be_written_nothing_is_kept_and_nothing_raised(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    snapshots = MetadataSnapshots(tmp_path / "file" / "kept")
    snapshots.save(WHOSE, SNAPSHOT)
    assert snapshots.load(WHOSE) == {}


def test_a_file_takes_its_place_in_one_step(
    snapshots: MetadataSnapshots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads has the old one until then, and one that cannot be put there leaves nothing behind."""
    snapshots.save(WHOSE, SNAPSHOT)

    def full(source: str, target: Path) -> None:
        assert snapshots.load(WHOSE) == SNAPSHOT
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "replace", full)
    snapshots.save(WHOSE, {A: SNAPSHOT[B]})
    assert snapshots.load(WHOSE) == SNAPSHOT
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_other_topics_go_where_a_file_would_be_too_large_and_then_nothing_is_written(
    snapshots: MetadataSnapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots.save(WHOSE, SNAPSHOT)
    monkeypatch.setattr(metadata_snapshots, "MAX_FILE_BYTES", len(encode_snapshot(SNAPSHOT, WHOSE)) - 1)
    snapshots.save(WHOSE, {B: SNAPSHOT[B]})
    monkeypatch.setattr(metadata_snapshots, "MAX_FILE_BYTES", len(encode_snapshot({B: SNAPSHOT[B]}, WHOSE)))
    assert snapshots.load(WHOSE) == {B: SNAPSHOT[B]}
    snapshots.save(WHOSE, SNAPSHOT)
    assert snapshots.load(WHOSE) == {B: SNAPSHOT[B]}


def test_the_oldest_files_go_when_the_folder_is_full_and_no_file_of_others(
    snapshots: MetadataSnapshots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [SnapshotKey("cluster", UUID(int=1), 50, number) for number in range(4)]
    (tmp_path / "kept").mkdir(mode=0o700)
    (tmp_path / "kept" / "notes.txt").write_text("the user's own")
    monkeypatch.setattr(metadata_snapshots, "MAX_FOLDER_BYTES", 2 * len(encode_snapshot(SNAPSHOT, WHOSE)))
    for each in files:
        snapshots.save(each, SNAPSHOT)
        for path in (tmp_path / "kept").iterdir():
            os.utime(path, (path.stat().st_mtime - 10, path.stat().st_mtime - 10))
    assert [bool(snapshots.load(each)) for each in files] == [False, False, True, True]
    assert (tmp_path / "kept" / "notes.txt").exists()


def test_the_option_names_a_folder_the_users_cache_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert open_snapshots("none") is None
    default, named = open_snapshots(""), open_snapshots(str(tmp_path / "tiered_stream" / "metadata"))
    assert default is not None and named is not None
    default.save(WHOSE, SNAPSHOT)
    assert named.load(WHOSE) == SNAPSHOT
