from __future__ import annotations

import dataclasses
import logging
import pickle
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from tests.docs.docs_tables import render_option_table
from tiered_stream.data_limits import DEFAULT_LIMITS, Limits
from tiered_stream.errors import ConfigurationError
from tiered_stream.model import ReportAddress, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.given_options import OPTIONS
from tiered_stream.options.parsing import (
    FetchOptions,
    Options,
    StorageOptions,
    Subscription,
    check_for_any_query,
    parse_options,
    parse_storage_options,
)
from tiered_stream.options.positions import AtGroup, AtOffsets, AtTimestamp, AtTimestamps, BeforeNow, LogEnd
from tiered_stream.options.remote_options import LIMIT_OPTIONS
from tiered_stream.options.spark_options import NOT_SUPPORTED
from tiered_stream.options.types import COLUMNS
from tiered_stream.records.arrow import SCHEMA_WITH_HEADERS
from tiered_stream.spark.source import spark_schema

BROKERS = {"kafka.bootstrap.servers": "broker:9092"}
TOPIC = {**BROKERS, "subscribe": "t"}
ARCHIVE = {"subscribe": "t", "remote.log.locator": "archive", "remote.storage.uri": "s3://b"}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LOCAL_PLUGIN = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
AIVEN_PLUGIN = "io.aiven.kafka.tieredstorage.RemoteStorageManager"


def stream(**given: Any) -> Options:
    return parse_options({**TOPIC, **_named(given)}, streaming=True)


def batch(**given: Any) -> Options:
    return parse_options({**TOPIC, **_named(given)}, streaming=False)


def _named(given: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("__", "."): value for name, value in given.items()}


def refusal(raw: dict[str, str], *, streaming: bool = True) -> str:
    with pytest.raises(ConfigurationError) as raised:
        parse_options(raw, streaming=streaming)
    return str(raised.value)


# What to read


@pytest.mark.contract("1.2 subscribe", "1.2 subscribePattern", "1.2 assign")
@pytest.mark.parametrize(
    ("given", "subscription"),
    [
        ({"subscribe": " b , a ,, b "}, Subscription(topics=("b", "a"))),
        ({"subscribePattern": " top.*c "}, Subscription(pattern="top.*c")),
        ({"assign": '{"t":[0,1]}'}, Subscription(assigned=(T0, T1))),
    ],
)
def test_each_way_to_name_what_is_read(given: dict[str, str], subscription: Subscription) -> None:
    assert parse_options({**BROKERS, **given}, streaming=True).subscription == subscription


@pytest.mark.parametrize(
    ("subscription", "chosen"),
    [
        (Subscription(topics=("t",)), [True, True, False]),
        (Subscription(pattern="^t"), [True, True, False]),
        (Subscription(assigned=(T0,)), [True, False, False]),
    ],
)
def test_a_subscription_chooses_partitions(subscription: Subscription, chosen: list[bool]) -> None:
    assert list(map(subscription.chooses, (T0, T1, TopicPartition("u", 0)))) == chosen


@pytest.mark.contract("1.2 one of the three", "1.2 subscribePattern", "2.12", "2.13", "2.14")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "subscribe, subscribePattern, assign .*: none"),
        ({"subscribe": "t", "subscribePattern": "t"}, "subscribe and subscribePattern"),
        ({"subscribe": "t", "assign": '{"t":[0]}'}, "subscribe and assign"),
        ({"subscribe": ""}, "subscribe: ''"),
        ({"subscribe": " , "}, "subscribe: ' , '"),
        ({"subscribePattern": "  "}, "subscribePattern: '  '"),
        ({"subscribePattern": "a["}, r"subscribePattern: 'a\['"),
        ({"subscribePattern": "[a[b]]"}, r"subscribePattern: '\[a\[b]]'.* set"),
        ({"subscribePattern": "[a-z&&[^b]]"}, r"subscribePattern: '\[a-z&&\[\^b]]'.* set"),
        ({"subscribePattern": "[a-z&&b]"}, r"subscribePattern: '\[a-z&&b]'.* set"),
        ({"subscribePattern": r"\p{Alpha}"}, r"subscribePattern: .*\bp{Alpha}'"),
        ({"subscribePattern": "(?P<name>a)"}, r"subscribePattern: '\(\?P<name>a\)'.* group"),
        ({"subscribePattern": "a(?#comment)"}, r"subscribePattern: 'a\(\?#comment\)'.* group"),
        ({"assign": ""}, "assign: ''"),
        ({"assign": "t"}, "assign: 't'"),
    ],
)
@pytest.mark.parametrize("streaming", [True, False])
def test_a_subscription_that_names_nothing_or_too_much_is_refused(
    given: dict[str, str], said: str, streaming: bool
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        parse_options({**BROKERS, **given}, streaming=streaming)


@pytest.mark.contract("1.2 subscribePattern")
@pytest.mark.parametrize("pattern", [r"a\[b[c]d[e]", r"\\[ab]", r"\(?P?", "t(op)?ic-[0-9]+", "(?i)ABC$"])
def test_patterns_that_java_and_python_read_alike_pass(pattern: str) -> None:
    assert parse_options({**BROKERS, "subscribePattern": pattern}, streaming=True).subscription.pattern == pattern


@pytest.mark.contract("1.2 kafka.bootstrap.servers")
def test_an_archive_needs_no_brokers() -> None:
    assert parse_options(ARCHIVE, streaming=False).locator == "archive"


# Names


@pytest.mark.contract("1.2 names in any case", "2.95")
def test_option_names_are_taken_in_any_case_and_values_keep_theirs() -> None:
    raw = CaseInsensitiveDict(
        {
            "KAFKA.Bootstrap.Servers": "Broker:9092",
            "ASSIGN": '{"MyTopic":[0]}',
            "startingOFFSETS": '{"MyTopic":{"0":7}}',
            "MaxOffsetsPerTrigger": "5",
            "FETCHOFFSET.NUMRETRIES": "4",
            "fetchoffset.retryintervalms": "20",
            "KafkaConsumer.PollTimeoutMs": "30",
            "Remote.Prefer": "LOCAL",
        }
    )
    options = parse_options(raw, streaming=True)
    partition = TopicPartition("MyTopic", 0)
    assert options.kafka == {"bootstrap.servers": "Broker:9092"}
    assert options.subscription.assigned == (partition,)
    assert options.starting == AtOffsets({partition: 7})
    assert options.max_offsets_per_trigger == 5
    assert options.fetch_offset_num_retries == 4
    assert options.fetch_offset_retry_interval_ms == 20
    assert options.poll_timeout_ms == 30
    assert options.prefer == "local"


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("remote.storage.url", "remote.storage.uri"),
        ("remote.log.locater", "remote.log.locator"),
        ("remote.splitBytes", "remote.split.bytes"),
        ("startingOffset", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("subscribePattren", "subscribePattern"),
        ("startingOffsetts", "startingOffsets"),
        ("includeheoders", "includeHeaders"),
        ("kafka.fetch.remote.enable", "kafka.fetch.remote.enabled"),
    ],
)
def test_an_unknown_remote_option_or_a_slip_is_refused_with_the_nearest_known_one(name: str, nearest: str) -> None:
    said = refusal({**TOPIC, name: "x"})
    assert name.lower() in said and nearest in said


@pytest.mark.contract("1.2 names in any case")
@pytest.mark.parametrize("name", ["path", "mergeSchema", "kafka.fetch.min.bytes", "kafka.security.protocol", "topic"])
def test_other_unknown_options_are_ignored_in_silence(name: str, caplog: pytest.LogCaptureFixture) -> None:
    stream(**{name: "x"})
    assert not caplog.records


def test_the_brokers_own_properties_may_be_pasted_whole() -> None:
    pasted = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.path": "",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "5",
        "remote.log.manager.task.interval.ms": "500",
    }
    assert stream(**pasted).storage == StorageOptions(has_fallback=True)


# Where to start and end


@pytest.mark.contract("1.2 startingOffsets", "2.17")
@pytest.mark.parametrize(
    ("given", "position"),
    [
        ({}, LogEnd.LATEST),
        ({"startingOffsets": " EarliesT "}, LogEnd.EARLIEST),
        ({"startingOffsets": "LaTest"}, LogEnd.LATEST),
        ({"startingOffsets": '{"t":{"0":-1,"1":-2}}'}, AtOffsets({T0: -1, T1: -2})),
        ({"startingOffsetsByTimestamp": '{"t":{"0":5}}'}, AtTimestamps({T0: 5})),
        ({"startingTimestamp": " 7 "}, AtTimestamp(7)),
        ({"startingTimestamp": "-2"}, AtTimestamp(-2)),
        ({"startingTimestamp": " -90m "}, BeforeNow(90 * 60_000)),
        ({"startingTimestamp": "-1s"}, BeforeNow(1000)),
        ({"startingTimestamp": "2026-11-01T01:00:00+01:00"}, AtTimestamp(1_793_491_200_000)),
        ({"startingTimestamp": "20261101"}, AtTimestamp(20_261_101)),
        ({"startingOffsets": '{"t":{"0":-1},"u":" EarliesT "}'}, AtOffsets({T0: -1}, {"u": -2})),
        ({"startingOffsets": "group:my-app"}, AtGroup("my-app")),
        ({"startingOffsets": " GROUP: a:b "}, AtGroup("a:b")),
    ],
)
def test_a_stream_starts_where_it_is_told(given: dict[str, str], position: object) -> None:
    assert stream(**given).starting == position


@pytest.mark.contract("1.2 startingOffsets", "1.2 endingOffsets", "2.58")
def test_a_batch_query_is_from_earliest_to_latest_unless_told() -> None:
    assert (batch().starting, batch().ending) == (LogEnd.EARLIEST, LogEnd.LATEST)


@pytest.mark.contract(
    "1.2 startingTimestamp",
    "1.2 startingOffsetsByTimestamp",
    "1.2 endingTimestamp",
    "1.2 endingOffsetsByTimestamp",
    "2.67",
)
def test_a_timestamp_goes_before_timestamps_by_partition_and_those_before_offsets() -> None:
    offsets = {"startingOffsets": "latest", "endingOffsets": "earliest"}
    by_partition = {"startingOffsetsByTimestamp": '{"t":{"0":1}}', "endingOffsetsByTimestamp": '{"t":{"0":2}}'}
    timestamps = {"startingTimestamp": "3", "endingTimestamp": "4"}
    options = batch(**offsets, **by_partition)
    assert (options.starting, options.ending) == (AtTimestamps({T0: 1}), AtTimestamps({T0: 2}))
    options = batch(**offsets, **by_partition, **timestamps)
    assert (options.starting, options.ending) == (AtTimestamp(3), AtTimestamp(4))


@pytest.mark.contract("1.2 startingOffsets", "1.2 endingOffsets", "1.5 maps of a batch query", "2.71", "2.75")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets .*latest .*batch"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, r"startingOffsets .*latest \(-1\) for t-0 .*batch"),
        ({"endingOffsets": "earliest"}, "endingOffsets .*earliest .*batch"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, r"endingOffsets .*earliest \(-2\) for t-0 .*batch"),
        ({"startingOffsets": "x"}, "startingOffsets: 'x' .*JSON"),
        ({"endingOffsets": "x"}, "endingOffsets: 'x' .*JSON"),
        ({"startingTimestamp": "soon"}, "startingTimestamp: 'soon' is no time"),
        ({"endingTimestamp": "1.5"}, r"endingTimestamp: '1\.5' is no time"),
        ({"startingTimestamp": "-1y"}, "startingTimestamp: '-1y' is no time"),
        ({"startingTimestamp": "2026-11-01T00:00:00"}, "'2026-11-01T00:00:00' .*zone.*2026-11-01T00:00:00Z"),
        ({"startingTimestamp": "1969-12-31T23:59:59.999Z"}, r"'1969-12-31T23:59:59\.999Z' .*1970"),
        ({"startingTimestamp": "2026-13-01T00:00:00Z"}, "'2026-13-01T00:00:00Z' .*2026-11-01T00:00:00Z, 1793491200000"),
        ({"startingOffsets": '{"t":"latest"}'}, "startingOffsets .*latest .*for topic t .*batch"),
        ({"endingOffsets": '{"t":"earliest"}'}, "endingOffsets .*earliest .*for topic t .*batch"),
        ({"startingOffsets": '{"t":"first"}'}, "startingOffsets: .*'first' .*topic 't'"),
        ({"startingOffsets": '{"t":{"0":"earliest"}}'}, "startingOffsets: .*'earliest' .*t-0.*offset"),
        ({"startingOffsets": "group: "}, "startingOffsets: 'group: ' .*empty"),
        ({"endingOffsets": "group:app"}, "endingOffsets: 'group:app' .*JSON"),
        (
            {"startingOffsets": "group:app", "startingOffsetsByGroupStrategy": "none"},
            "startingOffsetsByGroupStrategy: 'none' .*error, earliest, latest",
        ),
        (
            {"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "never"},
            "startingOffsetsByTimestampStrategy: 'never' .*error, latest",
        ),
        (
            {"startingOffsets": '{"t":{"0":1}}', "endingOffsets": '{"t":{"1":1}}'},
            "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET.*t-0, t-1",
        ),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":1}}', "endingOffsetsByTimestamp": '{"t":{"1":1}}'},
            "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET.*t-0, t-1",
        ),
        (
            {"startingOffsets": '{"t":{"0":2}}', "endingOffsets": '{"t":{"0":1}}'},
            "UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET.*t-0",
        ),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":2}}', "endingOffsetsByTimestamp": '{"t":{"0":1}}'},
            "UNRESOLVED_START_TIMESTAMP_GREATER_THAN_END_TIMESTAMP",
        ),
    ],
)
def test_a_batch_query_refuses_impossible_bounds(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        batch(**given)


@pytest.mark.contract("1.5 maps of a batch query")
@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": '{"t":{"0":-2}}', "endingOffsets": '{"t":{"0":-1}}'},
        {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"0":-1}}'},
        {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"0":5}}'},
        {"startingTimestamp": "5", "endingTimestamp": "4"},
        {"startingTimestamp": "-1h", "endingTimestamp": "-2h"},
        {"startingOffsets": '{"t":"earliest"}', "endingOffsets": '{"t":{"0":4}}'},
        {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":"latest"}'},
        {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "endingOffsets": '{"t":{"1":5}}'},
    ],
)
def test_what_can_only_be_compared_later_passes(given: dict[str, str]) -> None:
    batch(**given)


@pytest.mark.parametrize(
    ("given", "position"),
    [
        ({"endingOffsets": '{"t":{"0":9}}'}, AtOffsets({T0: 9})),
        ({"endingOffsetsByTimestamp": '{"t":{"0":9}}'}, AtTimestamps({T0: 9})),
        ({"endingTimestamp": "-1h"}, BeforeNow(3_600_000)),
    ],
)
def test_a_bounded_stream_ends_where_a_batch_query_would(
    given: dict[str, str], position: object, caplog: pytest.LogCaptureFixture
) -> None:
    assert stream(boundedStreaming="true", **given).ending == position
    assert "ignored" not in caplog.text


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"endingOffsets": "latest"},
        {"endingOffsets": '{"t":{"0":-1}}'},
        {"endingOffsets": '{"t":"latest"}'},
        {"endingTimestamp": "-1"},
        {"endingOffsetsByTimestamp": '{"t":{"0":-1}}'},
    ],
)
def test_a_bounded_stream_needs_an_end_that_stays(given: dict[str, str]) -> None:
    assert refusal({**TOPIC, "boundedStreaming": "true", **given}).startswith("option boundedStreaming:")


@pytest.mark.contract("1.2 startingOffsetsByTimestampStrategy")
@pytest.mark.parametrize("streaming", [True, False])
def test_the_strategy_applies_to_either_form_of_timestamp(streaming: bool) -> None:
    for timestamps in ({"startingTimestamp": "1"}, {"startingOffsetsByTimestamp": '{"t":{"0":1}}'}):
        raw = {**TOPIC, **timestamps, "startingOffsetsByTimestampStrategy": "LATEST"}
        assert parse_options(raw, streaming=streaming).timestamp_strategy == "latest"


# Values


@pytest.mark.contract(
    "1.2 failOnDataLoss",
    "1.2 includeHeaders",
    "1.2 minPartitions",
    "1.2 maxRecordsPerPartition",
    "1.2 maxOffsetsPerTrigger",
    "2.50",
    "2.90",
)
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("failOnDataLoss", "yes", "true or false"),
        ("failOnDataLoss", " true", "true or false"),
        ("minPartitions", "1.0", "whole number"),
        ("minPartitions", "0", "at least 1"),
        ("minPartitions", "2147483648", "at most 2147483647"),
        ("maxRecordsPerPartition", "0", "at least 1"),
        ("maxOffsetsPerTrigger", "0", "at least 1"),
        ("maxOffsetsPerTrigger", "-5", "at least 1"),
        ("maxOffsetsPerTrigger", "1k", "whole number"),
        ("minOffsetsPerTrigger", "²", "whole number"),
        ("maxTriggerDelay", "5 weeks", "duration"),
        ("maxTriggerDelay", "5w", "duration"),
        ("fetchOffset.numRetries", "0", "at least 1"),
        ("fetchOffset.retryIntervalMs", "1s", "whole number"),
        ("kafkaConsumer.pollTimeoutMs", "0", "at least 1"),
        ("kafka.isolation.level", "serializable", "read_committed, read_uncommitted"),
        ("kafka.check.crcs", "maybe", "true or false"),
        ("kafka.fetch.remote.enabled", "no", "true or false"),
        ("kafka.fetch.remote.connect.timeout.ms", "0", "at least 1"),
        ("remote.log.locator", "gossip", "auto, broker, metadata-topic, archive, none"),
        ("remote.prefer", "remote", "tiered, local"),
        ("remote.fallback", "retry", "broker, fail"),
        ("remote.split.bytes", "0", "at least 1"),
        ("remote.split.bytes", "1.5g", "size"),
        ("remote.fetch.request.bytes", "512k", "at least 1048576"),
        ("remote.fetch.request.bytes", "65m", "at most 67108864"),
        ("remote.fetch.requests.in.flight", "0", "at least 1"),
        ("remote.fetch.memory.bytes", "4m", "remote.fetch.request.bytes is 8388608"),
        ("remote.storage.uri", "/data/tier", "s3://bucket/prefix"),
        ("remote.storage.uri", "s3:///prefix", "bucket"),
        ("remote.storage.uri", "file://data", "absolute path"),
        ("remote.storage.uri", "", "empty"),
        ("remote.storage.layout", "confluent", "local, aiven"),
        ("remote.storage.s3.endpoint.url", "minio:9000", "URL"),
        ("remote.storage.s3.endpoint.url", "http://minio:port", "URL"),
        ("remote.storage.s3.endpoint.url", "http://[minio", "IPv6"),
        ("remote.signed.location.hosts", "http://minio:9000/bucket", "hosts"),
        ("remote.signed.location.hosts", "minio:0", "URL"),
        ("remote.signed.location.hosts", "minio,", "URL"),
        ("remote.signed.location.hosts", "ftp://minio", "URL"),
        ("remote.topic.id", "t", "topic id"),
        ("remote.topic.id", '{"t":1}', "topic id"),
        ("remote.log.storage.manager.class.name", "com.example.Rsm", f"{LOCAL_PLUGIN} and {AIVEN_PLUGIN}"),
        *(("remote.archive.key.prefixes", text, "none empty") for text in ("", "old/,", ",")),
        *(("startingOffsetsByTimestampStrategy", text, "error, latest") for text in (" latest", "latest ", "")),
        *(
            ("columns", text, "key, value")
            for text in ("", "offset,", "offset,offset", "Offset", "offset value", "rowid")
        ),
        ("kafka.consumer.commit.groupid", " ", "empty"),
    ],
)
def test_a_bad_value_is_refused_by_name_value_and_remedy(name: str, value: str, said: str) -> None:
    message = refusal({**TOPIC, name: value})
    assert message.startswith((f"option {name}: {value!r} ", f"option {name}: {value} ", f"option {name} ("))
    assert said in message


@pytest.mark.contract("1.2 settings that the source decides", "2.16")
@pytest.mark.parametrize("name", NOT_SUPPORTED)
@pytest.mark.parametrize("value", ["earliest", "true", ""])
@pytest.mark.parametrize("streaming", [True, False])
def test_kafka_settings_that_the_source_decides_are_refused_whatever_their_value(
    name: str, value: str, streaming: bool
) -> None:
    message = refusal({**TOPIC, name.upper(): value}, streaming=streaming)
    assert message == f"option {name}: {value!r} is not supported: {NOT_SUPPORTED[name]}"


@pytest.mark.contract("1.2 maxTriggerDelay", "1.2 kafka.isolation.level", "2.90")
@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        *(("maxTriggerDelay", text, "max_trigger_delay_ms", 900_000) for text in ("15m", "15min", "900S", "900000")),
        ("maxTriggerDelay", "250ms", "max_trigger_delay_ms", 250),
        ("maxTriggerDelay", "2h", "max_trigger_delay_ms", 7_200_000),
        ("maxTriggerDelay", "1d", "max_trigger_delay_ms", 86_400_000),
        ("maxTriggerDelay", "-5s", "max_trigger_delay_ms", -5000),
        ("maxTriggerDelay", "1500us", "max_trigger_delay_ms", 1),
        ("maxTriggerDelay", "-500us", "max_trigger_delay_ms", 0),
        ("maxTriggerDelay", f"{2**63 - 1}d", "max_trigger_delay_ms", 2**63 - 1),
        ("remote.split.bytes", "1048576", "split_bytes", 1 << 20),
        ("remote.split.bytes", "64MB", "split_bytes", 64 << 20),
        ("remote.split.bytes", "8m", "split_bytes", 8 << 20),
        ("remote.split.bytes", "1G", "split_bytes", 1 << 30),
        *(("minPartitions", text, "min_partitions", 5) for text in ("+5", "05", "٥", "５", "0" * 30 + "5")),
        ("minOffsetsPerTrigger", "-5", "min_offsets_per_trigger", -5),
        ("fetchOffset.retryIntervalMs", "-1", "fetch_offset_retry_interval_ms", 0),
        ("kafka.isolation.level", "read_committed", "isolation_level", IsolationLevel.READ_COMMITTED),
        ("kafka.isolation.level", "read_uncommitted", "isolation_level", IsolationLevel.READ_UNCOMMITTED),
        ("kafka.group.id", "", "kafka", {"bootstrap.servers": "broker:9092", "group.id": ""}),
        ("kafka.consumer.commit.groupid", " g ", "commit_group_id", "g"),
        ("columns", " offset,value ", "columns", ("offset", "value")),
        ("remote.topic.id", "AAAAAAAAAAAAAAAAAAAAAQ", "topic_ids", {"t": UUID(int=1)}),
        ("remote.topic.id", '{"T":"AAAAAAAAAAAAAAAAAAAAAQ"}', "topic_ids", {"T": UUID(int=1)}),
    ],
)
def test_values_are_read_as_spark_reads_them(name: str, text: str, field: str, value: object) -> None:
    assert getattr(stream(**{name: text}), field) == value


def test_what_is_not_given_has_its_default() -> None:
    options = stream()
    assert (options.storage, options.fetch) == (StorageOptions(has_fallback=True), FetchOptions())
    assert (options.split_bytes, options.columns, options.commit_group_id) == (128 << 20, None, None)
    assert options.isolation_level is IsolationLevel.READ_COMMITTED


@pytest.mark.contract(
    "1.2 endingTimestamp", "1.2 maxOffsetsPerTrigger", "1.2 minOffsetsPerTrigger", "1.2 maxTriggerDelay",
    "1.2 groupIdPrefix", "1.2 kafka.group.id",
)  # fmt: skip
@pytest.mark.parametrize(
    ("streaming", "given", "words"),
    [
        (True, {"startOffset": "x"}, ("startoffset ", "startingOffsets")),
        (True, {"maxOffsetPerTriger": "x"}, ("maxoffsetpertriger ", "maxOffsetsPerTrigger")),
        (True, {"kafka.fetch.remote.enables.it": "x"}, ("enables.it ", "kafka.fetch.remote.enabled")),
        (True, {"ingest.value.format": "json", "ingest.table": "t"}, ("ingest.table, ingest.value.format: no effect",)),
        (True, {"endingTimestamp": "junk"}, ("endingTimestamp", "streaming")),
        (True, {"kafka.group.id": "g", "groupIdPrefix": "p"}, ("kafka.group.id",)),
        (False, {"maxOffsetsPerTrigger": "5"}, ("maxOffsetsPerTrigger", "batch")),
        (False, {"minOffsetsPerTrigger": "5"}, ("minOffsetsPerTrigger", "batch")),
        (False, {"maxTriggerDelay": "5"}, ("maxTriggerDelay", "batch")),
    ],
)
def test_what_has_no_effect_is_ignored_with_a_warning(
    streaming: bool, given: dict[str, str], words: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    options = parse_options({**TOPIC, **given}, streaming=streaming)
    (said,) = caplog.messages
    assert all(word in said for word in words)
    kafka = {name.removeprefix("kafka."): value for name, value in given.items() if name.startswith("kafka.")}
    assert replace(options, kafka={}) == replace(parse_options(TOPIC, streaming=streaming), kafka={})
    assert kafka.items() <= options.kafka.items()


@pytest.mark.contract(
    "1.2 kafka.bootstrap.servers", "1.2 endingOffsets", "1.2 endingOffsetsByTimestamp", "1.2 minOffsetsPerTrigger",
    "2.10", "2.11", "2.15",
)  # fmt: skip
@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"subscribe": "t"}, ("kafka.bootstrap.servers",)),
        ({"subscribe": "t", "kafka.bootstrap.servers": " "}, ("kafka.bootstrap.servers",)),
        ({**TOPIC, "endingOffsets": "latest"}, ("option endingOffsets ", "streaming")),
        ({**TOPIC, "endingOffsetsByTimestamp": "latest"}, ("option endingOffsetsByTimestamp ", "streaming")),
        (
            {**TOPIC, "minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"},
            ("minOffsetsPerTrigger (6)", "maxOffsetsPerTrigger (5)"),
        ),
        ({**TOPIC, "columns": "offset,headers"}, ("option columns ", "includeHeaders")),
        ({**TOPIC, "rsm.config.bucket": "b"}, ("remote.log.storage.manager.class.name",)),
        (
            {**TOPIC, "remote.storage.layout": "local", "remote.log.storage.manager.class.name": AIVEN_PLUGIN},
            ("remote.storage.layout is local", "remote.log.storage.manager.class.name"),
        ),
        ({**TOPIC, "remote.log.locator": "archive"}, ("option remote.log.locator: archive ", "remote.storage.uri")),
        (
            {**TOPIC, "remote.log.locator": "metadata-topic"},
            ("option remote.log.locator: metadata-topic ", "remote.storage.uri"),
        ),
        (
            {**ARCHIVE, "kafka.fetch.remote.enabled": "false"},
            ("option remote.log.locator: archive ", "kafka.fetch.remote.enabled=false"),
        ),
        ({**ARCHIVE, "kafka.consumer.commit.groupid": "g"}, ("option kafka.consumer.commit.groupid ",)),
        ({**TOPIC, "subscribe": "t,u", "remote.topic.id": "AAAAAAAAAAAAAAAAAAAAAQ"}, ("option remote.topic.id:",)),
        (
            {**TOPIC, "remote.storage.layout": "aiven", "rsm.config.storage.s3.bucket.name": "[bucket"},
            ("remote.storage.uri: 's3://[bucket'",),
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused_by_name(raw: dict[str, str], words: tuple[str, ...]) -> None:
    said = refusal(raw)
    assert all(word in said for word in words)


@pytest.mark.contract("1.2 minOffsetsPerTrigger", "2.15")
def test_a_batch_query_checks_trigger_limits_against_each_other_alone() -> None:
    assert batch(minOffsetsPerTrigger="-6", maxOffsetsPerTrigger="-5").max_offsets_per_trigger is None
    raw = {**TOPIC, "minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"}
    assert "minOffsetsPerTrigger (6)" in refusal(raw, streaming=False)


# Tiered storage


def test_storage_is_said_to_have_a_fallback_only_where_a_broker_may_be_read() -> None:
    assert stream().storage.has_fallback
    assert not stream(remote__fallback="fail").storage.has_fallback
    assert not parse_options(ARCHIVE, streaming=True).storage.has_fallback
    assert not parse_storage_options({"remote.storage.uri": "s3://b"}).has_fallback


def test_the_local_plugins_folder_gives_the_uri() -> None:
    pasted = {"remote.log.storage.manager.class.name": LOCAL_PLUGIN, "rsm.config.dir": "/tier/a b"}
    storage = stream(**pasted).storage
    assert (storage.layout, storage.uri) == ("local", "file:///tier/a%20b/kafka-tiered-storage")
    assert storage.rsm_config == {"dir": "/tier/a b"}


def test_the_aiven_plugins_properties_say_bucket_and_access() -> None:
    pasted = {
        "remote.log.storage.manager.class.name": AIVEN_PLUGIN,
        "remote.log.storage.manager.impl.prefix": "Tier.",
        "tier.storage.s3.bucket.name": "bucket",
        "tier.storage.s3.endpoint.url": "http://s3:9000/",
        "tier.storage.s3.region": "eu-north-1",
        "tier.storage.s3.path.style.access.enabled": "true",
        "tier.storage.aws.access.key.id": "ID",
        "tier.storage.aws.secret.access.key": "SECRET",
        "tier.key.prefix": "p/",
        "remote.storage.s3.region": "us-east-1",
    }
    storage = stream(**pasted).storage
    assert (storage.layout, storage.uri, storage.s3_endpoint_url) == ("aiven", "s3://bucket", "http://s3:9000")
    assert (storage.s3_region, storage.s3_path_style) == ("us-east-1", True)
    assert (storage.access_key_id, storage.secret_access_key) == ("ID", "SECRET")
    assert storage.rsm_config["key.prefix"] == "p/"


STRIMZI = {
    "rsm.config.storage.backend.class": "io.aiven.kafka.tieredstorage.storage.s3.S3Storage",
    "rsm.config.chunk.size": "4194304",
    "rsm.config.storage.s3.bucket.name": "bucket",
    "rsm.config.storage.s3.region": "eu-north-1",
    "rsm.config.key.prefix": "p/",
}
"""As in a Kafka resource of Strimzi's: the plugin's class is in a field of its own."""


@pytest.mark.parametrize("locator", ["auto", "metadata-topic"])
@pytest.mark.parametrize("left_out", ["", "rsm.config.storage.backend.class", "rsm.config.chunk.size"])
def test_the_plugins_properties_tell_its_layout_without_its_class(locator: str, left_out: str) -> None:
    pasted = {name: value for name, value in STRIMZI.items() if name != left_out}
    storage = stream(**pasted, **{"remote.log.locator": locator}).storage
    assert (storage.layout, storage.uri, storage.s3_region) == ("aiven", "s3://bucket", "eu-north-1")
    local = stream(**{"rsm.config.dir": "/tier", "rsm.config.delete.on.close": "false"}).storage
    assert (local.layout, local.uri) == ("local", "file:///tier/kafka-tiered-storage")


@pytest.mark.parametrize("named", [{}, {"remote.log.storage.manager.class.name": AIVEN_PLUGIN}])
def test_properties_that_do_not_say_where_the_segments_are_are_refused(named: dict[str, str]) -> None:
    pasted = {name: value for name, value in STRIMZI.items() if "bucket" not in name}
    said = refusal({**TOPIC, **named, **pasted})
    assert "rsm.config.storage.s3.bucket.name" in said and "remote.storage.uri" in said
    assert stream(**pasted, **{"remote.storage.uri": "s3://own"}).storage.uri == "s3://own"


@pytest.mark.parametrize("named", [{}, {"remote.log.storage.manager.class.name": AIVEN_PLUGIN}])
@pytest.mark.parametrize(
    ("backend", "place", "uri"),
    [
        ("s3.S3Storage", "s3.bucket.name", "s3://tier"),
        ("gcs.GcsStorage", "gcs.bucket.name", "gs://tier"),
        ("azure.AzureBlobStorage", "azure.container.name", "az://tier"),
        (None, "gcs.bucket.name", "gs://tier"),
    ],
)
def test_the_properties_of_each_backend_say_where_the_segments_are(
    backend: str | None, place: str, uri: str, named: dict[str, str]
) -> None:
    pasted = {f"rsm.config.storage.{place}": "tier", "rsm.config.chunk.size": "4194304", **named}
    if backend:
        pasted["rsm.config.storage.backend.class"] = f"io.aiven.kafka.tieredstorage.storage.{backend}"
    assert stream(**pasted).storage.uri == uri


def test_a_backend_that_is_not_read_is_refused_and_not_read_through_the_brokers() -> None:
    pasted = {
        "rsm.config.storage.backend.class": "io.aiven.kafka.tieredstorage.storage.oss.OssStorage",
        "rsm.config.storage.oss.bucket.name": "tier",
    }
    assert "rsm.config.storage.backend.class" in refusal({**TOPIC, **pasted})
    assert stream(**pasted, **{"remote.log.locator": "none"}).locator == "none"


PLACEHOLDERS = {
    "rsm.config.storage.aws.secret.access.key": "${strimzienv:AWS_SECRET}",
    "remote.storage.aws.access.key.id": "${secrets:kafka/tier:id}",
    "kafka.sasl.jaas.config": 'x.PlainLoginModule required username="u" password="${file:/etc/p:password}";',
    "kafka.ssl.truststore.password": "a${dir:/etc/p:q}",
}


@pytest.mark.parametrize("name", PLACEHOLDERS)
def test_a_placeholder_that_only_a_broker_fills_in_is_refused(name: str) -> None:
    given = {**STRIMZI, "remote.storage.aws.secret.access.key": "s", name: PLACEHOLDERS[name]}
    provider = PLACEHOLDERS[name].partition("${")[2].partition(":")[0]
    for refused in (partial(parse_options, {**TOPIC, **given}, streaming=True), partial(parse_storage_options, given)):
        with pytest.raises(ConfigurationError) as caught:
            refused()
        assert f"option {name} " in str(caught.value) and f"${{{provider}:…}}" in str(caught.value)
        assert "AWS_SECRET" not in str(caught.value)


def test_what_only_looks_a_little_like_a_placeholder_is_taken() -> None:
    assert stream(**{"kafka.ssl.key.password": "${a} $b:c {d:e} $"}).kafka["ssl.key.password"] == "${a} $b:c {d:e} $"


@pytest.mark.parametrize("locator", ["archive", "metadata-topic"])
def test_a_locator_that_reads_the_storage_itself_may_do_so_by_a_users_own_class(locator: str) -> None:
    own = {"remote.log.locator": locator, "kafka.remote.storage.fetcher.class": "my.Fetcher"}
    assert stream(**own).fetcher_class == "my.Fetcher"


def test_key_prefixes_of_an_archive_are_a_list() -> None:
    storage = parse_options({**ARCHIVE, "remote.archive.key.prefixes": "old/, v1-"}, streaming=True).storage
    assert storage.key_prefixes == ("old/", "v1-")


def test_switching_remote_fetches_off_leaves_the_brokers() -> None:
    assert stream(kafka__fetch__remote__enabled="false", remote__log__locator="broker").locator == "none"


# Secrets


SECRETS = {
    "kafka.sasl.jaas.config": "HUSH-jaas",
    "kafka.ssl.key.password": "HUSH-password",
    "remote.storage.aws.access.key.id": "HUSH-id",
    "remote.storage.aws.secret.access.key": "HUSH-key",
    "remote.storage.aws.session.token": "HUSH-token",
    "rsm.config.storage.aws.secret.access.key": "HUSH-rsm",
    "rsm.config.storage.s3.bucket.name": "bucket",
}


def test_no_secret_is_in_the_repr() -> None:
    assert "HUSH" not in repr(stream(**SECRETS))


def test_options_survive_pickling() -> None:
    options = stream(**SECRETS, startingOffsets='{"t":{"0":1}}', remote__topic__id="AAAAAAAAAAAAAAAAAAAAAQ")
    assert pickle.loads(pickle.dumps(options)) == options


def test_options_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        stream().locator = "none"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("remote.storage.uri", "s3://id:HUSH@bucket/"),
        ("remote.storage.s3.endpoint.url", "https://id:HUSH@s3:9000"),
        ("remote.signed.location.hosts", "https://id:HUSH@s3:9000"),
        ("remote.storage.uri", "s3://id:[HUSH@bucket"),
        ("remote.storage.uri", "id:HUSH@bucket"),
        ("remote.storage.s3.endpoint.url", "https://id:[HUSH@s3:9000"),
        ("remote.storage.s3.endpoint.url", "https://id:HUSH\u2100@s3:9000"),
        ("remote.storage.s3.endpoint.url", "https:/id:HUSH@s3:9000"),
        ("remote.storage.s3.endpoint.url", "https://s3:99999/?signature=HUSH"),
        ("remote.signed.location.hosts", "https://id:[HUSH@s3:9000"),
        ("remote.signed.location.hosts", "https://id:A,HUSH@s3:9000"),
        ("remote.storage.aws.secret.access.key", "   "),
    ],
)
def test_no_secret_is_in_an_error(name: str, value: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(ConfigurationError) as raised:
        stream(**{name: value})
    assert "HUSH" not in f"{raised.value} {raised.value.__cause__} {caplog.text}"
    assert name in str(raised.value)


# The table


def test_every_option_is_declared_once() -> None:
    names = [option.name.lower() for option in OPTIONS]
    assert len(names) == len(set(names))


def test_internal_options_stay_out_of_the_table() -> None:
    assert "remote.metrics.secret.addresses" not in render_option_table()


ADDRESS = ReportAddress("10.0.0.1:4000", bytes(range(16)))


@pytest.mark.parametrize(
    ("given", "addresses"),
    [("", ()), (f",{ADDRESS.to_option()}", (ADDRESS,)), (",", ()), (ADDRESS.to_option(), (ADDRESS,))],
)
def test_a_receiver_that_found_no_free_port_costs_no_query(given: str, addresses: tuple[ReportAddress, ...]) -> None:
    assert stream(remote__metrics__secret__addresses=given).report_addresses == addresses


def test_each_limit_is_an_option_and_goes_to_records_and_storage_alike() -> None:
    names = {field.name: getattr(DEFAULT_LIMITS, field.name).option for field in dataclasses.fields(Limits)}
    assert names.keys() == LIMIT_OPTIONS.keys() and set(names.values()) == {
        each.name for each in LIMIT_OPTIONS.values()
    }
    given = {**TOPIC, **dict.fromkeys(names.values(), "7")}
    options = parse_options(given, streaming=True)
    assert {getattr(options.limits, field).maximum for field in names} == {7}
    assert options.limits is options.storage.limits
    assert parse_options({**given, "remote.max.batch.bytes": "1g"}, streaming=False).limits.batch.maximum == 1 << 30
    with pytest.raises(ConfigurationError, match=r"remote\.max\.batch\.bytes: '2g' .*2147483647"):
        parse_options({**given, "remote.max.batch.bytes": "2g"}, streaming=False)


@pytest.mark.parametrize(("start", "end"), [(None, "0"), ("7", "7"), ("8", "7")])
def test_a_range_of_times_that_holds_nothing_is_refused(start: str | None, end: str) -> None:
    given = {"remote.to.timestamp": end, **({"remote.from.timestamp": start} if start else {})}
    with pytest.raises(ConfigurationError, match=rf"remote\.to\.timestamp: {end} "):
        parse_options({**TOPIC, **given}, streaming=False)


def test_the_columns_that_may_be_named_are_those_of_a_row() -> None:
    assert list(COLUMNS) == SCHEMA_WITH_HEADERS.names == spark_schema(include_headers=True).names


# Before the kind of the query is known


@pytest.mark.parametrize("given", [{"minPartitions": "x"}, {"startingOffsets": "x"}, {"failOnDataLoss": "yes"}])
def test_what_no_query_takes_is_refused_before_its_kind_is_known(
    given: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigurationError, match=f"option {next(iter(given))}"):
        check_for_any_query({**TOPIC, **given, "startOffset": "a slip"})
    assert not caplog.records


@pytest.mark.parametrize(
    "given", [{"startingOffsets": "latest"}, {"endingOffsets": "latest"}, {"endingTimestamp": "x"}]
)
def test_what_one_kind_of_query_takes_passes(given: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    check_for_any_query({**TOPIC, **given, "kafka.group.id": "g", "maxOffsetsPerTrigger": "5"})
    assert not caplog.records
