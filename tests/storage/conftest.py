from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.object_store import ObjectStore
from tiered_stream.storage.open_store import open_store

if TYPE_CHECKING:
    from tests.stack.s3proxy import S3Proxy

StoreOf = Callable[[dict[str, bytes]], ObjectStore]
"""Makes a store that holds these objects."""


@pytest.fixture(scope="session")
def s3proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Proxy]:
    """A real S3 endpoint; its buckets are folders in `base_dir`."""
    from tests.stack.s3proxy import S3Proxy

    proxy = S3Proxy(tmp_path_factory.mktemp("s3proxy"), tmp_path_factory.mktemp("buckets"))
    try:
        proxy.start()
        yield proxy
    finally:
        proxy.stop()


def s3_options(proxy: S3Proxy, uri: str, **others: object) -> StorageOptions:
    """The options that lead to `uri` at this endpoint."""
    return StorageOptions(
        **{  # type: ignore[arg-type]
            "uri": uri,
            "s3_endpoint_url": proxy.endpoint,
            "s3_region": "us-east-1",
            "s3_path_style": True,
            "access_key_id": proxy.access_key,
            "secret_access_key": proxy.secret_key,
        }
        | others
    )


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.stack)])
def store_of(request: pytest.FixtureRequest, tmp_path: Path) -> StoreOf:
    """Each store in turn, for the contract that all of them keep."""
    if request.param == "file":
        return lambda objects: _filled(tmp_path, objects, StorageOptions(uri=tmp_path.as_uri()))
    proxy = request.getfixturevalue("s3proxy")
    bucket = proxy.base_dir / "contract"
    folder = bucket / "some prefix" / tmp_path.name
    return lambda objects: _filled(folder, objects, s3_options(proxy, f"s3://contract/some prefix/{tmp_path.name}/"))


def _filled(folder: Path, objects: dict[str, bytes], options: StorageOptions) -> ObjectStore:
    for key, data in objects.items():
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(data)
    return open_store(options)
