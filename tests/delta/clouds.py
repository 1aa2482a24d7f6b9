"""Servers of S3, and emulators of Azure's and Google's storage, as stores of tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.rigs.stack.azurite import ACCOUNT, KEY, Azurite
from tests.rigs.stack.fake_gcs import FakeGcs
from tests.rigs.stack.s3_client import REGION
from tests.rigs.stack.versitygw import VersityGateway
from tiered_stream.delta.settings.ingest_settings import TableSpec, TableStorage
from tiered_stream.model import ByteRange
from tiered_stream.storage.open_store import open_store


@dataclass(frozen=True)
class Cloud:
    """Store of tables: its scheme, the access to it, and a function that makes a bucket or container."""

    scheme: str
    storage: TableStorage
    create: Callable[[str], None]

    def files(self, bucket: str, path: str) -> TableSpec:
        """Return the table `path` in this bucket or container."""
        return TableSpec(f"{self.scheme}://{bucket}/{path}", self.storage)

    def settings(self) -> dict[str, str]:
        """Return the access as settings of an ingest job."""
        if self.scheme == "gs":
            return {
                "ingest.storage.gcs.endpoint.url": self.storage.gcs_endpoint_url or "",
                "ingest.storage.gcs.credentials.json": self.storage.gcs_credentials_json or "",
            }
        return {
            "ingest.storage.azure.account.name": ACCOUNT,
            "ingest.storage.azure.account.key": KEY,
            "ingest.storage.azure.endpoint.url": self.storage.azure_endpoint_url or "",
        }


def azure(server: Azurite) -> Cloud:
    return Cloud("az", TableStorage(**server.options()), server.create_container)  # type: ignore[arg-type]


def google(server: FakeGcs) -> Cloud:
    return Cloud("gs", TableStorage(**server.options()), server.create_bucket)  # type: ignore[arg-type]


def in_s3(server: VersityGateway, uri: str) -> TableSpec:
    """Return the table `uri` in an S3 server."""
    return TableSpec(uri, TableStorage(server.endpoint, REGION, True, server.access_key, server.secret_key))


def keys(files: TableSpec) -> list[str]:
    """The keys of all objects in the table's folder, relative to it."""
    return sorted(open_store(files.storage.at(files.uri)).list(""))


def stored(files: TableSpec, path: str) -> bytes:
    """The bytes of an object in the table's folder."""
    store = open_store(files.storage.at(files.uri))
    return bytes(store.get(path, ByteRange(0, store.size(path))))
