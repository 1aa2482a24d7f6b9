"""Access of tasks to a table's object store or HDFS, by the scheme of the table's URI.

In HDFS, tasks find Kerberos tickets and delegation tokens as Spark's executors do (`HADOOP_TOKEN_FILE_LOCATION`,
`KRB5CCNAME`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from urllib.parse import urlsplit

import orjson

from tiered_stream.delta.requirements.abfs import abfs_settings, find_azure_storage
from tiered_stream.delta.requirements.gs import find_google_storage, gs_settings
from tiered_stream.delta.requirements.hadoop_settings import HadoopSettings
from tiered_stream.delta.requirements.s3a import find_storage, s3a_settings
from tiered_stream.delta.settings.ingest_settings import BUCKET_SCHEMES, TableStorage, table_storage
from tiered_stream.delta.write.file_systems import path_uri
from tiered_stream.errors import ConfigurationError
from tiered_stream.storage.cloud_endpoints import AZURE_SCHEMES, GOOGLE_SCHEME, HDFS_SCHEME
from tiered_stream.storage.hadoop.client_settings import BLOCK_SIZE, REPLICATION, UMASK, new_files


def find_access(own: TableStorage, uri: str, hadoop: HadoopSettings) -> tuple[TableStorage, str | None]:
    """Return the settings by which tasks access the store of the folder `uri`, and why tasks cannot access it.

    `own` is the job's own access, and `hadoop` are the session's settings. The second value is None if tasks can access
    the store.

    Raises:
        ConfigurationError: a storage setting is wrong, or there are no credentials.
        TableAccessError: the region of the table's bucket cannot be found.
    """
    parts = urlsplit(uri)
    if parts.scheme == GOOGLE_SCHEME:
        return find_google_storage(own, gs_settings(hadoop, parts.netloc))
    if parts.scheme in AZURE_SCHEMES:
        return find_azure_storage(own, uri, abfs_settings(hadoop, uri))
    if parts.scheme == HDFS_SCHEME:
        return find_hdfs(own, hadoop)
    if parts.scheme in BUCKET_SCHEMES:
        return find_storage(own, s3a_settings(hadoop, parts.netloc))
    known = "neither a local folder nor in S3, Azure Blob Storage, Google Cloud Storage or HDFS"
    return own, None if parts.scheme == "file" else f"{uri} is {known}"


def storage_without_spark(settings: Mapping[str, str], folder: str, hadoop: HadoopSettings | None) -> TableStorage:
    """Return the settings by which this process accesses the folder, such as a checkpoint.

    `hadoop` has the settings of Spark's files; None: no such file is given, and `ingest.storage.*` alone count.

    Raises:
        ConfigurationError: as for `find_access`, or this process cannot access the folder as Spark's files say.
        TableAccessError: as for `find_access`.
    """
    uri, own = path_uri(folder), table_storage(settings)
    if hadoop is None or urlsplit(uri).scheme not in BUCKET_SCHEMES:
        return own
    storage, why_not = find_access(own, uri, hadoop)
    if why_not:
        raise ConfigurationError(f"only Spark can reach {folder} as its settings say: {why_not}")
    return storage


def missing_connector(uri: str, hadoop: HadoopSettings) -> str | None:
    """Return in words what the session lacks to reach the store of the folder `uri`; None: it lacks nothing."""
    parts = urlsplit(uri)
    if parts.scheme == GOOGLE_SCHEME:
        connected, lacking = gs_settings(hadoop, parts.netloc).has_connector, "Google Cloud Storage (gcs-connector)"
    elif parts.scheme in AZURE_SCHEMES:
        connected, lacking = abfs_settings(hadoop, uri).has_connector, f"{parts.scheme}:// (hadoop-azure)"
    elif parts.scheme in BUCKET_SCHEMES and parts.scheme != HDFS_SCHEME:
        connected, lacking = s3a_settings(hadoop, parts.netloc).has_connector, "S3 (hadoop-aws)"
    else:
        return None
    return None if connected else f"the session has no way to {lacking}"


_PREFIXES = (
    "dfs.ha.namenodes.", "dfs.namenode.rpc-address.", "dfs.client.failover.resolve", "dfs.client.failover.random.",
    "dfs.client.failover.proxy.", "dfs.client.block.write.replace-datanode-on-failure.",
)  # fmt: skip
_NAMES = (
    "fs.defaultFS", "dfs.data.transfer.protection", "dfs.client.use.datanode.hostname",
    "hadoop.security.authentication", "hadoop.security.key.provider.path", REPLICATION, BLOCK_SIZE, UMASK,
)  # fmt: skip
"""Settings that hdfs-native follows, as its README lists them, and the settings of `new_files`."""


def find_hdfs(own: TableStorage, hadoop: HadoopSettings) -> tuple[TableStorage, str | None]:
    """Return the settings by which tasks access HDFS, and a reason why tasks cannot write to it.

    `own` is the job's own access (`ingest.storage.*`). The reason is None if tasks can write to HDFS.

    Raises:
        ConfigurationError: a storage setting is malformed.
    """
    if find_spec("hdfs_native") is None:
        return own, "tasks write to HDFS by hdfs-native, which is not installed: pip install 'tiered-stream[hdfs]'"
    names = (*_NAMES, *(prefix + name for prefix in _PREFIXES for name in hadoop.names_after(prefix)))
    values = {name: value for name in names if (value := hadoop.get(name))}
    try:
        new_files(values)
    except ConfigurationError as error:
        return own, str(error)
    return replace(own, hdfs_settings=own.hdfs_settings or orjson.dumps(values).decode()), None
