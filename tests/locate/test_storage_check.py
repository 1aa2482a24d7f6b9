from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from tests.golden import MASKED, golden
from tests.locate.golden_locator import GoldenLocator
from tests.plan.made_up_tier import MADE_UP_ID, MadeUpTier, TieredLog
from tests.storage.clouds import CLOUDS
from tests.storage.scripted_http import ScriptedHttp, answer, error
from tests.tier.segments import described
from tiered_stream.errors import ConfigurationError, StorageAccessError, StorageBucketNotFoundError, StorageError
from tiered_stream.locate.locator import Locator
from tiered_stream.locate.storage_failures import StorageCheck
from tiered_stream.model import OffsetRange, PartitionLocations, TopicPartition
from tiered_stream.options.choices import IsolationLevel, StorageLayout
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.file_store import FileStore
from tiered_stream.storage.local_layout import LocalLayoutFetcher, object_key
from tiered_stream.storage.object_store import ObjectStore
from tiered_stream.storage.open_fetcher import open_fetcher

T0 = TopicPartition("t", 0)
ALL = {T0: OffsetRange(0, 10)}
SEGMENT, LATER = (described(T0, start, start + 10, start, topic_id=MADE_UP_ID, size=100) for start in (0, 10))


def checked(store: ObjectStore) -> Locator:
    """A locator of both segments, whether or not they are in storage."""
    locator = MadeUpTier({T0: [TieredLog(0, 10), TieredLog(10, 20)]}, signed_url=None)
    locator.storage_check = StorageCheck(LocalLayoutFetcher(store), falls_back=True)
    return locator


def test_a_missing_folder_fails_the_first_location(tmp_path: Path) -> None:
    locator = checked(FileStore(tmp_path / "nowhere"))
    assert locator.locate({T0: OffsetRange(3, 3)}) == {T0: ()}
    for _ in range(2):
        with pytest.raises(StorageBucketNotFoundError, match=r"nowhere \(option remote\.storage\.uri\) "):
            locator.locate(ALL)


def test_refused_access_fails_the_first_location(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "tier").mkdir()
    (tmp_path / "tier" / object_key(SEGMENT, "").split("/")[0]).symlink_to(tmp_path / "secret")
    with pytest.raises(StorageAccessError, match="out of the folder"):
        checked(FileStore(tmp_path / "tier")).locate(ALL)


@pytest.mark.parametrize(
    "status,code", [(400, "IllegalLocationConstraintException"), (405, "MethodNotAllowed"), (418, "Teapot"), (501, "")]
)
def test_only_what_is_known_to_pass_lets_a_query_begin_with_the_brokers(status: int, code: str) -> None:
    with ScriptedHttp([error(status, code)]) as server:
        locator = checked(CLOUDS["s3"].store(server.url, request_timeout_ms=1000))
        if status >= 500:
            assert locator.locate(ALL)[T0]
            return
        with pytest.raises(StorageError, match=f"{status} {code}"):
            locator.locate(ALL)


@pytest.mark.parametrize("missing", [answer(404, b"<html>Not Found</html>"), error(404, "NoSuchAccessPoint")])
def test_an_endpoint_that_has_no_bucket_is_a_wrong_setting(missing: bytes) -> None:
    with ScriptedHttp([missing]) as server:
        locator = checked(FileStore(Path("/")))
        fetcher = open_fetcher(CLOUDS["s3"].options(server.url, layout=StorageLayout.LOCAL))
        locator.storage_check = StorageCheck(fetcher, falls_back=True)
        with pytest.raises(
            ConfigurationError, match=r"404.*no bucket can be listed there: correct the endpoint, or set "
        ):
            locator.locate(ALL)


@pytest.mark.parametrize("given", [True, False])
def test_access_to_one_object_that_is_refused_is_held_against_another(
    tmp_path: Path, given: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """S3 refuses what is missing, where the user may not list the bucket."""
    tier = tmp_path / "tier"
    for segment in (SEGMENT, LATER):
        path = tier / object_key(segment, ".log")
        path.parent.mkdir(parents=True, exist_ok=True)
        if segment is LATER and given:
            path.write_bytes(bytes(segment.size))
        else:
            path.symlink_to(tmp_path / "outside")
    locator, both = checked(FileStore(tier)), {T0: OffsetRange(0, 20)}
    if given:
        assert len(locator.locate(both)[T0]) == 2
        assert "other segments" in caplog.text
    else:
        with pytest.raises(StorageAccessError, match="out of the folder"):
            locator.locate(both)


def test_a_single_missing_object_is_left_to_the_tasks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    located = checked(FileStore(tmp_path)).locate(ALL)
    assert [location.segment for location in located[T0]] == [SEGMENT]
    assert "each task tries it again" in caplog.text


def test_the_storage_is_asked_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    locator = checked(FileStore(tmp_path))
    for _ in range(3):
        assert locator.locate(ALL)[T0]
    assert len(caplog.records) == 1


def located(
    name: str, isolation: IsolationLevel, storage: StorageOptions, *, falls_back: bool = True
) -> PartitionLocations:
    """What a query locates of a golden set by these settings."""
    fetcher = open_fetcher(storage)
    with closing(GoldenLocator(name, isolation, fetcher, falls_back=falls_back)) as locator:
        locator.storage_check = StorageCheck(fetcher, falls_back=True)
        ends = {partition: visible[-1].offsets.end for partition, visible in locator.visible.items()}
        return locator.locate({partition: OffsetRange(3, end) for partition, end in ends.items()})


@pytest.mark.parametrize("falls_back", [True, False])
@pytest.mark.parametrize("isolation", IsolationLevel)
@pytest.mark.parametrize(
    ("name", "layout", "key_prefix", "wanted"),
    [
        ("aiven-plain", StorageLayout.LOCAL, "", "plain/"),
        (MASKED, StorageLayout.LOCAL, "", "masked.prefix/v1-"),
        (MASKED, StorageLayout.AIVEN, "masked.prefix/", "masked.prefix/v1-"),
        (MASKED, StorageLayout.AIVEN, "", "masked.prefix/v1-"),
    ],
)
def test_settings_that_lead_elsewhere_fail_the_query_with_those_that_lead_to_the_segments(
    name: str, layout: StorageLayout, key_prefix: str, wanted: str, isolation: IsolationLevel, falls_back: bool
) -> None:
    """Some segments of the masked set say themselves where they are: these are given whatever the key prefix is."""
    storage = StorageOptions(uri=golden(name).bucket.as_uri(), layout=layout, rsm_config={"key.prefix": key_prefix})
    with pytest.raises(ConfigurationError, match=rf"; .*key\.prefix={wanted}$"):
        located(name, isolation, storage, falls_back=falls_back)


@pytest.mark.parametrize("isolation", IsolationLevel)
def test_a_bucket_without_the_topics_fails_the_query(tmp_path: Path, isolation: IsolationLevel) -> None:
    storage = StorageOptions(uri=tmp_path.as_uri(), layout=StorageLayout.LOCAL)
    with pytest.raises(ConfigurationError, match="s32-.* does not exist; "):
        located("aiven-plain", isolation, storage)


@pytest.mark.parametrize("isolation", IsolationLevel)
@pytest.mark.parametrize("gone", ["s32-txn-*/**/*", "s32-txn-*/0/*.log", "s32-*/0/00000000000000000000-*.*"])
def test_objects_that_are_gone_are_left_to_the_brokers_while_others_are_given(
    tmp_path: Path, gone: str, isolation: IsolationLevel
) -> None:
    bucket = tmp_path / "bucket"
    shutil.copytree(golden("aiven-plain").bucket, bucket)
    for path in (bucket / "plain").glob(gone):
        path.unlink(missing_ok=True) if path.is_file() else None
    storage = StorageOptions(uri=bucket.as_uri(), layout=StorageLayout.AIVEN, rsm_config={"key.prefix": "plain/"})
    assert located("aiven-plain", isolation, storage)
