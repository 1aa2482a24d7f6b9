"""Spark's options and Kafka's settings, each once.

Names, defaults and checks are those of Spark's `KafkaSourceProvider`; of `kafka.fetch.remote.*` and
`kafka.remote.storage.*`, those of KIP-1254.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tiered_stream.model import TopicPartition
from tiered_stream.options import types
from tiered_stream.options.choices import IsolationLevel, TimestampStrategy
from tiered_stream.options.offset_json import parse_partition_offsets, parse_partition_timestamps, parse_partitions
from tiered_stream.options.positions import AtOffsets, LogEnd
from tiered_stream.options.types import Option, Queries


def _offsets(option: str) -> Callable[[str], LogEnd | AtOffsets]:
    def parse(value: str) -> LogEnd | AtOffsets:
        word = value.strip().upper()
        if word in LogEnd.__members__:
            return LogEnd[word]
        return AtOffsets(parse_partition_offsets(value, option))

    return parse


# What to read

SUBSCRIBE: Option[tuple[str, ...]] = Option(
    "subscribe",
    types.topics,
    (),
    "",
    "Topics, separated by commas. Exactly one of `subscribe`, `subscribePattern` and `assign` is given. Of internal "
    "topics nothing is read.",
)
SUBSCRIBE_PATTERN: Option[str | None] = Option(
    "subscribePattern",
    types.topic_pattern,
    None,
    "",
    "A regular expression; topics in whose name it is found are read, internal topics never.",
)
ASSIGN: Option[tuple[TopicPartition, ...]] = Option(
    "assign", parse_partitions, (), "", 'Partitions by topic: `{"topicA":[0,1],"topicB":[2]}`.'
)
STARTING_TIMESTAMP: Option[int | None] = Option(
    "startingTimestamp",
    types.epoch_ms,
    None,
    "",
    "Start every partition at its first offset at or after this time, in ms. Goes before the next two.",
)
STARTING_OFFSETS_BY_TIMESTAMP: Option[Mapping[TopicPartition, int] | None] = Option(
    "startingOffsetsByTimestamp",
    partial(parse_partition_timestamps, option="startingOffsetsByTimestamp"),
    None,
    "",
    'The same by partition: `{"topicA":{"0":1718000000000}}`. Goes before `startingOffsets`.',
)
STARTING_OFFSETS: Option[LogEnd | AtOffsets | None] = Option(
    "startingOffsets",
    _offsets("startingOffsets"),
    None,
    "latest (streaming), earliest (batch)",
    '`earliest`, `latest` (streaming only), or offsets by partition: `{"topicA":{"0":23,"1":-2}}`, '
    "-2 for earliest, -1 for latest (streaming only). A stream with a checkpoint goes on from there instead.",
)
TIMESTAMP_STRATEGY: Option[TimestampStrategy] = Option(
    "startingOffsetsByTimestampStrategy",
    types.choice(TimestampStrategy),
    TimestampStrategy.ERROR,
    "error",
    "Where a partition has nothing at or after a starting time: fail, or start it at its end.",
)
ENDING_TIMESTAMP: Option[int | None] = Option(
    "endingTimestamp",
    types.epoch_ms,
    None,
    "",
    "End every partition before its first offset at or after this time, in ms; where there is none, at its end. "
    "Goes before the next two.",
    Queries.BATCH,
)
ENDING_OFFSETS_BY_TIMESTAMP: Option[Mapping[TopicPartition, int] | None] = Option(
    "endingOffsetsByTimestamp",
    partial(parse_partition_timestamps, option="endingOffsetsByTimestamp"),
    None,
    "",
    "The same by partition. Goes before `endingOffsets`.",
    Queries.BATCH,
)
ENDING_OFFSETS: Option[LogEnd | AtOffsets | None] = Option(
    "endingOffsets",
    _offsets("endingOffsets"),
    LogEnd.LATEST,
    "latest",
    "`latest`, or offsets by partition, the end not included; -1 for latest.",
    Queries.BATCH,
)

# How to read it

FAIL_ON_DATA_LOSS: Option[bool] = Option(
    "failOnDataLoss",
    types.boolean,
    True,
    "true",
    "Fail when records that were to be read are gone; `false`: log a warning and go on.",
)
INCLUDE_HEADERS: Option[bool] = Option("includeHeaders", types.boolean, False, "false", "Add the column `headers`.")
MIN_PARTITIONS: Option[int | None] = Option(
    "minPartitions", types.integer(1, types.INT_MAX), None, "", "Cut into at least about this many tasks."
)
MAX_RECORDS_PER_PARTITION: Option[int | None] = Option(
    "maxRecordsPerPartition", types.integer(1), None, "", "No task reads more offsets than this."
)
MAX_OFFSETS_PER_TRIGGER: Option[int | None] = Option(
    "maxOffsetsPerTrigger",
    types.integer(1),
    None,
    "",
    "About the most offsets in a micro-batch, shared out in proportion to what each partition has to read; a "
    "partition's share ends where a tiered segment ends, if one does within it.",
    Queries.STREAMING,
)
MIN_OFFSETS_PER_TRIGGER: Option[int | None] = Option(
    "minOffsetsPerTrigger",
    types.integer(0),
    None,
    "",
    "Wait until there are this many new offsets, or until `maxTriggerDelay` has passed.",
    Queries.STREAMING,
)
MAX_TRIGGER_DELAY_MS: Option[int] = Option(
    "maxTriggerDelay",
    types.duration_ms,
    15 * 60_000,
    "15m",
    "How long `minOffsetsPerTrigger` may wait.",
    Queries.STREAMING,
)
FETCH_OFFSET_NUM_RETRIES: Option[int] = Option(
    "fetchOffset.numRetries", types.integer(1, types.INT_MAX), 3, "3", "How often offsets are asked for in all."
)
FETCH_OFFSET_RETRY_INTERVAL_MS: Option[int] = Option(
    "fetchOffset.retryIntervalMs", types.integer(0), 1000, "1000", "Milliseconds between those attempts."
)
POLL_TIMEOUT_MS: Option[int] = Option(
    "kafkaConsumer.pollTimeoutMs",
    types.integer(1),
    120_000,
    "120000",
    "Milliseconds after which a task that gets nothing from the broker fails.",
)
GROUP_ID_PREFIX: Option[str | None] = Option(
    "groupIdPrefix", types.text, None, "", "Accepted and without effect: no consumer group is joined."
)

# Kafka's own settings

BOOTSTRAP_SERVERS: Option[str | None] = Option(
    "kafka.bootstrap.servers",
    types.text,
    None,
    "",
    "The brokers, `host:port,host:port`. Needed unless `remote.log.locator` is `archive`.",
)
ISOLATION_LEVEL: Option[IsolationLevel] = Option(
    "kafka.isolation.level",
    types.choice(IsolationLevel),
    IsolationLevel.READ_COMMITTED,
    "read_committed",
    "Unlike Spark's `kafka` source, whose default is `read_uncommitted`, records of open and aborted transactions "
    "are left out.",
)
CHECK_CRCS: Option[bool] = Option(
    "kafka.check.crcs", types.boolean, True, "true", "Check the checksum of each record batch."
)
GROUP_ID: Option[str | None] = Option(
    "kafka.group.id", types.text, None, "", "Accepted with a warning: no consumer group is joined."
)
FETCH_REMOTE_ENABLED: Option[bool] = Option(
    "kafka.fetch.remote.enabled",
    types.boolean,
    True,
    "true",
    "`false`: read everything from the brokers, as `remote.log.locator=none` does.",
)
CONNECT_TIMEOUT_MS: Option[int] = Option(
    "kafka.fetch.remote.connect.timeout.ms",
    types.integer(1, types.INT_MAX),
    1000,
    "1000",
    "How long a connection to the storage may take.",
)
READ_TIMEOUT_MS: Option[int] = Option(
    "kafka.fetch.remote.read.timeout.ms",
    types.integer(1, types.INT_MAX),
    5000,
    "5000",
    "How long the storage may be silent.",
)
FETCHER_CLASS: Option[str | None] = Option(
    "kafka.remote.storage.fetcher.class",
    types.text,
    None,
    "",
    "Dotted name of your own `RemoteStorageFetcher`, in place of `remote.storage.layout`.",
)
FETCHER_CLASS_PATH: Option[str | None] = Option(
    "kafka.remote.storage.fetcher.class.path", types.text, None, "", "Folder or archive to import that class from."
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
