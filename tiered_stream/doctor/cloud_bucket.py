"""Trial requests to the folders of tables, and to tiered segments in Google's or Azure's storage or in HDFS."""

from __future__ import annotations

from urllib.parse import urlsplit

from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.doctor.finding import Result
from tiered_stream.errors import StorageAccessError
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.cloud_endpoints import TABLES, segments_use
from tiered_stream.storage.open_store import open_store, open_writable

_GRANT = (
    "grant the role Storage Object Viewer (Google) or Storage Blob Data Reader (Azure), which include listing, or the "
    "permissions r-x on folders (HDFS)"
)


def list_container(storage: StorageOptions) -> Result[bool]:
    """List the keys below `storage.uri`; the result's value is True if the user is authorized to list them.

    The result is a warning if the user is not authorized, or if there are no keys.

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
    """Check that the objects in a table's folder (`files.uri`) can be listed; the result's value is `files`.

    Raises:
        StorageError: there are no credentials, or the service refuses the request or does not respond.
    """
    store = open_store(files.storage.at(files.uri), TABLES)
    next(store.list(""), None)
    return Result(files, f"{store.describe('')} exists and can be listed")


def write_object(files: TableSpec, name: str) -> bool:
    """Put the empty object `name` into the table's folder, try to create it again, and delete it.

    Return whether the service refuses to create an object that exists already.

    Raises:
        StorageError: the service refuses a request, or does not respond.
    """
    parts = urlsplit(files.uri)
    key = "/".join(filter(None, (parts.path.strip("/"), name)))
    uploader = open_writable(files.storage.at(f"{parts.scheme}://{parts.netloc}"), TABLES)
    uploader.put(key, b"")
    try:
        return not uploader.create(key)
    finally:
        uploader.delete(key)
