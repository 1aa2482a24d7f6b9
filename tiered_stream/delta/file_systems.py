"""A table's folder as `pyarrow` writes to it, and as the `deltalake` library opens it: local, or in S3."""

from __future__ import annotations

from functools import cache
from typing import Any
from urllib.parse import unquote, urlsplit

from pyarrow import fs

from tiered_stream.delta.ingest_settings import TableStorage

_REGION_OF_OTHER_SERVICES = "us-east-1"


def delta_storage_options(storage: TableStorage) -> dict[str, str]:
    """The `storage_options` of `DeltaTable`; credentials that are not given come from AWS's own chain."""
    endpoint = storage.s3_endpoint_url
    options = {
        "AWS_ACCESS_KEY_ID": storage.access_key_id,
        "AWS_SECRET_ACCESS_KEY": storage.secret_access_key,
        "AWS_SESSION_TOKEN": storage.session_token,
        "AWS_REGION": storage.s3_region or (_REGION_OF_OTHER_SERVICES if endpoint else None),
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true" if endpoint and endpoint.startswith("http:") else None,
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": None if storage.s3_path_style else "true",
        "AWS_SKIP_SIGNATURE": "true" if storage.anonymous else None,
    }
    return {name: value for name, value in options.items() if value is not None}


@cache
def open_folder(uri: str, storage: TableStorage) -> fs.FileSystem:
    """The table's folder as a file system of its own; one a process, since connections are kept."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return fs.SubTreeFileSystem(unquote(parts.path), fs.LocalFileSystem())
    return fs.SubTreeFileSystem(f"{parts.netloc}/{parts.path.strip('/')}", _s3(storage))


def make_folder(table: fs.FileSystem, path: str) -> None:
    """Make a folder in the table's, where folders have to be made: to S3 they are but parts of a name."""
    if isinstance(table.base_fs, fs.LocalFileSystem):
        table.create_dir(path)


def _s3(storage: TableStorage) -> fs.FileSystem:
    # A small file, of which there may be thousands, is then one request and not three.
    given: dict[str, Any] = {"region": storage.s3_region, "anonymous": storage.anonymous, "allow_delayed_open": True}
    if storage.access_key_id:
        given |= {"access_key": storage.access_key_id, "secret_key": storage.secret_access_key}
        given |= {"session_token": storage.session_token}
    if storage.s3_endpoint_url:
        endpoint = urlsplit(storage.s3_endpoint_url)
        given |= {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme}
        given["region"] = storage.s3_region or _REGION_OF_OTHER_SERVICES
        given |= {"force_virtual_addressing": not storage.s3_path_style}
    return fs.S3FileSystem(**given)
