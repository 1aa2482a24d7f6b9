"""Each service of `CloudStore` at an endpoint that answers as a test says, and answers as the services give them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.rigs.stack.azurite import KEY
from tests.rigs.stack.fake_gcs import key_without_token
from tests.storage import scripted_http
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.azure import AzureContainer
from tiered_stream.storage.cloud_store import Service
from tiered_stream.storage.gcs import GoogleBucket
from tiered_stream.storage.object_store import ObjectStore
from tiered_stream.storage.open_store import open_store
from tiered_stream.storage.s3 import S3Bucket

_S3_KEYS = (
    b"<ListBucketResult><Contents><Key>p/key</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
    b"<ETag>x</ETag><Size>1</Size></Contents></ListBucketResult>"
)
_AZURE_KEYS = (
    b"<EnumerationResults><Blobs><Blob><Name>p/key</Name><Properties>"
    b"<Last-Modified>Tue, 15 Nov 1994 12:45:26 GMT</Last-Modified><Content-Length>1</Content-Length>"
    b"<Content-Type>application/octet-stream</Content-Type><Etag>x</Etag></Properties></Blob></Blobs>"
    b"<NextMarker/></EnumerationResults>"
)


def answer(status: int, body: bytes = b"", length: int | None = None, **headers: str) -> bytes:
    """One answer with the headers that Google and Azure give to each object."""
    dated = {"ETag": "x", "Last_Modified": "Tue, 15 Nov 1994 12:45:26 GMT", **headers}
    return scripted_http.answer(status, body, length, **dated)


def part(body: bytes, start: int = 0, length: int | None = None) -> bytes:
    """The answer to a ranged GET."""
    return answer(206, body, length, Content_Range=f"bytes {start}-{start + len(body) - 1}/1000")


@dataclass(frozen=True)
class Cloud:
    """One service, at an endpoint of a test.

    `hint` is of the error for refused access, `keys` the body of a listing of one object.
    """

    uri: str
    settings: Callable[[str], Mapping[str, object]]
    service: Callable[[StorageOptions], Service]
    missing_code: str
    hint: str
    keys: bytes

    def options(self, endpoint: str, **others: object) -> StorageOptions:
        return StorageOptions(**{"uri": self.uri, **self.settings(endpoint), **others})  # type: ignore[arg-type]

    def store(self, endpoint: str, **others: object) -> ObjectStore:
        return open_store(self.options(endpoint, **others))


def _s3(endpoint: str) -> Mapping[str, object]:
    keys = {"access_key_id": "id", "secret_access_key": "the-secret"}
    return {"s3_endpoint_url": endpoint, "s3_path_style": True, "s3_region": "eu-west-1", **keys}


def _google(endpoint: str) -> Mapping[str, object]:
    return {"gcs_endpoint_url": endpoint, "gcs_credentials_json": key_without_token(endpoint)}


def _azure(endpoint: str) -> Mapping[str, object]:
    return {"azure_account_name": "mine", "azure_account_key": KEY, "azure_endpoint_url": f"{endpoint}/mine"}


CLOUDS = {
    "s3": Cloud(
        "s3://bucket/p", _s3, lambda options: S3Bucket(options, "bucket"), "NoSuchBucket",
        "secret.access.key.*credential chain", _S3_KEYS,
    ),
    "gcs": Cloud(
        "gs://bucket/p", _google, lambda options: GoogleBucket(options, "bucket"), "NoSuchBucket",
        "gcs.credentials.path.*Storage Object Viewer", _S3_KEYS,
    ),
    "azure": Cloud(
        "az://bucket/p", _azure, AzureContainer, "ContainerNotFound",
        "azure.account.key.*Storage Blob Data Reader", _AZURE_KEYS,
    ),
}  # fmt: skip
