from __future__ import annotations

import multiprocessing
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.storage.segment import segment
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.local_layout import object_key
from tiered_stream.storage.open_fetcher import open_fetcher


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
        (StorageOptions(uri="gs://bucket"), "'gs' is not known; s3://bucket/prefix and file:///folder are"),
        (StorageOptions(uri="/folder"), "'' is not known"),
        (StorageOptions(uri="file://host/folder"), "names no local folder"),
        (StorageOptions(uri="file:///tmp", layout="other"), "'other' is not known; local and aiven are"),
    ],
)
def test_a_storage_that_is_not_known_names_what_is(options: StorageOptions, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        open_fetcher(options)
