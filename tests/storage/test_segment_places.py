"""Which settings lead to a segment, where those that were given do not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.golden import MASKED, golden
from tests.storage import golden_aiven
from tests.storage.conftest import s3_options
from tiered_stream.errors import StorageAccessError
from tiered_stream.model import RemoteLogSegment
from tiered_stream.options.choices import StorageLayout
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.file_store import FileStore
from tiered_stream.storage.local_layout import object_key
from tiered_stream.storage.segment_places import Place, misplacement, segment_places

if TYPE_CHECKING:
    from tests.rigs.stack.s3proxy import S3Proxy

PLAIN = "aiven-plain"
LOCAL, AIVEN = StorageLayout.LOCAL, StorageLayout.AIVEN
SEGMENT = golden_aiven.big_segment(PLAIN)


def copied(bucket: Path, *names: str) -> Path:
    """A bucket with the objects of these golden sets."""
    for name in names:
        shutil.copytree(golden(name).bucket, bucket, dirs_exist_ok=True)
    return bucket


def by_local_plugin(bucket: Path, segment: RemoteLogSegment) -> None:
    """Put the segment's log where Kafka's LocalTieredStorage has it."""
    path = bucket / object_key(segment, ".log")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")


def settings(bucket: Path, layout: StorageLayout = LOCAL, key_prefix: str = "") -> StorageOptions:
    return StorageOptions(uri=bucket.as_uri(), layout=layout, rsm_config={"key.prefix": key_prefix})


def test_all_places_of_a_storage_are_found(tmp_path: Path) -> None:
    copied(tmp_path, PLAIN, MASKED)
    by_local_plugin(tmp_path / "kafka-tiered-storage", SEGMENT)
    (tmp_path / "a note.txt").write_text("")
    uri = tmp_path.as_uri()
    assert set(segment_places(settings(tmp_path))) == {
        Place(AIVEN, uri, "plain/"),
        Place(AIVEN, uri, "masked.prefix/v1-"),
        Place(LOCAL, f"{uri}/kafka-tiered-storage"),
    }


def test_objects_without_a_prefix_are_a_place_too(tmp_path: Path) -> None:
    bucket = copied(tmp_path / "copy", PLAIN) / "plain"
    assert segment_places(settings(bucket)) == [Place(AIVEN, bucket.as_uri(), "")]


@pytest.mark.parametrize(
    "given",
    [(LOCAL, ""), (LOCAL, "plain/"), (AIVEN, ""), (AIVEN, "plain"), (AIVEN, "other/")],
)
def test_a_segment_is_found_where_it_is_and_only_wrong_settings_are_named(given: tuple[StorageLayout, str]) -> None:
    found = misplacement(settings(golden(PLAIN).bucket, *given), SEGMENT)
    assert found is not None and found.actual_place
    layout = "" if given[0] == AIVEN else "remote.storage.layout=aiven and "
    assert found.advice == f"set {layout}rsm.config.key.prefix=plain/"


def test_a_segment_that_another_plugin_wrote_is_found(tmp_path: Path) -> None:
    by_local_plugin(tmp_path / "kafka-tiered-storage", SEGMENT)
    found = misplacement(settings(tmp_path, AIVEN, "plain/"), SEGMENT)
    assert found is not None and found.actual_place
    assert found.advice.endswith(
        f"remote.storage.layout=local and remote.storage.uri={tmp_path.as_uri()}/kafka-tiered-storage"
    )


def test_an_object_that_is_gone_from_its_place_is_no_matter_of_settings(tmp_path: Path) -> None:
    bucket = copied(tmp_path, PLAIN)
    for path in bucket.rglob(f"{SEGMENT.base_offset:020d}-*.log"):
        path.unlink()
    assert misplacement(settings(bucket, AIVEN, "plain/"), SEGMENT) is None


def test_a_copy_elsewhere_of_an_object_that_is_gone_is_no_matter_of_settings(tmp_path: Path) -> None:
    bucket = copied(tmp_path, PLAIN)
    copied(bucket / "backup", PLAIN)
    for path in (bucket / "plain").rglob(f"{SEGMENT.base_offset:020d}-*.log"):
        path.unlink()
    assert misplacement(settings(bucket, AIVEN, "plain/"), SEGMENT) is None
    shutil.rmtree(bucket / "plain")
    found = misplacement(settings(bucket, AIVEN, "plain/"), SEGMENT)
    assert found is not None and found.advice.endswith("rsm.config.key.prefix=backup/plain/")


def test_a_place_that_has_nothing_of_the_topic_is_told(tmp_path: Path) -> None:
    found = misplacement(settings(tmp_path, AIVEN, "plain/"), SEGMENT)
    assert found is not None and not found.actual_place
    assert "remote.storage.uri" in str(found)
    pasted = replace(settings(tmp_path, AIVEN, "plain/"), rsm_config={"storage.root": str(tmp_path)})
    found = misplacement(pasted, SEGMENT)
    assert found is not None
    assert "rsm.config.storage.root and rsm.config.key.prefix" in str(found)


def test_a_storage_that_may_not_be_listed_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(store: FileStore, prefix: str, after: str = "") -> Iterator[str]:
        raise StorageAccessError("no")

    monkeypatch.setattr(FileStore, "list", refused)
    bucket = copied(tmp_path, PLAIN)
    assert misplacement(settings(bucket, AIVEN, "other/"), SEGMENT) is None
    assert misplacement(settings(bucket, LOCAL, "plain/"), SEGMENT) is not None


@pytest.mark.stack
def test_the_whole_bucket_is_looked_through_whatever_the_prefix_in_the_uri(s3proxy: S3Proxy) -> None:
    copied(s3proxy.base_dir / "places", PLAIN, MASKED)
    options = s3_options(s3proxy, "s3://places/wrong", layout=LOCAL)
    assert set(segment_places(options)) == {
        Place(AIVEN, "s3://places", "plain/"),
        Place(AIVEN, "s3://places", "masked.prefix/v1-"),
    }
    for given in (
        options,
        replace(options, layout=AIVEN, uri="s3://places/masked.prefix"),
        replace(options, uri="s3://places/plain"),
    ):
        found = misplacement(given, SEGMENT)
        assert found is not None
        assert found.advice.endswith("remote.storage.uri=s3://places and rsm.config.key.prefix=plain/")


@pytest.mark.stack
def test_what_is_below_the_uri_is_named_by_the_uri(s3proxy: S3Proxy) -> None:
    copied(s3proxy.base_dir / "shared" / "tier", PLAIN, MASKED)
    copied(s3proxy.base_dir / "shared" / "other", PLAIN)
    assert set(segment_places(s3_options(s3proxy, "s3://shared/tier", layout=AIVEN))) == {
        Place(AIVEN, "s3://shared/tier", "plain/"),
        Place(AIVEN, "s3://shared/tier", "masked.prefix/v1-"),
        Place(AIVEN, "s3://shared", "other/plain/"),
    }


def test_the_places_of_one_page_take_one_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for prefix in "abc":
        by_local_plugin(tmp_path / prefix, SEGMENT)
    listings, own = [], FileStore.list
    monkeypatch.setattr(FileStore, "list", lambda *words: (listings.append(words), own(*words))[1])
    assert len(segment_places(settings(tmp_path))) == 3
    assert len(listings) == 1


def test_no_more_than_32_places_are_looked_for(tmp_path: Path) -> None:
    for number in range(40):
        by_local_plugin(tmp_path / f"{number:02}", SEGMENT)
    assert len(segment_places(settings(tmp_path))) == 32
