"""The options of tiered storage, each once: ours, and the broker's own (KIP-405) as an operator pastes them."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from tiered_stream.options import types
from tiered_stream.options.choices import Fallback, LocatorName, Prefer, StorageLayout
from tiered_stream.options.offset_json import parse_partition_offsets
from tiered_stream.options.positions import AtOffsets
from tiered_stream.options.types import Option, Queries

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


LOCATOR: Option[LocatorName] = Option(
    "remote.log.locator",
    types.choice(LocatorName),
    LocatorName.AUTO,
    "auto",
    "Who says where segments are: a broker that speaks KIP-1248, the topic `__remote_log_metadata`, the manifests in "
    "the bucket (needs no cluster), or nobody. `auto` takes the first of broker and metadata topic that works.",
)
PREFER: Option[Prefer] = Option(
    "remote.prefer",
    types.choice(Prefer),
    Prefer.TIERED,
    "tiered",
    "`local`: read from storage only what the brokers no longer have on their disks.",
)
FALLBACK: Option[Fallback] = Option(
    "remote.fallback",
    types.choice(Fallback),
    Fallback.BROKER,
    "broker",
    "When the storage fails: read the rest of the split from the broker, or fail.",
)
SPLIT_BYTES: Option[int] = Option(
    "remote.split.bytes", types.byte_size(1), 128 << 20, "128m", "About how many bytes one task reads."
)
REQUEST_BYTES: Option[int] = Option(
    "remote.fetch.request.bytes",
    types.byte_size(1 << 20, 64 << 20),
    8 << 20,
    "8m",
    "About how many bytes one GET reads, up to twice as many; 1m to 64m.",
)
IN_FLIGHT: Option[int] = Option(
    "remote.fetch.requests.in.flight", types.integer(1, 64), 4, "4", "GETs at once in one task."
)
MEMORY_BYTES: Option[int] = Option(
    "remote.fetch.memory.bytes",
    types.byte_size(1 << 20),
    64 << 20,
    "64m",
    "The most fetched bytes that one task holds; at least one request.",
)
TOPIC_ID: Option[UUID | Mapping[str, UUID] | None] = Option(
    "remote.topic.id",
    types.topic_ids,
    None,
    "",
    'The id of the topic to read, or ids by topic (`{"topicA":"…"}`), where several topics bore the name.',
)
STORAGE_URI: Option[str | None] = Option(
    "remote.storage.uri", types.storage_uri, None, "", "Where the segments are: `s3://bucket/prefix`, `file:///folder`."
)
LAYOUT: Option[StorageLayout | None] = Option(
    "remote.storage.layout",
    types.choice(StorageLayout),
    None,
    "local",
    "Who wrote them: Kafka's `LocalTieredStorage`, or Aiven's tiered storage plugin.",
)
S3_ENDPOINT_URL: Option[str | None] = Option(
    "remote.storage.s3.endpoint.url", types.http_url, None, "", "An S3 service other than AWS's."
)
S3_REGION: Option[str | None] = Option("remote.storage.s3.region", types.text, None, "", "The bucket's region.")
S3_PATH_STYLE: Option[bool] = Option(
    "remote.storage.s3.path.style.access.enabled", types.boolean, False, "false", "Put the bucket in the URL's path."
)
ACCESS_KEY_ID: Option[str | None] = Option(
    "remote.storage.aws.access.key.id",
    types.text,
    None,
    "",
    "Credentials; without them, those of the environment, the profile or the instance.",
    secret=True,
)
SECRET_ACCESS_KEY: Option[str | None] = Option(
    "remote.storage.aws.secret.access.key", types.text, None, "", "The key that goes with it.", secret=True
)
SESSION_TOKEN: Option[str | None] = Option(
    "remote.storage.aws.session.token", types.text, None, "", "The token of temporary credentials.", secret=True
)
STORAGE_MANAGER: Option[StorageLayout | None] = Option(
    "remote.log.storage.manager.class.name",
    _layout_of,
    None,
    "",
    "As in the broker's properties, in place of `remote.storage.layout`: "
    + " or ".join(f"`{name}`" for name in LAYOUT_OF_STORAGE_MANAGER)
    + ".",
)
STORAGE_MANAGER_CLASS_PATH: Option[str | None] = Option(
    "remote.log.storage.manager.class.path", str, None, "", "As in the broker's properties; without effect."
)
RSM_CONFIG_PREFIX: Option[str] = Option(
    "remote.log.storage.manager.impl.prefix",
    types.text,
    "rsm.config.",
    "rsm.config.",
    "As in the broker's properties: the prefix of the plugin's own, which are taken as the broker has them, e.g. "
    "`rsm.config.dir`, `rsm.config.storage.s3.bucket.name`, `rsm.config.key.prefix`.",
)
METRICS_ADDRESS: Option[tuple[str, ...]] = Option(
    "remote.metrics.address",
    lambda text: (types.text(text),),
    (),
    "",
    "Where tasks report their counters to the driver.",
    internal=True,
)
MAX_BYTES_PER_SECOND: Option[int | None] = Option(
    "remote.max.bytes.per.second",
    types.byte_size(1),
    None,
    "",
    "The most that one task fetches, and the most that it writes, in a second.",
    internal=True,
)
ENDING_OFFSETS: Option[AtOffsets | None] = Option(
    "remote.stream.ending.offsets",
    lambda text: AtOffsets(parse_partition_offsets(text, "remote.stream.ending.offsets")),
    None,
    "",
    "Where a stream ends, by partition, the end not included.",
    Queries.STREAMING,
    internal=True,
)
FROM_TIMESTAMP: Option[int | None] = Option(
    "remote.from.timestamp", types.integer(0), None, "", "Only records at or after this time, in ms.", internal=True
)
TO_TIMESTAMP: Option[int | None] = Option(
    "remote.to.timestamp", types.integer(0), None, "", "Only records before this time, in ms.", internal=True
)


BROKER_PROPERTIES = frozenset(
    f"remote.{name}"
    for name in (
        "fetch.max.wait.ms",
        "list.offsets.request.timeout.ms",
        "log.index.file.cache.total.size.bytes",
        "log.manager.copier.thread.pool.size",
        "log.manager.copy.max.bytes.per.second",
        "log.manager.copy.quota.window.num",
        "log.manager.copy.quota.window.size.seconds",
        "log.manager.expiration.thread.pool.size",
        "log.manager.fetch.max.bytes.per.second",
        "log.manager.fetch.quota.window.num",
        "log.manager.fetch.quota.window.size.seconds",
        "log.manager.follower.thread.pool.size",
        "log.manager.task.interval.ms",
        "log.manager.task.retry.backoff.max.ms",
        "log.manager.task.retry.backoff.ms",
        "log.manager.task.retry.jitter",
        "log.manager.thread.pool.size",
        "log.metadata.custom.metadata.max.bytes",
        "log.metadata.manager.class.name",
        "log.metadata.manager.class.path",
        "log.metadata.manager.impl.prefix",
        "log.metadata.manager.listener.name",
        "log.reader.max.pending.tasks",
        "log.reader.threads",
        "log.storage.system.enable",
    )
)
"""The broker's other properties (Kafka: `RemoteLogManagerConfig`): of no effect, they come when its file is pasted."""
