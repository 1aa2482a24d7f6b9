"""Function that opens the object store that a storage URI names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage import cloud_endpoints as endpoints

if TYPE_CHECKING:
    from tiered_stream.storage.cloud_store import Service
    from tiered_stream.storage.object_store import ObjectStore, WritableStore


def open_store(options: StorageOptions, use: endpoints.StoreUse | None = None) -> ObjectStore:
    """Open a new store for `options.uri`, without a request.

    `use` has the names of settings that errors mention; None: the settings of the segments' storage.

    Raises:
        ConfigurationError: `options.uri` is missing or malformed, its scheme is unknown, or other settings of the
            storage are wrong.
    """
    if options.uri is None:
        raise ConfigurationError(
            "remote.storage.uri is missing: it says where the tiered segments are, as s3://bucket/prefix"
        )
    uri, use = urlsplit(options.uri), use or endpoints.segments_use(options)
    if uri.scheme == "file":
        from tiered_stream.storage.file_store import FileStore

        folder = unquote(uri.path)
        if "\0" in folder:
            raise ConfigurationError("remote.storage.uri names a folder with a NUL in its path")
        return FileStore(Path(folder), use.place)
    if uri.scheme in (*endpoints.S3_SCHEMES, endpoints.GOOGLE_SCHEME, *endpoints.AZURE_SCHEMES):
        # Imported here, because obstore and boto3 take long to import, and other stores do not need them.
        from tiered_stream.storage.cloud_store import CloudStore

        _, path = endpoints.bucket_and_path(options.uri)
        return CloudStore(open_service(options, use), f"{path}/" if path else "")
    if uri.scheme in endpoints.HDFS_SCHEMES:
        from tiered_stream.storage.hdfs_store import HdfsStore

        return HdfsStore(options, use)
    raise ConfigurationError(
        f"remote.storage.uri: the scheme {uri.scheme!r} is not known; s3://bucket/prefix, gs://bucket/prefix, "
        "az://container/prefix, abfss://container@account.dfs.core.windows.net/prefix, hdfs://namenode:8020/folder and "
        "file:///folder are. For another storage give a class of your own in kafka.remote.storage.fetcher.class"
    )


def open_writable(options: StorageOptions, use: endpoints.StoreUse) -> WritableStore:
    """Open a new store for `options.uri`, which must be in a cloud or in HDFS, because tasks write to the store.

    `use` has the names of settings that errors mention.

    Raises:
        ConfigurationError: `options.uri` is missing or malformed, its scheme is unknown, or other settings of the
            storage are wrong.
    """
    return open_store(options, use)  # type: ignore[return-value] # only folders are not written to


def open_service(options: StorageOptions, use: endpoints.StoreUse | None = None) -> Service:
    """Return the access (`Service`) to the bucket or container that `options.uri` names.

    `use` has the names of settings that errors mention; None: the settings of the segments' storage.

    Raises:
        ConfigurationError: the name of the bucket or the endpoint is malformed, or the URI names no storage account of
            Azure's.
    """
    use = use or endpoints.segments_use(options)
    bucket, _ = endpoints.bucket_and_path(options.uri or "")
    scheme = urlsplit(options.uri or "").scheme
    if scheme in endpoints.S3_SCHEMES:
        from tiered_stream.storage.s3 import S3Bucket

        return S3Bucket(options, bucket, use)
    if scheme == endpoints.GOOGLE_SCHEME:
        from tiered_stream.storage.gcs import GoogleBucket

        return GoogleBucket(options, bucket, use)
    from tiered_stream.storage.azure import AzureContainer

    return AzureContainer(options, use)
