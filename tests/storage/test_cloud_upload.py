from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.delta.clouds import Cloud
from tiered_stream.errors import StorageBucketNotFoundError, StorageObjectNotFoundError
from tiered_stream.model import ByteRange
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.cloud_endpoints import TABLES
from tiered_stream.storage.object_store import WritableStore
from tiered_stream.storage.open_store import open_store, open_writable

Options = Callable[[str], StorageOptions]


@pytest.fixture
def options(cloud: Cloud) -> Options:
    """Makes the options that lead to a bucket or container."""
    return lambda bucket: cloud.storage.at(f"{cloud.scheme}://{bucket}")


@pytest.fixture
def uploader(options: Options) -> WritableStore:
    return open_writable(options("contract"), TABLES)


def test_an_upload_replaces_an_object(options: Options, uploader: WritableStore, tmp_path: Path) -> None:
    key, store = f"{tmp_path.name} ü%+/a b", open_store(options("contract"))
    uploader.put(key, b"first")
    uploader.put(key, b"second one")
    assert bytes(store.get(key, ByteRange(0, store.size(key)))) == b"second one"


def test_an_object_is_created_once(options: Options, uploader: WritableStore, tmp_path: Path) -> None:
    key, store = f"{tmp_path.name}/0.json", open_store(options("contract"))
    assert uploader.create(key)
    uploader.put(key, b"first")
    assert not uploader.create(key)
    assert bytes(store.get(key, ByteRange(0, 5))) == b"first"
    uploader.delete(key)
    with pytest.raises(StorageObjectNotFoundError):
        store.size(key)
    assert uploader.create(key)


def test_a_missing_bucket_is_named_with_the_setting_of_the_table(options: Options) -> None:
    uploader = open_writable(options("no-such-place"), TABLES)
    with pytest.raises(StorageBucketNotFoundError, match=r"no-such-place \(setting ingest\.table\) "):
        uploader.put("key", b"content")
