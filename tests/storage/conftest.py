from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
import pytest

from tests.archives import TRANSFORMED
from tests.storage.golden_aiven import big_segment, copied
from tests.tier.layouts import put
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.azure import AzureContainer
from tiered_stream.storage.hdfs_store import HdfsStore
from tiered_stream.storage.object_store import ObjectStore
from tiered_stream.storage.open_store import open_store

if TYPE_CHECKING:
    from obstore.store import AzureStore

    from tests.kerberos.secured_hdfs import SecuredHdfs
    from tests.rigs.cloud.tiered_orders import TieredOrders
    from tests.rigs.stack.azurite import Azurite
    from tests.rigs.stack.fake_gcs import FakeGcs
    from tests.rigs.stack.hdfs import Hdfs
    from tests.rigs.stack.s3proxy import S3Proxy

StoreOf = Callable[[dict[str, bytes]], ObjectStore]
"""Makes a store that holds these objects."""


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


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    """A copy of the transformed golden set's big segment."""
    return copied(TRANSFORMED, big_segment(TRANSFORMED), tmp_path)


@pytest.fixture
def nameless_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process's user has no entry in the system's database, as in a container with a user id of its own."""

    def find(_: int) -> None:
        raise KeyError

    for variable in ("HOME", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("pwd.getpwuid", find)


_SERVICES = [pytest.param(name, marks=pytest.mark.stack) for name in ("s3", "azure", "gcs", "hdfs", "secured hdfs")]


@pytest.fixture(scope="session")
def orders_broker(cloud_front: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TieredOrders]:
    """A tiered topic and its broker, in the namespaces of `tests/rigs/cloud/`."""
    from tests.rigs.cloud.tiered_orders import tiered_orders

    with tiered_orders(tmp_path_factory.mktemp("orders")) as running:
        yield running


@pytest.fixture(params=["file", *_SERVICES])
def store_of(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreOf:
    """Each store in turn, for the contract that all of them keep."""
    root = f"some prefix/{tmp_path.name}"
    match request.param:
        case "s3":
            proxy: S3Proxy = request.getfixturevalue("s3proxy")
            options = s3_options(proxy, f"s3://contract/{root}/")
            return lambda objects: _filled(proxy.base_dir / "contract" / root, objects, options)
        case "azure":
            server: Azurite = request.getfixturevalue("azurite")
            azure = StorageOptions(**server.options(), uri=f"az://contract/{root}")  # type: ignore[arg-type]
            client = AzureContainer(azure).connect(60)
            return lambda objects: _put(open_store(azure), client, root, objects)
        case "gcs":
            google: FakeGcs = request.getfixturevalue("fake_gcs")
            gcs = StorageOptions(**google.options(), uri=f"gs://contract/{root}")  # type: ignore[arg-type]
            return lambda objects: _uploaded(open_store(gcs), google, root, objects)
        case "hdfs":
            cluster: Hdfs = request.getfixturevalue("hdfs")
            return lambda objects: _stored(objects, StorageOptions(uri=f"{cluster.uri}/{root}"))
        case "secured hdfs":
            secured: SecuredHdfs = request.getfixturevalue("secured_hdfs")
            secured.use(monkeypatch)
            login = StorageOptions(uri=f"{secured.uri}/{root}", **secured.by_keytab())  # type: ignore[arg-type]
            return lambda objects: _stored(objects, login)
    return lambda objects: _filled(tmp_path, objects, StorageOptions(uri=tmp_path.as_uri()))


def _stored(objects: dict[str, bytes], options: StorageOptions) -> ObjectStore:
    store = open_store(options)
    assert isinstance(store, HdfsStore)
    for key, data in objects.items():
        store.put(key, data)
    return store


def _put(store: ObjectStore, client: AzureStore, root: str, objects: dict[str, bytes]) -> ObjectStore:
    for key, data in objects.items():
        obstore.put(client, f"{root}/{key}", data)
    return store


def _uploaded(store: ObjectStore, server: FakeGcs, root: str, objects: dict[str, bytes]) -> ObjectStore:
    for key, data in objects.items():
        server.upload("contract", f"{root}/{key}", data)
    return store


def _filled(folder: Path, objects: dict[str, bytes], options: StorageOptions) -> ObjectStore:
    put(folder, objects)
    return open_store(options)
