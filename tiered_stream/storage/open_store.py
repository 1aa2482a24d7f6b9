"""Opens the object store that a storage URI names."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.file_store import FileStore
from tiered_stream.storage.object_store import ObjectStore


def open_store(options: StorageOptions) -> ObjectStore:
    """Open a new store for `options.uri`.

    Raises:
        ConfigurationError: `options.uri` is missing or malformed, or its scheme is unknown.
    """
    if options.uri is None:
        raise ConfigurationError(
            "remote.storage.uri is missing: it says where the tiered segments are, as s3://bucket/prefix"
        )
    uri = urlsplit(options.uri)
    if uri.scheme == "file":
        if uri.netloc not in ("", "localhost") or not uri.path.startswith("/"):
            raise ConfigurationError(f"remote.storage.uri: {options.uri!r} names no local folder; write file:///folder")
        folder = unquote(uri.path)
        if "\0" in folder:
            raise ConfigurationError("remote.storage.uri names a folder with a NUL in its path")
        return FileStore(Path(folder))
    if uri.scheme in ("s3", "s3a"):
        # Imported here, because boto3 takes long to import, and a file store does not need it.
        from tiered_stream.storage.s3_store import open_s3_store

        return open_s3_store(options, bucket=uri.netloc, prefix=uri.path)
    raise ConfigurationError(
        f"remote.storage.uri: the scheme {uri.scheme!r} is not known; s3://bucket/prefix and file:///folder are. For "
        "another storage give a class of your own in kafka.remote.storage.fetcher.class"
    )
