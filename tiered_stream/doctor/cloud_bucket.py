"""Requests to Google's or Azure's storage or HDFS by this package's store, for segments and for tables."""

from __future__ import annotations

from urllib.parse import urlsplit

from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.doctor.finding import FaultError, Fixes, Result
from tiered_stream.errors import StorageAccessError, StorageBucketNotFoundError, StorageError, StorageUnavailableError
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.cloud_endpoints import AZURE_SCHEMES, GOOGLE_SCHEME, TABLES, segments_use
from tiered_stream.storage.open_store import open_store, open_writable

FIXES: Fixes = {
    StorageBucketNotFoundError: "correct the name in the setting that the message names",
    StorageUnavailableError: "correct the endpoint that the message names, or open the network path to it",
}
_GRANT = (
    "grant the role Storage Object Viewer (Google) or Storage Blob Data Reader (Azure), which include listing, or the "
    "permissions r-x on folders (HDFS)"
)


def list_container(storage: StorageOptions) -> Result[bool]:
    """List the keys below `storage.uri`; the result's value is True if the user is authorized to list them.

    Raises:
        ConfigurationError: the URI or the credentials are malformed.
        StorageError: the bucket or container does not exist, or the service cannot be reached.
    """
    store = open_store(storage)
    try:
        is_empty = next(store.list(""), None) is None
    except StorageAccessError as error:
        return Result(False, str(error), _GRANT)
    if not is_empty:
        return Result(True, f"{store.describe('')} can be listed")
    fix = f"correct the {segments_use(storage).place} and the key prefix, unless no segment is tiered yet"
    return Result(True, f"{store.describe('')} has no objects", fix)


def list_folder(files: TableSpec) -> Result[TableSpec]:
    """Check that the objects in the table's folder can be listed, and return `files` as the result's value.

    Raises:
        FaultError: there are no credentials, or the service refuses the request or does not respond.
    """
    store = open_store(files.storage.at(files.uri), TABLES)
    try:
        next(store.list(""), None)
    except StorageError as error:
        raise _fault(files, error) from None
    return Result(files, f"{store.describe('')} exists and can be listed")


def write_object(files: TableSpec, name: str) -> bool:
    """Put an empty object into the table's folder, try to create it again, and delete it.

    Return whether the service refuses to create an object that exists.

    Raises:
        FaultError: a request is refused.
    """
    key = "/".join(filter(None, (urlsplit(files.uri).path.strip("/"), name)))
    try:
        store = open_writable(_root(files), TABLES)
        store.put(key, b"")
        try:
            return not store.create(key, b"")
        finally:
            store.delete(key)
    except StorageError as error:
        raise _fault(files, error) from None


def _root(files: TableSpec) -> StorageOptions:
    """Return the access to the bucket, container or root of HDFS that the table is in."""
    parts = urlsplit(files.uri)
    return files.storage.at(f"{parts.scheme}://{parts.netloc}")


def _fault(files: TableSpec, error: StorageError) -> FaultError:
    scheme = urlsplit(files.uri).scheme
    if scheme not in (GOOGLE_SCHEME, *AZURE_SCHEMES):
        return FaultError(str(error), "correct the folder, or (in HDFS) HADOOP_CONF_DIR or the user's permissions")
    is_google = scheme == GOOGLE_SCHEME
    role, settings = (TABLES.google_role, "fs.gs") if is_google else (TABLES.azure_role, "fs.azure")
    correct = f"correct ingest.storage.* or spark.hadoop.{settings}.*"
    if isinstance(error, StorageBucketNotFoundError):
        return FaultError(str(error), "correct the name in ingest.table, or create the bucket or container")
    if isinstance(error, StorageAccessError):
        return FaultError(str(error), f"{correct}, and grant the role {role}")
    return FaultError(str(error), f"{correct}, and see the service's own log or status page")
