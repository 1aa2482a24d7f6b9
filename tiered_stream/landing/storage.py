"""A table's folder as `pyarrow` writes to it, and as the `deltalake` library opens it: local, or in S3."""

from __future__ import annotations

from functools import cache
from typing import Any
from urllib.parse import unquote, urlsplit

from pyarrow import fs

from tiered_stream.landing.target import TableStorage


def reachable(uri: str) -> bool:
    """Whether the executors can write there themselves."""
    return urlsplit(uri).scheme in ("file", "s3")


def delta_storage_options(storage: TableStorage) -> dict[str, str]:
    """The `storage_options` of `DeltaTable`; credentials that are not given come from AWS's own chain."""
    endpoint = storage.s3_endpoint_url
    options = {
        "AWS_ACCESS_KEY_ID": storage.access_key_id,
        "AWS_SECRET_ACCESS_KEY": storage.secret_access_key,
        "AWS_SESSION_TOKEN": storage.session_token,
        "AWS_REGION": storage.s3_region or ("us-east-1" if endpoint else None),
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true" if endpoint and endpoint.startswith("http:") else None,
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": None if storage.s3_path_style else "true",
    }
    return {name: value for name, value in options.items() if value is not None}


@cache
def open_folder(uri: str, storage: TableStorage) -> fs.FileSystem:
    """The table's folder as a file system of its own; one a process, since connections are kept."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return fs.SubTreeFileSystem(unquote(parts.path), fs.LocalFileSystem())
    bucket = parts.netloc
    return fs.SubTreeFileSystem(f"{bucket}/{parts.path.strip('/')}", _s3(bucket, storage))


def _s3(bucket: str, storage: TableStorage) -> fs.FileSystem:
    given: dict[str, Any] = {"region": storage.s3_region}
    if storage.access_key_id:
        given |= {"access_key": storage.access_key_id, "secret_key": storage.secret_access_key}
        given |= {"session_token": storage.session_token}
    if storage.s3_endpoint_url:
        endpoint = urlsplit(storage.s3_endpoint_url)
        given |= {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme}
        given |= {"force_virtual_addressing": not storage.s3_path_style}
    elif not storage.s3_region:
        given["region"] = fs.resolve_s3_region(bucket)
    return fs.S3FileSystem(**given)
