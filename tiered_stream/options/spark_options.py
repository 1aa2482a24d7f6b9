"""Spark's options and Kafka's settings, each once.

Names, defaults and checks are those of Spark's `KafkaSourceProvider`; of `kafka.fetch.remote.*` and
`kafka.remote.storage.*`, those of KIP-1254.
"""

from __future__ import annotations

from functools import partial

from tiered_stream.model import TopicPartition
from tiered_stream.options import types
from tiered_stream.options.choices import IsolationLevel, TimestampStrategy
from tiered_stream.options.offset_json import parse_partition_offsets, parse_partition_timestamps, parse_partitions
from tiered_stream.options.positions import AtOffsets, AtTimestamp, AtTimestamps, LogEnd
from tiered_stream.options.types import Option, Queries, option, optional


def _offsets(value: str, option: str) -> LogEnd | AtOffsets:
    word = value.strip().upper()
    return LogEnd[word] if word in LogEnd.__members__ else AtOffsets(parse_partition_offsets(value, option))


def _timestamp(value: str) -> AtTimestamp:
    return AtTimestamp(types.epoch_ms(value))


def _timestamps(value: str, option: str) -> AtTimestamps:
    return AtTimestamps(parse_partition_timestamps(value, option))


# What to read

SUBSCRIBE: Option[tuple[str, ...]] = Option(
    "subscribe", types.topics, (), "",
    "Topics, separated by commas. Exactly one of `subscribe`, `subscribePattern` and `assign` is given. Of internal "
    "topics nothing is read.",
)  # fmt: skip
SUBSCRIBE_PATTERN = optional(
    "subscribePattern", types.topic_pattern,
    "A regular expression; topics in whose name it is found are read, internal topics never.",
)  # fmt: skip
ASSIGN: Option[tuple[TopicPartition, ...]] = Option(
    "assign", parse_partitions, (), "", 'Partitions by topic: `{"topicA":[0,1],"topicB":[2]}`.'
)
STARTING_TIMESTAMP = optional(
    "startingTimestamp", _timestamp,
    "Start every partition at its first offset at or after this time, in ms. Goes before the next two.",
)  # fmt: skip
STARTING_OFFSETS_BY_TIMESTAMP = optional(
    "startingOffsetsByTimestamp", partial(_timestamps, option="startingOffsetsByTimestamp"),
    'The same by partition: `{"topicA":{"0":1718000000000}}`. Goes before `startingOffsets`.',
)  # fmt: skip
STARTING_OFFSETS = optional(
    "startingOffsets", partial(_offsets, option="startingOffsets"),
    '`earliest`, `latest` (streaming only), or offsets by partition: `{"topicA":{"0":23,"1":-2}}`, '
    "-2 for earliest, -1 for latest (streaming only). A stream with a checkpoint goes on from there instead.",
    shown="latest (streaming), earliest (batch)",
)  # fmt: skip
TIMESTAMP_STRATEGY = option(
    "startingOffsetsByTimestampStrategy", types.choice(TimestampStrategy), "error",
    "Where a partition has nothing at or after a starting time: fail, or start it at its end.",
)  # fmt: skip
ENDING_TIMESTAMP = optional(
    "endingTimestamp", _timestamp,
    "End every partition before its first offset at or after this time, in ms; where there is none, at its end. "
    "Goes before the next two.", Queries.BATCH,
)  # fmt: skip
ENDING_OFFSETS_BY_TIMESTAMP = optional(
    "endingOffsetsByTimestamp", partial(_timestamps, option="endingOffsetsByTimestamp"),
    "The same by partition. Goes before `endingOffsets`.", Queries.BATCH,
)  # fmt: skip
ENDING_OFFSETS = option(
    "endingOffsets", partial(_offsets, option="endingOffsets"), "latest",
    "`latest`, or offsets by partition, the end not included; -1 for latest.", Queries.BATCH,
)  # fmt: skip

# How to read it

FAIL_ON_DATA_LOSS = option(
    "failOnDataLoss", types.boolean, "true",
    "Fail when records that were to be read are gone; `false`: log a warning and go on.",
)  # fmt: skip
INCLUDE_HEADERS = option("includeHeaders", types.boolean, "false", "Add the column `headers`.")
MIN_PARTITIONS = optional("minPartitions", types.integer(1, types.INT_MAX), "Cut into at least about this many tasks.")
MAX_RECORDS_PER_PARTITION = optional(
    "maxRecordsPerPartition", types.integer(1), "No task reads more offsets than this."
)
MAX_OFFSETS_PER_TRIGGER = optional(
    "maxOffsetsPerTrigger", types.integer(1),
    "About the most offsets in a micro-batch, shared out in proportion to what each partition has to read; a "
    "partition's share ends where a tiered segment ends, if one does within it.", Queries.STREAMING,
)  # fmt: skip
MIN_OFFSETS_PER_TRIGGER = optional(
    "minOffsetsPerTrigger", types.integer(0),
    "Wait until there are this many new offsets, or until `maxTriggerDelay` has passed.", Queries.STREAMING,
)  # fmt: skip
MAX_TRIGGER_DELAY_MS = option(
    "maxTriggerDelay", types.duration_ms, "15m", "How long `minOffsetsPerTrigger` may wait.", Queries.STREAMING
)
FETCH_OFFSET_NUM_RETRIES = option(
    "fetchOffset.numRetries", types.integer(1, types.INT_MAX), "3", "How often offsets are asked for in all."
)
FETCH_OFFSET_RETRY_INTERVAL_MS = option(
    "fetchOffset.retryIntervalMs", types.integer(0), "1000", "Milliseconds between those attempts."
)
POLL_TIMEOUT_MS = option(
    "kafkaConsumer.pollTimeoutMs", types.integer(1), "120000",
    "Milliseconds after which a task that gets nothing from the broker fails.",
)  # fmt: skip
GROUP_ID_PREFIX = optional("groupIdPrefix", types.text, "Accepted and without effect: no consumer group is joined.")

# Kafka's own settings

BOOTSTRAP_SERVERS = optional(
    "kafka.bootstrap.servers", types.text,
    "The brokers, `host:port,host:port`. Needed unless `remote.log.locator` is `archive`.",
)  # fmt: skip
ISOLATION_LEVEL = option(
    "kafka.isolation.level", types.choice(IsolationLevel), "read_committed",
    "Unlike Spark's `kafka` source, whose default is `read_uncommitted`, records of open and aborted transactions "
    "are left out.",
)  # fmt: skip
CHECK_CRCS = option("kafka.check.crcs", types.boolean, "true", "Check the checksum of each record batch.")
GROUP_ID = optional("kafka.group.id", types.text, "Accepted with a warning: no consumer group is joined.")
FETCH_REMOTE_ENABLED = option(
    "kafka.fetch.remote.enabled", types.boolean, "true",
    "`false`: read everything from the brokers, as `remote.log.locator=none` does.",
)  # fmt: skip
CONNECT_TIMEOUT_MS = option(
    "kafka.fetch.remote.connect.timeout.ms", types.integer(1, types.INT_MAX), "1000",
    "How long a connection to the storage may take.",
)  # fmt: skip
READ_TIMEOUT_MS = option(
    "kafka.fetch.remote.read.timeout.ms", types.integer(1, types.INT_MAX), "5000", "How long the storage may be silent."
)
FETCHER_CLASS = optional(
    "kafka.remote.storage.fetcher.class", types.text,
    "Dotted name of your own `RemoteStorageFetcher`, in place of `remote.storage.layout`.",
)  # fmt: skip
FETCHER_CLASS_PATH = optional(
    "kafka.remote.storage.fetcher.class.path", types.text, "Folder or archive to import that class from."
)
REFUSED: tuple[Option[None], ...] = tuple(
    Option(name, types.refused(reason), None, "", f"Not supported: {reason}.")
    for name, reason in (
        ("kafka.auto.offset.reset", "set startingOffsets to earliest or latest instead"),
        ("kafka.key.deserializer", "keys are bytes; deserialize them with DataFrame operations"),
        ("kafka.value.deserializer", "values are bytes; deserialize them with DataFrame operations"),
        ("kafka.enable.auto.commit", "offsets are kept in the query's checkpoint"),
        ("kafka.interceptor.classes", "an interceptor may change the records"),
    )
)
