from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import pytest

from tests.storage.segment import segment
from tests.tier.fetchers import IndexesOnly
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.parsing import StorageOptions, parse_options
from tiered_stream.process.caches import MAX_OBJECTS
from tiered_stream.storage.fetcher import RemoteStorageFetcher
from tiered_stream.storage.local_layout import object_key
from tiered_stream.storage.open_fetcher import fetcher_for, open_fetcher


def test_the_same_options_give_the_same_fetcher_and_others_another(tmp_path: Path) -> None:
    first = open_fetcher(StorageOptions(uri=tmp_path.as_uri(), rsm_config={"a": "1", "b": "2"}))
    assert first is open_fetcher(
        StorageOptions(uri=tmp_path.as_uri(), rsm_config=MappingProxyType({"b": "2", "a": "1"}))
    )
    assert first is not open_fetcher(StorageOptions(uri=tmp_path.as_uri(), rsm_config={"a": "1"}))


def test_a_forked_process_makes_its_own(tmp_path: Path) -> None:
    options = StorageOptions(uri=tmp_path.as_uri())
    mine = id(open_fetcher(options))
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(_is_another, (options, mine))


def _is_another(options: StorageOptions, parents: int) -> bool:
    return id(open_fetcher(options)) != parents


def test_a_folder_with_spaces_is_found(tmp_path: Path) -> None:
    path = tmp_path / "my tier" / object_key(segment(3), ".log")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"log")
    assert open_fetcher(StorageOptions(uri=(tmp_path / "my tier").as_uri())).fetch_log_segment(segment(3), 0) == b"log"


@pytest.mark.parametrize(
    "options,message",
    [
        (StorageOptions(), "remote.storage.uri is missing"),
        (StorageOptions(uri="ftp://server/tier"), "'ftp' is not known; s3://bucket/prefix, gs://bucket/prefix"),
        (StorageOptions(uri="/folder"), "'' is not known"),
        (StorageOptions(uri="file:///a%00b"), "a NUL in its path"),
    ],
)
def test_a_storage_that_is_not_known_names_what_is(options: StorageOptions, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        open_fetcher(options)


class Own(IndexesOnly):
    """A user's own class, which tells when it is closed."""

    closed: ClassVar[list[str]] = []

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.name = properties["name"]

    def close(self) -> None:
        self.closed.append(self.name)


def own(name: str) -> RemoteStorageFetcher:
    given = {
        "subscribe": "t",
        "kafka.bootstrap.servers": "b:9092",
        "kafka.remote.storage.fetcher.class": f"{__name__}.Own",
        "kafka.name": name,
    }
    return fetcher_for(parse_options(given, streaming=False))


def test_a_users_own_fetcher_is_closed_when_it_was_pushed_out_and_nobody_has_it_any_more() -> None:
    first = own("first")
    assert own("first") is first
    for number in range(MAX_OBJECTS):
        own(f"other {number}")
    assert "first" not in Own.closed
    del first
    gc.collect()
    assert Own.closed.count("first") == 1
