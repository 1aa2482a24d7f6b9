"""Check of a bucket in Google's storage, a container in Azure's or a folder in HDFS, by listing keys."""

from __future__ import annotations

from tiered_stream.doctor.finding import Fixes, Result
from tiered_stream.errors import StorageAccessError, StorageBucketNotFoundError, StorageUnavailableError
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.open_store import open_store

FIXES: Fixes = {
    StorageBucketNotFoundError: "correct the name in remote.storage.uri",
    StorageUnavailableError: "correct the endpoint that the message names, or open the way to it",
}
_GRANT = (
    "grant the role Storage Object Viewer (Google) or Storage Blob Data Reader (Azure), which include listing, or the "
    "permissions r-x on folders (HDFS)"
)
_EMPTY = "correct remote.storage.uri and the key prefix, unless no segment is tiered yet"


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
    return Result(True, f"{store.describe('')} {'has no objects' if is_empty else 'can be listed'}", _EMPTY * is_empty)
