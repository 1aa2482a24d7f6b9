"""Declarations of the source's options that come from Spark's `kafka` source and from Kafka.

Names, defaults and checks are as in Spark's `KafkaSourceProvider`, unless the option's text says otherwise. For
`kafka.fetch.remote.*` and `kafka.remote.storage.*`, they are as in KIP-1254.
"""

from __future__ import annotations

from tiered_stream.model import TopicPartition
from tiered_stream.options import types
from tiered_stream.options.choices import GroupStrategy, IsolationLevel, TimestampStrategy
from tiered_stream.options.offset_json import parse_partition_timestamps, parse_partitions, parse_specific_offsets
from tiered_stream.options.positions import AtGroup, AtOffsets, AtTimestamps, LogEnd, time_position
from tiered_stream.options.types import Option, Queries, option, optional

GROUP = "group:"
"""Prefix of a value of `startingOffsets` that names a consumer group, as in `group:my-app`."""


def _offsets(value: str) -> LogEnd | AtOffsets:
    word = types.trimmed(value).upper()
    return LogEnd[word] if word in LogEnd.__members__ else AtOffsets(*parse_specific_offsets(value))


def _starting_offsets(value: str) -> LogEnd | AtOffsets | AtGroup:
    text = value.strip()
    if text.lower().startswith(GROUP):
        return AtGroup(types.text(text[len(GROUP) :]))
    return _offsets(value)


def _timestamps(value: str) -> AtTimestamps:
    return AtTimestamps(parse_partition_timestamps(value))


# What to read

SUBSCRIBE: Option[tuple[str, ...]] = Option(
    "subscribe", types.topics, (), "",
    "Topics, separated by commas. Exactly one of `subscribe`, `subscribePattern` and `assign` is given. Internal "
    "topics are not read.",
)  # fmt: skip
SUBSCRIBE_PATTERN = optional(
    "subscribePattern", types.topic_pattern,
    "Regular expression. Topics are read if a part of their name matches it, except internal topics.",
)  # fmt: skip
ASSIGN: Option[tuple[TopicPartition, ...]] = Option(
    "assign", parse_partitions, (), "", 'Partitions by topic: `{"topicA":[0,1],"topicB":[2]}`.'
)
STARTING_TIMESTAMP = optional(
    "startingTimestamp", time_position,
    "Start every partition at its first offset at or after this time: in ms, as `2026-11-01T00:00:00Z`, or back from "
    "the time of planning: `-90m`, `-3h`, `-2d`. Takes precedence over the next two.",
)  # fmt: skip
STARTING_OFFSETS_BY_TIMESTAMP = optional(
    "startingOffsetsByTimestamp", _timestamps,
    'The same by partition: `{"topicA":{"0":1718000000000}}`. Takes precedence over `startingOffsets`.',
)  # fmt: skip
STARTING_OFFSETS = optional(
    "startingOffsets", _starting_offsets,
    '`earliest`, `latest` (streaming only), offsets by partition: `{"topicA":{"0":23,"1":-2},"topicB":"earliest"}`, '
    "-2 for earliest, -1 for latest (streaming only), or `group:my-app` for the offsets that a consumer group has "
    "committed. A stream with a checkpoint continues from its checkpoint.",
    shown="latest (streaming), earliest (batch)",
)  # fmt: skip
TIMESTAMP_STRATEGY = option(
    "startingOffsetsByTimestampStrategy", types.word(TimestampStrategy), "error",
    "If a partition has no record at or after its start time: fail, or start it at its end.",
)  # fmt: skip
GROUP_STRATEGY = option(
    "startingOffsetsByGroupStrategy", types.choice(GroupStrategy), "error",
    "If the group in `startingOffsets` has no committed offset for a partition: fail, or start it at `earliest` or "
    "`latest`.",
)  # fmt: skip
ENDING_TIMESTAMP = optional(
    "endingTimestamp", time_position,
    "End every partition before its first offset at or after this time, written as `startingTimestamp`; without such "
    "an offset, at its end. Takes precedence over the next two.", Queries.BATCH,
)  # fmt: skip
ENDING_OFFSETS_BY_TIMESTAMP = optional(
    "endingOffsetsByTimestamp", _timestamps,
    "The same by partition. Takes precedence over `endingOffsets`.", Queries.BATCH,
)  # fmt: skip
ENDING_OFFSETS = option(
    "endingOffsets", _offsets, "latest",
    "`latest`, or end offsets (exclusive) by partition or `latest` by topic; -1 for latest.", Queries.BATCH,
)  # fmt: skip

BOUNDED_STREAMING = option(
    "boundedStreaming", types.boolean, "false",
    "End a stream at the end in the ending options, which Spark has only for batch queries. With the trigger "
    "`availableNow` or `once` the query then ends. With another trigger it reads no more and waits to be stopped.",
    Queries.STREAMING,
)  # fmt: skip

STARTS = (STARTING_TIMESTAMP, STARTING_OFFSETS_BY_TIMESTAMP, STARTING_OFFSETS)
ENDS = (ENDING_TIMESTAMP, ENDING_OFFSETS_BY_TIMESTAMP, ENDING_OFFSETS)
"""Options for the start (`STARTS`) and for the end (`ENDS`) of a query; the first one that is given counts."""

# How to read it

FAIL_ON_DATA_LOSS = option(
    "failOnDataLoss", types.boolean, "true",
    "Fail if records that should be read no longer exist; `false`: log a warning and continue.",
)  # fmt: skip
INCLUDE_HEADERS = option("includeHeaders", types.boolean, "false", "Add the column `headers`.")
MIN_PARTITIONS = optional("minPartitions", types.integer(1, types.INT_MAX), "Approximate minimum number of tasks.")
MAX_RECORDS_PER_PARTITION = optional(
    "maxRecordsPerPartition", types.integer(1), "Maximum number of offsets that one task reads."
)
MAX_OFFSETS_PER_TRIGGER = optional(
    "maxOffsetsPerTrigger", types.integer(types.LONG_MIN),
    "Approximate maximum number of offsets in a micro-batch. Each partition gets a share in proportion to the offsets "
    "that it has left. A share ends at the end of a tiered segment, if there is one in it.", Queries.STREAMING,
)  # fmt: skip
MAX_BYTES_PER_TRIGGER = option(
    "maxBytesPerTrigger", types.byte_size(1), "64g",
    "Approximate maximum number of bytes of the stored log in a micro-batch, shared like `maxOffsetsPerTrigger`. At "
    "least one record batch of each partition is read. This bounds the first micro-batch of a long history; `1p`: no "
    "limit.", Queries.STREAMING,
)  # fmt: skip
MIN_OFFSETS_PER_TRIGGER = optional(
    "minOffsetsPerTrigger", types.integer(types.LONG_MIN),
    "Wait for this number of new offsets, or until `maxTriggerDelay` has passed.", Queries.STREAMING,
)  # fmt: skip
MAX_TRIGGER_DELAY_MS = option(
    "maxTriggerDelay", types.duration_ms, "15m", "Longest wait of `minOffsetsPerTrigger`.", Queries.STREAMING
)
FETCH_OFFSET_NUM_RETRIES = option(
    "fetchOffset.numRetries", types.integer(1, types.INT_MAX), "3", "Number of attempts to get offsets."
)
FETCH_OFFSET_RETRY_INTERVAL_MS = option(
    "fetchOffset.retryIntervalMs", lambda value: max(0, types.integer(types.LONG_MIN)(value)), "1000",
    "Milliseconds between those attempts.",
)  # fmt: skip
POLL_TIMEOUT_MS = option(
    "kafkaConsumer.pollTimeoutMs", types.integer(1), "120000",
    "Milliseconds after which a task fails if it gets no records from the broker.",
)  # fmt: skip
GROUP_ID_PREFIX = optional("groupIdPrefix", types.text, "Accepted without effect: no consumer group is joined.")

# Kafka's own settings

BOOTSTRAP_SERVERS = optional(
    "kafka.bootstrap.servers", types.bootstrap_servers,
    "Brokers, `host:port,host:port`. Required unless `remote.log.locator` is `archive`.",
)  # fmt: skip
ISOLATION_LEVEL = option(
    "kafka.isolation.level", types.word(IsolationLevel, any_case=False), "read_committed",
    "Unlike Spark's `kafka` source, whose default is `read_uncommitted`, records of open and aborted transactions "
    "are left out.",
)  # fmt: skip
CHECK_CRCS = option(
    "kafka.check.crcs", lambda value: types.boolean(types.trimmed(value)), "true",
    "Check the checksum of each record batch.",
)  # fmt: skip
GROUP_ID = optional("kafka.group.id", types.text, "Accepted with a warning: no consumer group is joined.")
COMMIT_GROUP_ID = optional(
    "kafka.consumer.commit.groupid", types.text,
    "Consumer group to which the query's offsets are committed after each micro-batch, for tools that show lag. The "
    "query does not read them. If a commit is refused, the log has a warning. The group must have no members.",
    Queries.STREAMING,
)  # fmt: skip
FETCH_REMOTE_ENABLED = option(
    "kafka.fetch.remote.enabled", types.boolean, "true",
    "`false`: read everything from the brokers, as `remote.log.locator=none` does.",
)  # fmt: skip
CONNECT_TIMEOUT_MS = option(
    "kafka.fetch.remote.connect.timeout.ms", types.integer(1, types.INT_MAX), "1000",
    "Time limit of a connection to the storage. A request that times out is repeated: once if the brokers have the "
    "records, too, else up to three times.",
)  # fmt: skip
READ_TIMEOUT_MS = option(
    "kafka.fetch.remote.read.timeout.ms", types.integer(1, types.INT_MAX), "5000",
    "Longest silence of the storage. Requests are repeated as after the timeout above.",
)  # fmt: skip
FETCHER_CLASS = optional(
    "kafka.remote.storage.fetcher.class", types.text,
    "Dotted name of your own `RemoteStorageFetcher`, in place of `remote.storage.layout`.",
)  # fmt: skip
FETCHER_CLASS_PATH = optional(
    "kafka.remote.storage.fetcher.class.path", types.text, "Folder or archive to import that class from."
)
NOT_SUPPORTED = {
    "kafka.auto.offset.reset": "set startingOffsets to earliest or latest instead",
    "kafka.key.deserializer": "keys are bytes; deserialize them with DataFrame operations",
    "kafka.value.deserializer": "values are bytes; deserialize them with DataFrame operations",
    "kafka.enable.auto.commit": "offsets are kept in the query's checkpoint",
    "kafka.interceptor.classes": "an interceptor may change the records",
}
"""Options that are refused, each with the reason or the replacement."""
REFUSED: tuple[Option[None], ...] = tuple(
    Option(name, types.refused(reason), None, "", f"Not supported: {reason}.") for name, reason in NOT_SUPPORTED.items()
)
