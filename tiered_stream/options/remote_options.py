"""Declarations of the options for tiered storage.

Some of these options are properties of a broker, which an operator can paste from the broker's configuration.
"""

from __future__ import annotations

from dataclasses import replace

from tiered_stream.data_limits import DEFAULT_LIMITS, Limit
from tiered_stream.model import ReportAddress
from tiered_stream.options import types
from tiered_stream.options.choices import Fallback, LocatorName, Prefer, StorageLayout
from tiered_stream.options.offset_json import parse_specific_offsets
from tiered_stream.options.positions import AtOffsets
from tiered_stream.options.types import Option, Queries, option, optional

LAYOUT_OF_STORAGE_MANAGER = {
    "org.apache.kafka.server.log.remote.storage.LocalTieredStorage": StorageLayout.LOCAL,
    "io.aiven.kafka.tieredstorage.RemoteStorageManager": StorageLayout.AIVEN,
}


def _layout_of(class_name: str) -> StorageLayout:
    if class_name.strip() not in LAYOUT_OF_STORAGE_MANAGER:
        raise ValueError(
            f"is not a storage plugin that can be read: those are {' and '.join(LAYOUT_OF_STORAGE_MANAGER)}"
        )
    return LAYOUT_OF_STORAGE_MANAGER[class_name.strip()]


LOCATOR = option(
    "remote.log.locator", types.choice(LocatorName), "auto",
    "Source of the segments' places: brokers that support KIP-1248, the topic `__remote_log_metadata`, the manifests "
    "in the bucket (needs no cluster), or none. `auto`: brokers if they support it, or the metadata topic.",
)  # fmt: skip
METADATA_SNAPSHOT_DIR: Option[str] = Option(
    "remote.log.metadata.snapshot.dir", types.text, "", "the user's cache",
    "Folder on the driver or the gateway for snapshots of a large `__remote_log_metadata`, so that the next query "
    "reads only new records. Only the user may have access to it. It may be deleted at any time, and has at most 1 "
    "GiB. `none`: no snapshots.",
)  # fmt: skip
PREFER = option(
    "remote.prefer", types.choice(Prefer), "tiered",
    "`local`: read from storage only offsets that the brokers no longer have on their disks.",
)  # fmt: skip
FALLBACK = option(
    "remote.fallback", types.choice(Fallback), "broker",
    "If the storage fails or there is none: read from the `broker`, or `fail`. See "
    "[ways](metrics.md#ways-to-the-brokers).",
)  # fmt: skip
SPLIT_BYTES = option("remote.split.bytes", types.byte_size(1), "128m", "Approximate bytes that one task reads.")
FILTER_PUSHDOWN = option(
    "remote.filter.pushdown", types.boolean, "false",
    "Fetch only data that the query's filters need. Requires `spark.sql.python.filterPushdown.enabled=true`, and a "
    "`load()` for each use of the rows: see [Read less](tuning.md#read-less).", Queries.BATCH,
)  # fmt: skip
COLUMNS = optional(
    "columns", types.columns,
    "Columns to read, in this order, such as `offset,value`. No other columns are decoded.",
    shown="all",
)  # fmt: skip
REQUEST_BYTES = option(
    "remote.fetch.request.bytes", types.byte_size(1 << 20, 64 << 20), "8m",
    "Approximate bytes of one GET, 1m to 64m: twice as many from a fast storage, half as many if memory cannot hold "
    "the GETs that are needed at once.",
)  # fmt: skip
IN_FLIGHT = option("remote.fetch.requests.in.flight", types.integer(1, 64), "32",
    "Maximum number of GETs in flight in one task. It sends as many as keep its decoder busy, and half as many after "
    "the storage has asked for fewer (503 SlowDown).",
)  # fmt: skip
MEMORY_BYTES = option(
    "remote.fetch.memory.bytes", types.byte_size(1 << 20), "96m",
    "Maximum number of fetched bytes in one task's memory; at least one request.",
)  # fmt: skip
REQUEST_TIMEOUT_MS = option(
    "remote.fetch.request.timeout.ms", types.integer(1), "300000",
    "Time limit of one request to the storage, with its retries and its whole response.",
)  # fmt: skip
SEGMENT_ALIGNED_ENDS = option(
    "remote.segment.aligned.ends", types.boolean, "true",
    "End a micro-batch that `maxOffsetsPerTrigger` limits at ends of segments. `false`: exactly at the partitions' "
    "shares, as in Spark's `kafka` source.",
    Queries.STREAMING,
)  # fmt: skip
TOPIC_ID = optional(
    "remote.topic.id", types.topic_ids,
    'Id of the topic to read, or ids by topic (`{"topicA":"…"}`), if several topics had the name. A topic with another '
    "id is data loss.",
)  # fmt: skip
STORAGE_URI = optional(
    "remote.storage.uri",
    types.storage_uri,
    "Place of the segments: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` (or "
    "`abfss://container@account.dfs.core.windows.net/prefix`), `hdfs://namenode:8020/folder`, `file:///folder`. An "
    "access point of S3 is named by its ARN in place of the bucket, or by its alias.",
)
LAYOUT = optional(
    "remote.storage.layout", types.choice(StorageLayout),
    "Plugin that wrote the segments: Kafka's `LocalTieredStorage`, or Aiven's tiered storage plugin. The plugin's own "
    "properties (`rsm.config.*`) show it, too.", shown="local",
)  # fmt: skip
S3_ENDPOINT_URL = optional("remote.storage.s3.endpoint.url", types.http_url, "An S3 service other than AWS's.")
S3_REGION = optional("remote.storage.s3.region", types.text, "The bucket's region.")
S3_PATH_STYLE = optional(
    "remote.storage.s3.path.style.access.enabled", types.boolean,
    "`true`: put the bucket in the URL's path. `false`: put it in the host's name. Unset: in the host's name at AWS, "
    "and in the path at another endpoint.",
)  # fmt: skip
S3_REQUESTER_PAYS = option(
    "remote.storage.s3.requester.pays.enabled", types.boolean, "false",
    "Pay for the requests to a bucket whose owner asks readers for that. Not for signed URLs.",
)  # fmt: skip
S3_CUSTOMER_KEY = optional(
    "remote.storage.s3.customer.key", types.aes_256_key,
    "Key of 256 bits, in base64, with which the objects are encrypted (SSE-C). Signed URLs are not made with it.",
    secret=True,
)  # fmt: skip
ACCESS_KEY_ID = optional(
    "remote.storage.aws.access.key.id", types.text,
    "Access key of AWS; by default, credentials come from the environment, the profile or the instance.", secret=True,
)  # fmt: skip
SECRET_ACCESS_KEY = optional(
    "remote.storage.aws.secret.access.key", types.text, "Secret key for the access key.", secret=True
)
SESSION_TOKEN = optional("remote.storage.aws.session.token", types.text, "Token of temporary credentials.", secret=True)
AZURE_ACCOUNT_NAME = optional(
    "remote.storage.azure.account.name", types.text, "The storage account of the container, unless the URI names it."
)
AZURE_ACCOUNT_KEY = optional(
    "remote.storage.azure.account.key", types.text,
    "Key of the storage account; without it, and without the two options below, Azure's own chain of credentials is "
    "used: environment, workload identity, managed identity.", secret=True,
)  # fmt: skip
AZURE_SAS_TOKEN = optional(
    "remote.storage.azure.sas.token", types.text, "Shared access signature that grants reading.", secret=True
)
AZURE_CONNECTION_STRING = optional(
    "remote.storage.azure.connection.string", types.text,
    "Connection string with the account, its endpoint, and its key or a shared access signature.", secret=True,
)  # fmt: skip
AZURE_ENDPOINT_URL = optional(
    "remote.storage.azure.endpoint.url", types.http_url, "URL of the account's blob service, if it is not Azure's own."
)
GCS_CREDENTIALS_PATH = optional(
    "remote.storage.gcs.credentials.path", types.text,
    "Google credentials file, on every executor: the key of a service account, or with the extra `gcs` federation of "
    "workload identities or impersonation. Without it, Google's application default credentials are used.",
)  # fmt: skip
GCS_CREDENTIALS_JSON = optional(
    "remote.storage.gcs.credentials.json", types.text, "Content of a Google credentials file.", secret=True
)
GCS_ENDPOINT_URL = optional(
    "remote.storage.gcs.endpoint.url", types.http_url, "URL of a service other than Google's own."
)
HDFS_CORE_SITE = optional(
    "remote.storage.hdfs.core-site.path", types.text,
    "Hadoop's `core-site.xml`, on every executor, in addition to the files in the folder HADOOP_CONF_DIR.",
)  # fmt: skip
HDFS_HDFS_SITE = optional(
    "remote.storage.hdfs.hdfs-site.path", types.text,
    "Hadoop's `hdfs-site.xml`, on every executor, in addition to the files in the folder HADOOP_CONF_DIR.",
)  # fmt: skip
HDFS_PRINCIPAL = optional(
    "remote.storage.hdfs.auth.kerberos.principal", types.text,
    "Kerberos principal that reads HDFS; without it, the principal of the ticket cache (KRB5CCNAME).",
)  # fmt: skip
HDFS_KEYTAB = optional(
    "remote.storage.hdfs.auth.kerberos.keytab", types.text, "Keytab of the principal, on every executor."
)
SIGNED_HOSTS: Option[tuple[str, ...]] = Option(
    "remote.signed.location.hosts", types.http_hosts, (), "",
    "Further hosts to which signed locations can lead: `s3.example.com,*.s3.example.com:9000,http://minio:9000`. The "
    "storage's own hosts (by default AWS's) need no entry. A host without `http://` stands for https. Loopback and "
    "link-local addresses must be written as addresses.",
)  # fmt: skip
STORAGE_MANAGER = optional(
    "remote.log.storage.manager.class.name", _layout_of,
    "As in the broker's properties, in place of `remote.storage.layout`: "
    + " or ".join(f"`{name}`" for name in LAYOUT_OF_STORAGE_MANAGER)
    + ".",
)  # fmt: skip
STORAGE_MANAGER_CLASS_PATH = optional(
    "remote.log.storage.manager.class.path", str, "As in the broker's properties; without effect."
)
RSM_CONFIG_PREFIX = option(
    "remote.log.storage.manager.impl.prefix", types.text, "rsm.config.",
    "As in the broker's properties: prefix of the plugin's own properties, which are used as the broker has them, e.g. "
    "`rsm.config.dir`, `rsm.config.storage.s3.bucket.name`, `rsm.config.key.prefix`.",
)  # fmt: skip
KEY_PREFIXES: Option[tuple[str, ...]] = Option(
    "remote.archive.key.prefixes", types.key_prefixes, (), "",
    "With `remote.log.locator=archive`: further key prefixes of segments, if the plugin's `key.prefix` was changed: "
    "`old/,older/`.",
)  # fmt: skip
REPORT_ADDRESSES: Option[tuple[ReportAddress, ...]] = Option(
    "remote.metrics.secret.addresses", types.report_addresses, (), "",
    "Addresses to which tasks send their counters; perhaps none, if no port could be opened.", secret=True,
    internal=True,
)  # fmt: skip
REPORTS_BY_LOOPBACK = option(
    "remote.metrics.loopback", types.boolean, "false", "All tasks run on the driver's machine.", internal=True
)
SETTINGS_FILE = optional(
    "remote.settings.file", str, "File that has given the options, so that errors can name its lines.", internal=True
)
MAX_BYTES_PER_SECOND = optional(
    "remote.max.bytes.per.second", types.byte_size(1),
    "Maximum number of bytes that one task fetches, and that it writes, in a second.", internal=True,
)  # fmt: skip
ENDING_OFFSETS = optional(
    "remote.stream.ending.offsets", lambda json: AtOffsets(*parse_specific_offsets(json)),
    "End of a stream by partition (exclusive).", Queries.STREAMING, internal=True,
)  # fmt: skip
AVAILABLE_NOW = option(
    "remote.available.now", types.boolean, "false",
    "End the run at the log ends of its start, for a Spark that does not do it for Python sources.", Queries.STREAMING,
    internal=True,
)  # fmt: skip
FROM_TIMESTAMP = optional(
    "remote.from.timestamp", types.integer(0), "Only records at or after this time, in ms.", internal=True
)
TO_TIMESTAMP = optional("remote.to.timestamp", types.integer(0), "Only records before this time, in ms.", internal=True)


_BROKER_PROPERTIES = """
fetch.max.wait.ms list.offsets.request.timeout.ms log.index.file.cache.total.size.bytes
log.manager.copier.thread.pool.size log.manager.copy.max.bytes.per.second log.manager.copy.quota.window.num
log.manager.copy.quota.window.size.seconds log.manager.expiration.thread.pool.size
log.manager.fetch.max.bytes.per.second log.manager.fetch.quota.window.num
log.manager.fetch.quota.window.size.seconds log.manager.follower.thread.pool.size log.manager.task.interval.ms
log.manager.task.retry.backoff.max.ms log.manager.task.retry.backoff.ms log.manager.task.retry.jitter
log.manager.thread.pool.size log.metadata.custom.metadata.max.bytes log.metadata.manager.class.name
log.metadata.manager.class.path log.metadata.manager.impl.prefix log.metadata.manager.listener.name
log.reader.max.pending.tasks log.reader.threads log.storage.system.enable
"""
BROKER_PROPERTIES = frozenset(f"remote.{name}" for name in _BROKER_PROPERTIES.split())
"""Properties of a broker (Kafka: `RemoteLogManagerConfig`) that are accepted as options, but have no effect.

Users paste all `remote.*` properties of a broker.
"""


_DOCS = {
    "batch": "Stored record batch.",
    "decompressed_batch":
    "Record batch after decompression. A task's memory holds one such batch, and a second copy of one record.",
    "batch_records": "Records in a batch. Only few of them are decoded at a time.",
    "record_headers": "Headers of a record, with `includeHeaders`.",
    "chunk": "Compressed or encrypted chunk of the Aiven plugin (its `chunk.size`).",
    "manifest": "Aiven plugin's manifest of a segment.",
    "index": "Offset, time or transaction index; in the Aiven plugin's layout, all indexes of a segment.",
    "snapshot": "Producer snapshot or leader epoch checkpoint.",
}  # fmt: skip
_LARGEST = {"decompressed_batch": types.LONG_MAX}


def _option(field: str) -> Option[Limit]:
    limit: Limit = getattr(DEFAULT_LIMITS, field)
    in_bytes = limit.option.endswith(".bytes")
    parse = (types.byte_size if in_bytes else types.integer)(1, _LARGEST.get(field, types.INT_MAX))
    shown = f"{limit.maximum >> 20}m" if in_bytes else str(limit.maximum)
    return Option(limit.option, lambda value: replace(limit, maximum=parse(value)), limit, shown, _DOCS[field])


LIMIT_OPTIONS = {field: _option(field) for field in _DOCS}
"""Options that set limits of sizes and counts, by the name of the limit's field in `Limits`."""
