"""Access of tasks to a table's object store, by the scheme of the table's URI."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from tiered_stream.delta.requirements.abfs import AbfsStore
from tiered_stream.delta.requirements.gs import GsStore
from tiered_stream.delta.requirements.hadoop_settings import HadoopSettings, SessionStore
from tiered_stream.delta.requirements.hdfs import HdfsStore
from tiered_stream.delta.requirements.s3a import S3aStore
from tiered_stream.delta.settings.ingest_settings import BUCKET_SCHEMES, S3_SCHEMES, TableStorage, table_storage
from tiered_stream.delta.write.file_systems import path_uri
from tiered_stream.errors import ConfigurationError
from tiered_stream.storage.cloud_endpoints import AZURE_SCHEMES, GOOGLE_SCHEME, HDFS_SCHEME

_STORES: Mapping[str, type[SessionStore]] = {
    **dict.fromkeys(S3_SCHEMES, S3aStore), **dict.fromkeys(AZURE_SCHEMES, AbfsStore),
    GOOGLE_SCHEME: GsStore, HDFS_SCHEME: HdfsStore,
}  # fmt: skip


def find_access(own: TableStorage, uri: str, hadoop: HadoopSettings) -> tuple[TableStorage, str | None]:
    """Return the settings by which tasks access the store of the folder `uri`, and why tasks cannot access it.

    `own` is the job's own access (`ingest.storage.*`), and `hadoop` are the session's settings. The second value is
    None if tasks can access the store.

    Raises:
        ConfigurationError: a setting is malformed, `ingest.storage.*` name a different store than the session, or there
            are no credentials.
        TableAccessError: the region of a bucket cannot be found.
    """
    scheme = urlsplit(uri).scheme
    if scheme in _STORES:
        return _STORES[scheme](hadoop, uri).find(own)
    known = "neither a local folder nor in S3, Azure Blob Storage, Google Cloud Storage or HDFS"
    return own, None if scheme in ("file", *BUCKET_SCHEMES) else f"{uri} is {known}"


def storage_without_spark(settings: Mapping[str, str], folder: str, hadoop: HadoopSettings | None) -> TableStorage:
    """Return the settings by which this process accesses the folder, such as a checkpoint.

    `hadoop` has the settings of Spark's files; None: no such file is given, and `ingest.storage.*` alone count.

    Raises:
        ConfigurationError: a setting is malformed, there are no credentials, or only Spark can access the folder.
        TableAccessError: the region of a bucket cannot be found.
    """
    uri, own = path_uri(folder), table_storage(settings)
    if hadoop is None or urlsplit(uri).scheme not in BUCKET_SCHEMES:
        return own
    storage, why_not = find_access(own, uri, hadoop)
    if why_not:
        raise ConfigurationError(f"only Spark can reach {folder} as its settings say: {why_not}")
    return storage


def missing_connector(uri: str, hadoop: HadoopSettings) -> str | None:
    """Return in words what the session lacks to reach the store of the folder `uri`, or None if it lacks nothing."""
    scheme = urlsplit(uri).scheme
    has_connector = scheme not in _STORES or _STORES[scheme](hadoop, uri).has_connector
    return None if has_connector else f"the session has no connector for {scheme}://"
