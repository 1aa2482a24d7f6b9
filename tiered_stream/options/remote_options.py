"""Declarations of the options for tiered storage: our own, and the broker's (KIP-405) as an operator pastes them."""

from __future__ import annotations

from tiered_stream.options import types
from tiered_stream.options.choices import Fallback, LocatorName, Prefer, StorageLayout
from tiered_stream.options.offset_json import parse_partition_offsets
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
    "Who says where segments are: a broker that speaks KIP-1248, the topic `__remote_log_metadata`, the manifests in "
    "the bucket (needs no cluster), or nobody. `auto` takes the first of broker and metadata topic that works.",
)  # fmt: skip
METADATA_SNAPSHOT_DIR: Option[str] = Option(
    "remote.log.metadata.snapshot.dir", types.text, "", "the user's cache",
    "The folder of the driver, or of the gateway, where what a large `__remote_log_metadata` told is kept: the next "
    "query reads only what is new. It must be the user's alone, may be deleted at any time, and grows to 1 GiB at "
    "most; `none`: nothing is kept.",
)  # fmt: skip
PREFER = option(
    "remote.prefer", types.choice(Prefer), "tiered",
    "`local`: read from storage only what the brokers no longer have on their disks.",
)  # fmt: skip
FALLBACK = option(
    "remote.fallback", types.choice(Fallback), "broker",
    "When the storage fails: read the rest of the split from the broker, or fail.",
)  # fmt: skip
SPLIT_BYTES = option("remote.split.bytes", types.byte_size(1), "128m", "About how many bytes one task reads.")
FILTER_PUSHDOWN = option(
    "remote.filter.pushdown", types.boolean, "false",
    "Leave out by the query's filters what need not be fetched. Needs `spark.sql.python.filterPushdown.enabled=true`, "
    "and a `load()` for each use of the rows: see [Read less](tuning.md#read-less).", Queries.BATCH,
)  # fmt: skip
COLUMNS = optional(
    "columns", types.columns,
    "Only these columns, in this order: `offset,value`. The others are neither made nor handed to Spark.",
    shown="all",
)  # fmt: skip
REQUEST_BYTES = option(
    "remote.fetch.request.bytes", types.byte_size(1 << 20, 64 << 20), "8m",
    "About how many bytes one GET reads: twice as many from a quick storage, half as many where the memory does not "
    "hold as many GETs as are needed at once; 1m to 64m.",
)  # fmt: skip
IN_FLIGHT = option("remote.fetch.requests.in.flight", types.integer(1, 64), "32",
    "The most GETs at once in one task: as many are sent as come while it decodes, and half as many after the storage "
    "has asked for fewer (503 SlowDown).",
)  # fmt: skip
MEMORY_BYTES = option(
    "remote.fetch.memory.bytes", types.byte_size(1 << 20), "96m",
    "The most fetched bytes that one task holds; at least one request.",
)  # fmt: skip
REQUEST_TIMEOUT_MS = option(
    "remote.fetch.request.timeout.ms", types.integer(1), "300000",
    "How long one request to the storage may take in all, retries included, however slowly its response comes in.",
)  # fmt: skip
SEGMENT_ALIGNED_ENDS = option(
    "remote.segment.aligned.ends", types.boolean, "true",
    "Let a micro-batch that `maxOffsetsPerTrigger` limits end where segments end. `false`: exactly where its shares "
    "end, as with Spark's `kafka` source.",
    Queries.STREAMING,
)  # fmt: skip
TOPIC_ID = optional(
    "remote.topic.id", types.topic_ids,
    'The id of the topic to read, or ids by topic (`{"topicA":"…"}`): where several topics bore the name, and to be '
    "told when one was made again: another id is data loss.",
)  # fmt: skip
STORAGE_URI = optional(
    "remote.storage.uri", types.storage_uri, "Where the segments are: `s3://bucket/prefix`, `file:///folder`."
)
LAYOUT = optional(
    "remote.storage.layout", types.choice(StorageLayout),
    "Who wrote them: Kafka's `LocalTieredStorage`, or Aiven's tiered storage plugin. The plugin's own properties "
    "(`rsm.config.*`) tell it, too.", shown="local",
)  # fmt: skip
S3_ENDPOINT_URL = optional("remote.storage.s3.endpoint.url", types.http_url, "An S3 service other than AWS's.")
S3_REGION = optional("remote.storage.s3.region", types.text, "The bucket's region.")
S3_PATH_STYLE = option(
    "remote.storage.s3.path.style.access.enabled", types.boolean, "false", "Put the bucket in the URL's path."
)
ACCESS_KEY_ID = optional(
    "remote.storage.aws.access.key.id", types.text,
    "Credentials; without them, those of the environment, the profile or the instance.", secret=True,
)  # fmt: skip
SECRET_ACCESS_KEY = optional(
    "remote.storage.aws.secret.access.key", types.text, "The key that goes with it.", secret=True
)
SESSION_TOKEN = optional(
    "remote.storage.aws.session.token", types.text, "The token of temporary credentials.", secret=True
)
SIGNED_HOSTS: Option[tuple[str, ...]] = Option(
    "remote.signed.location.hosts", types.http_hosts, (), "",
    "Hosts to which signed locations may lead, besides those of the storage that the options above name (AWS's, where "
    "they name none): `s3.example.com,*.s3.example.com:9000,http://minio:9000`. https unless `http://` stands before "
    "the host. Loopback and link-local addresses must be named as addresses.",
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
    "As in the broker's properties: the prefix of the plugin's own, which are taken as the broker has them, e.g. "
    "`rsm.config.dir`, `rsm.config.storage.s3.bucket.name`, `rsm.config.key.prefix`.",
)  # fmt: skip
KEY_PREFIXES: Option[tuple[str, ...]] = Option(
    "remote.archive.key.prefixes", types.key_prefixes, (), "",
    "With `remote.log.locator=archive`: further key prefixes below which segments are, where the plugin's `key.prefix` "
    "was changed: `old/,older/`.",
)  # fmt: skip
METRICS_ADDRESS: Option[tuple[str, ...]] = Option(
    "remote.metrics.address", lambda addresses: tuple(map(types.text, addresses.split(","))), (), "",
    "Where tasks report their counters to the driver.", internal=True,
)  # fmt: skip
MAX_BYTES_PER_SECOND = optional(
    "remote.max.bytes.per.second", types.byte_size(1),
    "The most that one task fetches, and the most that it writes, in a second.", internal=True,
)  # fmt: skip
ENDING_OFFSETS = optional(
    "remote.stream.ending.offsets",
    lambda json: AtOffsets(parse_partition_offsets(json, "remote.stream.ending.offsets")),
    "Where a stream ends, by partition, the end not included.",
    Queries.STREAMING,
    internal=True,
)
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
"""The broker's other properties (Kafka: `RemoteLogManagerConfig`), accepted without effect: users paste its file."""
