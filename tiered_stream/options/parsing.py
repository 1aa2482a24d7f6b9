"""Parsing of a query's options into one frozen `Options`. `spark_options` and `remote_options` declare the options."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from tiered_stream.data_limits import Limits
from tiered_stream.errors import ConfigurationError
from tiered_stream.model import ReportAddress, TopicPartition, listed
from tiered_stream.options import choices
from tiered_stream.options import plugin_properties as plugin
from tiered_stream.options import remote_options as remote
from tiered_stream.options import spark_options as spark
from tiered_stream.options.given_options import GivenOptions, declared, of, read_fields
from tiered_stream.options.positions import AtOffsets, AtTimestamps, LogEnd, Position, TimeRange, names_log_end
from tiered_stream.options.remote_options import LIMIT_OPTIONS
from tiered_stream.options.types import Option, Queries


@dataclass(frozen=True, slots=True)
class Subscription:
    """Topics or partitions to read, by exactly one of Spark's options `subscribe`, `subscribePattern` and `assign`."""

    topics: tuple[str, ...] = of(spark.SUBSCRIBE)
    pattern: str | None = of(spark.SUBSCRIBE_PATTERN)
    assigned: tuple[TopicPartition, ...] = of(spark.ASSIGN)

    def names(self, topic: str) -> bool:
        """Return whether this subscription chooses `topic`, or at least one partition of `topic`.

        A pattern chooses a topic if any part of the topic's name matches the pattern, as in Spark.
        """
        if self.pattern is not None:
            return re.search(self.pattern, topic, re.ASCII) is not None
        return topic in self.topics or any(partition.topic == topic for partition in self.assigned)

    def chooses(self, partition: TopicPartition) -> bool:
        """Return whether this subscription chooses the partition, if the partition exists."""
        return partition in self.assigned if self.assigned else self.names(partition.topic)


@dataclass(frozen=True, slots=True)
class S3Access:
    """Settings for access to an S3 bucket. If `s3_endpoint_url` is None, AWS is used. Secrets are not in the repr.

    No option sets `s3_access_point`, `s3_fips` and `anonymous`. They come from the Spark session's Hadoop settings.
    """

    s3_endpoint_url: str | None = of(remote.S3_ENDPOINT_URL)
    s3_region: str | None = of(remote.S3_REGION)
    s3_path_style: bool | None = of(remote.S3_PATH_STYLE)
    access_key_id: str | None = of(remote.ACCESS_KEY_ID)
    secret_access_key: str | None = of(remote.SECRET_ACCESS_KEY)
    session_token: str | None = of(remote.SESSION_TOKEN)
    s3_requester_pays: bool = of(remote.S3_REQUESTER_PAYS)
    s3_customer_key: str | None = of(remote.S3_CUSTOMER_KEY)
    s3_access_point: str | None = None
    s3_fips: bool = False
    anonymous: bool = False


@dataclass(frozen=True, slots=True)
class StoreAccess(S3Access):
    """Settings for access to a bucket or container in S3, Azure Blob Storage or Google Cloud Storage, or to HDFS.

    Secrets are not in the repr. Without credentials, the service's own chain of credentials is used, such as Google's
    application default credentials. With `gcs_anonymous`, requests to Google have no credentials.
    """

    azure_account_name: str | None = of(remote.AZURE_ACCOUNT_NAME)
    azure_account_key: str | None = of(remote.AZURE_ACCOUNT_KEY)
    azure_sas_token: str | None = of(remote.AZURE_SAS_TOKEN)
    azure_connection_string: str | None = of(remote.AZURE_CONNECTION_STRING)
    azure_endpoint_url: str | None = of(remote.AZURE_ENDPOINT_URL)
    azure_tenant_id: str | None = None
    azure_client_id: str | None = None
    azure_client_secret: str | None = field(default=None, repr=False)
    azure_authority_url: str | None = None
    azure_token_file: str | None = None
    azure_managed_identity: bool = False
    gcs_credentials_path: str | None = of(remote.GCS_CREDENTIALS_PATH)
    gcs_credentials_json: str | None = of(remote.GCS_CREDENTIALS_JSON)
    gcs_endpoint_url: str | None = of(remote.GCS_ENDPOINT_URL)
    gcs_anonymous: bool = False
    gcs_machine: bool = False
    hdfs_core_site: str | None = of(remote.HDFS_CORE_SITE)
    hdfs_hdfs_site: str | None = of(remote.HDFS_HDFS_SITE)
    hdfs_principal: str | None = of(remote.HDFS_PRINCIPAL)
    hdfs_keytab: str | None = of(remote.HDFS_KEYTAB)
    hdfs_settings: str | None = None
    """Hadoop's settings by name, as a JSON object, which override settings in files."""


@dataclass(frozen=True, slots=True)
class StorageOptions(StoreAccess):
    """Place of the tiered objects, and settings for access to them."""

    uri: str | None = of(remote.STORAGE_URI)
    """URI of a bucket, of a container or of a folder, with a prefix; None: no storage is configured."""
    layout: choices.StorageLayout = choices.StorageLayout.LOCAL
    connect_timeout_ms: int = of(spark.CONNECT_TIMEOUT_MS)
    read_timeout_ms: int = of(spark.READ_TIMEOUT_MS)
    request_timeout_ms: int = of(remote.REQUEST_TIMEOUT_MS)
    has_fallback: bool = False
    """True if `remote.fallback` is `broker` and brokers are given. A GET that times out then has fewer retries."""
    signed_hosts: tuple[str, ...] = of(remote.SIGNED_HOSTS)
    """Further hosts that signed URLs of segments can have, as URLs without a path. A host may begin with `*.`."""
    rsm_config: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Storage plugin's properties, as in the broker's configuration, by name in lower case without `plugin_prefix`."""
    plugin_prefix: str = of(remote.RSM_CONFIG_PREFIX)
    limits: Limits = field(default_factory=Limits)
    key_prefixes: tuple[str, ...] = of(remote.KEY_PREFIXES)
    """Further key prefixes of segments in an archive, in addition to the plugin's `key.prefix`."""


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """Limits for a task that fetches bytes from the storage.

    `request_bytes` is the approximate size of one GET. `in_flight` is the maximum number of GETs at the same time.
    `memory_bytes` is the maximum number of fetched bytes in the task's memory.
    """

    request_bytes: int = of(remote.REQUEST_BYTES)
    in_flight: int = of(remote.IN_FLIGHT)
    memory_bytes: int = of(remote.MEMORY_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Parsed and checked options of one query, as `parse_options` returns them.

    Sizes are in bytes, times in milliseconds. None means that the option is not set. An object can be pickled, and its
    repr has no secrets.
    """

    streaming: bool
    subscription: Subscription
    starting: Position
    ending: Position
    """End of the query. For a stream, it is `LogEnd.LATEST` unless a replay or the user has set an end."""
    bounded_streaming: bool = of(spark.BOUNDED_STREAMING)
    available_now: bool = of(remote.AVAILABLE_NOW)
    """True if the query must end at the log ends that were current at its start (trigger `availableNow`).

    It is set for a version of Spark that does not do this for Python sources.
    """
    timestamp_strategy: choices.TimestampStrategy = of(spark.TIMESTAMP_STRATEGY)
    group_strategy: choices.GroupStrategy = of(spark.GROUP_STRATEGY)
    fail_on_data_loss: bool = of(spark.FAIL_ON_DATA_LOSS)
    include_headers: bool = of(spark.INCLUDE_HEADERS)
    columns: tuple[str, ...] | None = of(remote.COLUMNS)
    """Columns to read, in order; None: all columns, `headers` only with `include_headers`."""
    filter_pushdown: bool = of(remote.FILTER_PUSHDOWN)
    min_partitions: int | None = of(spark.MIN_PARTITIONS)
    max_records_per_partition: int | None = of(spark.MAX_RECORDS_PER_PARTITION)
    max_offsets_per_trigger: int | None = of(spark.MAX_OFFSETS_PER_TRIGGER)
    max_bytes_per_trigger: int = of(spark.MAX_BYTES_PER_TRIGGER)
    min_offsets_per_trigger: int | None = of(spark.MIN_OFFSETS_PER_TRIGGER)
    max_trigger_delay_ms: int = of(spark.MAX_TRIGGER_DELAY_MS)
    segment_aligned_ends: bool = of(remote.SEGMENT_ALIGNED_ENDS)
    fetch_offset_num_retries: int = of(spark.FETCH_OFFSET_NUM_RETRIES)
    """Total number of attempts to fetch offsets, as in Spark."""
    fetch_offset_retry_interval_ms: int = of(spark.FETCH_OFFSET_RETRY_INTERVAL_MS)
    poll_timeout_ms: int = of(spark.POLL_TIMEOUT_MS)
    isolation_level: choices.IsolationLevel = of(spark.ISOLATION_LEVEL)
    check_crcs: bool = of(spark.CHECK_CRCS)
    commit_group_id: str | None = of(spark.COMMIT_GROUP_ID)
    kafka: Mapping[str, str] = field(repr=False)
    """All `kafka.*` options without that prefix, names in lower case. They may hold passwords."""
    locator: choices.LocatorName
    metadata_snapshot_dir: str = of(remote.METADATA_SNAPSHOT_DIR)
    """Folder for snapshots of `__remote_log_metadata`. Empty: a folder in the user's cache. `none`: no snapshots."""
    prefer: choices.Prefer = of(remote.PREFER)
    fallback: choices.Fallback = of(remote.FALLBACK)
    asks_for_fallback: bool = False
    """True if the user has set `remote.fallback=broker`. False if `broker` is only the default, or not the value."""
    split_bytes: int = of(remote.SPLIT_BYTES)
    storage: StorageOptions
    fetch: FetchOptions
    fetcher_class: str | None = of(spark.FETCHER_CLASS)
    fetcher_class_path: str | None = of(spark.FETCHER_CLASS_PATH)
    topic_ids: Mapping[str, UUID]
    """Topic ids that `remote.topic.id` requires, by topic."""
    report_addresses: tuple[ReportAddress, ...] = of(remote.REPORT_ADDRESSES)
    reports_by_loopback: bool = of(remote.REPORTS_BY_LOOPBACK)
    settings_file: str | None = of(remote.SETTINGS_FILE)
    max_bytes_per_second: int | None = of(remote.MAX_BYTES_PER_SECOND)
    """Limit for the bytes that one task fetches in a second, and also for the bytes that it writes in a second."""
    times: TimeRange | None
    """Range of timestamps outside which records are left out. None: no record is left out."""

    @property
    def limits(self) -> Limits:
        return self.storage.limits


def parse_options(raw: Mapping[str, str], *, streaming: bool) -> Options:
    """Parse the options of one query, and log warnings for options without effect.

    Case in names is ignored. Unknown options are ignored, but an unknown `remote.*` option is an error.

    Raises:
        ConfigurationError: an option is missing, malformed, or contradicts another; or a `remote.*` option is unknown.
    """
    given = GivenOptions(raw)
    options = _parsed(given, streaming)
    queries = Queries.STREAMING if streaming else Queries.BATCH
    given.warn(queries, effective=spark.ENDS if streaming and given.read(spark.BOUNDED_STREAMING) else ())
    if options.storage.layout is choices.StorageLayout.AIVEN:
        plugin.warn_of_unknown_properties(options.storage.rsm_config, given.plugin_prefix)
    return options


def check_for_any_query(raw: Mapping[str, str]) -> None:
    """Check a query's options when it is not known yet whether the query is a batch or a stream. Log no warnings.

    Raises:
        ConfigurationError: the options are valid neither for a batch query nor for a stream. The message says what is
            wrong for a batch query.
    """
    refused = []
    for streaming in (False, True):
        try:
            _parsed(GivenOptions(raw), streaming)
        except ConfigurationError as error:
            refused.append(error)
    if len(refused) == 2:
        raise refused[0]


def _parsed(given: GivenOptions, streaming: bool) -> Options:
    queries = Queries.STREAMING if streaming else Queries.BATCH
    given.check_names()
    for refused in spark.REFUSED:
        given.read(refused)
    subscription = _subscription(given)
    bounded = streaming and given.read(spark.BOUNDED_STREAMING)
    starting, ending = _positions(given, streaming=streaming, bounded=bounded)
    locator = _locator(given)
    has_fallback = given.read(remote.FALLBACK) is choices.Fallback.BROKER and given.has(spark.BOOTSTRAP_SERVERS)
    storage = replace(_storage(given, is_read=locator is not choices.LocatorName.NONE), has_fallback=has_fallback)
    _check_storage_suffices(locator, storage, given)
    _check_trigger_limits(given, queries)
    _check_columns(given)
    return Options(
        streaming=streaming,
        subscription=subscription,
        starting=starting,
        ending=ending,
        kafka=given.with_prefix("kafka."),
        locator=locator,
        storage=storage,
        fetch=_fetch(given),
        topic_ids=_topic_ids(given, subscription),
        times=_times(given),
        asks_for_fallback=given.has(remote.FALLBACK) and given.read(remote.FALLBACK) is choices.Fallback.BROKER,
        **read_fields(Options, given, queries),
    )


def storage_option_names() -> tuple[str, ...]:
    """Return the names of the options that `parse_storage_options` reads."""
    declarations = (*declared(StorageOptions).values(), remote.LAYOUT, remote.STORAGE_MANAGER, *LIMIT_OPTIONS.values())
    return tuple(option.name for option in declarations)


def parse_storage_options(raw: Mapping[str, str]) -> StorageOptions:
    """Parse only the storage options, for commands without a query, but check the names of all options.

    Raises:
        ConfigurationError: a storage option is malformed or contradicts another, or a `remote.*` option is unknown.
    """
    given = GivenOptions(raw)
    given.check_names()
    storage = _storage(given)
    if storage.layout is choices.StorageLayout.AIVEN:
        plugin.warn_of_unknown_properties(storage.rsm_config, given.plugin_prefix)
    return storage


def parse_subscription(raw: Mapping[str, str]) -> Subscription:
    """Parse `subscribe`, `subscribePattern` and `assign`, and no other option.

    Raises:
        ConfigurationError: none or several of the three options are given, or the given option is malformed.
    """
    return _subscription(GivenOptions(raw))


def _subscription(given: GivenOptions) -> Subscription:
    declarations = declared(Subscription).values()
    chosen = [option.name for option in declarations if given.has(option)]
    if len(chosen) != 1:
        names = ", ".join(option.name for option in declarations)
        given_names = f"{' and '.join(chosen)} are given" if chosen else "none is given"
        raise ConfigurationError(f"exactly one of the options {names} must be given to say what to read: {given_names}")
    return Subscription(**read_fields(Subscription, given))


def _positions(given: GivenOptions, *, streaming: bool, bounded: bool) -> tuple[Position, Position]:
    """Return the checked positions of the query's start and end. `bounded` is the value of `boundedStreaming`.

    Raises ConfigurationError if the start and the end contradict each other, or do not suit the kind of query.
    """
    starting = _position(given, spark.STARTS, LogEnd.LATEST if streaming else LogEnd.EARLIEST)
    if streaming and not bounded:
        for option in (spark.ENDING_OFFSETS, spark.ENDING_OFFSETS_BY_TIMESTAMP):
            if given.has(option):
                raise ConfigurationError(
                    f"option {option.name} is not for streaming queries: remove it, use a batch one, or set "
                    f"{spark.BOUNDED_STREAMING.name} to true, to end the stream there"
                )
        return starting, given.read(remote.ENDING_OFFSETS) or LogEnd.LATEST
    ending = _position(given, spark.ENDS, LogEnd.LATEST)
    if not streaming:
        _check_batch_position(starting, LogEnd.LATEST, spark.STARTING_OFFSETS.name)
        _check_batch_position(ending, LogEnd.EARLIEST, spark.ENDING_OFFSETS.name)
        _check_order(starting, ending)
    elif names_log_end(ending):
        raise ConfigurationError(
            f"option {spark.BOUNDED_STREAMING.name}: the stream needs a fixed end: give endingTimestamp, "
            "endingOffsetsByTimestamp, or endingOffsets with an offset for each partition. To read the records that "
            "exist now, use the trigger availableNow instead"
        )
    return starting, ending


def _position(given: GivenOptions, options: Sequence[Option[Any]], default: LogEnd) -> Position:
    """Return the first value that is not None among the values of `options`, or `default` if there is none."""
    positions = (given.read(option) for option in options)
    return next((position for position in positions if position is not None), default)


def _check_batch_position(position: Position, wrong: LogEnd, option: str) -> None:
    """Raise ConfigurationError if `position`, the value of `option` in a batch query, is `wrong` for any partition.

    `wrong` is LATEST for a start, and EARLIEST for an end. Such a query would read nothing.
    """
    places = [""] if position is wrong else []
    if isinstance(position, AtOffsets):
        places += [f" for {at}" for at, offset in position.offsets.items() if offset == wrong.value]
        places += [f" for topic {topic}" for topic, offset in position.topics.items() if offset == wrong.value]
    if places:
        raise ConfigurationError(
            f"option {option} must not be {wrong.name.lower()} ({wrong.value}){places[0]} in batch queries: nothing "
            "would be read"
        )


def _check_order(starting: Position, ending: Position) -> None:
    """Check that start and end name the same partitions, and that no partition starts after its end.

    Nothing is checked unless both positions are offsets by partition, or both are timestamps by partition.

    Raises:
        ConfigurationError: the check fails.
    """
    match starting, ending:
        # For a topic with `earliest` or `latest` in place of offsets, the option names no partitions to compare.
        case AtOffsets(starts, start_words), AtOffsets(ends, end_words) if not (start_words or end_words):
            kind = "OFFSET"
        case AtTimestamps(starts), AtTimestamps(ends):
            kind = "TIMESTAMP"
        case _:
            return
    if starts.keys() != ends.keys():
        raise ConfigurationError(
            "[MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET] the start and the end must name "
            f"the same partitions; only in one of them: {listed(starts.keys() ^ ends.keys())}"
        )
    for partition, start in starts.items():
        if start > (end := ends[partition]) and min(start, end) >= 0:
            raise ConfigurationError(
                f"[UNRESOLVED_START_{kind}_GREATER_THAN_END_{kind}] {partition}: "
                f"the start {start} lies beyond the end {end}"
            )


def _check_trigger_limits(given: GivenOptions, queries: Queries) -> None:
    """Raise ConfigurationError if `minOffsetsPerTrigger` is higher than `maxOffsetsPerTrigger`, as in Spark.

    Unlike in Spark, a stream's `maxOffsetsPerTrigger` must be at least 1, because the query would never read anything.
    """
    low, high = spark.MIN_OFFSETS_PER_TRIGGER, spark.MAX_OFFSETS_PER_TRIGGER
    if queries is Queries.STREAMING and (maximum := given.read(high)) is not None and maximum < 1:
        raise ConfigurationError(f"option {high.name}: {maximum} must be at least 1, or the query would never get on")
    if given.has(low) and given.has(high) and (given.read(low) or 0) > (given.read(high) or 0):
        raise ConfigurationError(
            f"option {low.name} ({given.read(low)}) must not be higher than {high.name} ({given.read(high)})"
        )


def _check_columns(given: GivenOptions) -> None:
    if "headers" in (given.read(remote.COLUMNS) or ()) and not given.read(spark.INCLUDE_HEADERS):
        raise ConfigurationError(
            f"option {remote.COLUMNS.name} names headers: set {spark.INCLUDE_HEADERS.name} to true, or leave them out"
        )


def _locator(given: GivenOptions) -> choices.LocatorName:
    locator, enabled = given.read(remote.LOCATOR), given.read(spark.FETCH_REMOTE_ENABLED)
    if locator is choices.LocatorName.ARCHIVE:
        if not enabled:
            raise ConfigurationError(
                f"option {remote.LOCATOR.name}: archive reads from storage alone, which "
                f"{spark.FETCH_REMOTE_ENABLED.name}=false forbids; take one of the two away"
            )
        if given.has(spark.COMMIT_GROUP_ID):
            raise ConfigurationError(
                f"option {spark.COMMIT_GROUP_ID.name} needs brokers, and {remote.LOCATOR.name}=archive reads without: "
                "take one of the two away"
            )
        return locator
    if not given.read(spark.BOOTSTRAP_SERVERS):
        raise ConfigurationError(
            f"option {spark.BOOTSTRAP_SERVERS.name} must be given, e.g. broker1:9092,broker2:9092 "
            f"(only {remote.LOCATOR.name}=archive reads without brokers)"
        )
    return locator if enabled else choices.LocatorName.NONE


def _storage(given: GivenOptions, *, is_read: bool = True) -> StorageOptions:
    """Return the storage options. Options that are not given get values from the storage plugin's properties.

    `is_read` is True if the query reads from the storage. The plugin's properties are not checked if `is_read` is
    False, or if `kafka.remote.storage.fetcher.class` is given.
    """
    prefix, rsm_config = given.plugin_prefix, given.with_prefix(given.plugin_prefix)
    checked = rsm_config if is_read and not given.has(spark.FETCHER_CLASS) else {}
    layout = plugin.chosen_layout(given.read(remote.LAYOUT), given.read(remote.STORAGE_MANAGER), checked, prefix)
    if layout is choices.StorageLayout.AIVEN:
        plugin.check_plugin_properties(checked, prefix, given.has)
        # The plugin's property for a storage setting has the name of our option without `remote.`.
        pasted = {f"remote.{name}": value for name, value in rsm_config.items()}
        given = given.with_defaults({**plugin.oracle_settings(rsm_config), **pasted})
    if uri := plugin.named_place(layout, rsm_config)[1]:
        given = given.with_defaults({remote.STORAGE_URI.name.lower(): uri})
    limits = Limits(**{name: given.read(option) for name, option in LIMIT_OPTIONS.items()})
    return StorageOptions(layout=layout, rsm_config=rsm_config, limits=limits, **read_fields(StorageOptions, given))


def _check_storage_suffices(locator: choices.LocatorName, storage: StorageOptions, given: GivenOptions) -> None:
    if storage.uri is not None or given.has(spark.FETCHER_CLASS):
        return
    if storage.rsm_config and locator is not choices.LocatorName.NONE:
        raise plugin.missing_place(storage.layout, given.plugin_prefix)
    if locator in (choices.LocatorName.ARCHIVE, choices.LocatorName.METADATA_TOPIC):
        raise ConfigurationError(
            f"option {remote.LOCATOR.name}: {locator} needs {remote.STORAGE_URI.name}, e.g. s3://bucket/prefix"
        )


def _fetch(given: GivenOptions) -> FetchOptions:
    fetch = FetchOptions(**read_fields(FetchOptions, given))
    if fetch.memory_bytes < fetch.request_bytes:
        raise ConfigurationError(
            f"option {remote.MEMORY_BYTES.name} ({fetch.memory_bytes} bytes) must hold at least one request: "
            f"{remote.REQUEST_BYTES.name} is {fetch.request_bytes} bytes"
        )
    return fetch


def _times(given: GivenOptions) -> TimeRange | None:
    start, end = given.read(remote.FROM_TIMESTAMP), given.read(remote.TO_TIMESTAMP)
    if end is not None and end <= (start or 0):
        raise ConfigurationError(
            f"option {remote.TO_TIMESTAMP.name}: {end} is not after {remote.FROM_TIMESTAMP.name}, which is {start or 0}"
        )
    return None if start is None and end is None else TimeRange(start or 0, end)


def _topic_ids(given: GivenOptions, subscription: Subscription) -> Mapping[str, UUID]:
    if not isinstance(value := given.read(remote.TOPIC_ID), UUID):
        return value or {}
    topics = {*subscription.topics, *(partition.topic for partition in subscription.assigned)}
    if len(topics) != 1:
        raise ConfigurationError(
            f"option {remote.TOPIC_ID.name}: a single id needs a single topic by name; "
            'for several give {"topicA":"id","topicB":"id"}'
        )
    return {topics.pop(): value}
