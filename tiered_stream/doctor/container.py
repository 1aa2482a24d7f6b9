"""Check of a bucket in Google's storage, or of a container in Azure's, by one request that lists keys."""

from __future__ import annotations

from tiered_stream.doctor.finding import Fixes, Result
from tiered_stream.errors import StorageAccessError, StorageBucketNotFoundError, StorageUnavailableError
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.cloud_endpoints import segments_use
from tiered_stream.storage.open_store import open_store

FIXES: Fixes = {
    StorageBucketNotFoundError: "correct the name in the setting that the message names",
    StorageUnavailableError: "correct the endpoint that the message names, or open the way to it",
}
_GRANT = "grant the role Storage Object Viewer (Google) or Storage Blob Data Reader (Azure): both include listing"


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
