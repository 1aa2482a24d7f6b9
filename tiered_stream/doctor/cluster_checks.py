"""Checks of the Kafka cluster: bootstrap servers, login, advertised listeners, topics, locator and offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tiered_stream.broker.client import api_versions, open_client, supported_feature
from tiered_stream.broker.client_properties import BrokerConfig
from tiered_stream.broker.cluster_metadata import TopicMetadata, metadata_request
from tiered_stream.broker.list_offsets import BrokerOffsetReader
from tiered_stream.broker.record_fetch import fetch_records
from tiered_stream.broker.topic_configs import topic_configs
from tiered_stream.broker.wire.location_messages import LOCATION_FEATURE, SIGNED_LOCATIONS
from tiered_stream.broker.wire.offset_messages import ListOffsetsRequest
from tiered_stream.doctor.broker_mends import asking_mends, kafka_tool, login_mends
from tiered_stream.doctor.environment import Job
from tiered_stream.doctor.finding import Examination, FaultError, Known, Mends, NotNeededError, Seen, warnings_of_ours
from tiered_stream.doctor.reachability import Unreached, find_unreached
from tiered_stream.errors import (
    BrokerAuthorizationError,
    BrokerUnavailableError,
    ConfigurationError,
    OffsetOutOfRangeError,
    StorageAccessError,
    StorageError,
    UnknownTopicError,
)
from tiered_stream.locate.log_source import LogSource, open_log_source
from tiered_stream.locate.metadata_topic.metadata_log import check_readable
from tiered_stream.locate.metadata_topic.remote_log_metadata import REMOTE_LOG_METADATA_TOPIC
from tiered_stream.model import OffsetRange, PartitionRanges, TopicPartition, listed
from tiered_stream.options.choices import LocatorName
from tiered_stream.options.parsing import Options
from tiered_stream.plan.copy_lag import COPY_LAG_CONFIGS, LAG_MS, CopyLag, copy_lag
from tiered_stream.plan.lookup import assigned

_TIERED = "remote.storage.enable"
_LIST_OFFSETS_OF_3_9 = 9
_SHOWN = 5
_MOST_BROKERS, _AT_ONCE = 1_000, 32
_RESTORE = "restore objects that are missing (from the bucket's versions); name key prefixes that are not read"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Log source and offset ranges, which the later checks of tier and table need."""

    source: Known[LogSource]
    ranges: Known[PartitionRanges]
    """Range from start to end of the log of each partition that the job reads."""


def check_cluster(examination: Examination, job: Known[Job]) -> Cluster:
    kafka = {} if job.value is None else job.value.options.kafka
    check, asking = examination.check, asking_mends(kafka)
    if job.value is not None and job.value.options.locator is LocatorName.ARCHIVE:
        return _check_archive(examination, job)
    bootstrap = check("bootstrap servers", _reach_bootstrap, job)
    login = check("login", lambda job, _: _log_in(job.options), job, bootstrap, mends=login_mends(kafka))
    check("broker version", lambda job, _: _look_at_versions(job.options), job, login)
    advertised = check("advertised listeners", _reach_advertised, job, login)
    topics = check("topics", lambda job, _: _look_at_topics(job.options), job, login, mends=asking)
    check("tiering of the topics", _look_at_tiering, job, topics)
    check("READ on the topics", _probe_topics, job, topics, advertised, mends=asking)
    feature = check("KIP-1248", lambda job, _: _look_at_feature(job.options), job, login)
    check(
        "metadata topic", lambda job, feature, _: _probe_metadata_topic(job.options, feature), job, feature, advertised,
        mends={
            UnknownTopicError: "switch tiered storage on in the brokers (remote.log.storage.system.enable=true); of a "
            "cluster that is gone, read with remote.log.locator=archive",
            BrokerAuthorizationError: "grant READ on the topic __remote_log_metadata, or read through a gateway",
        },
    )  # fmt: skip
    source = check(
        "locator", lambda job, _: _choose_locator(job.options), job, advertised,
        mends={
            ConfigurationError: "correct the setting that the message names",
            BrokerAuthorizationError: "grant what the message names, or do without tiers by remote.log.locator=none",
        },
    )  # fmt: skip
    ranges = check("offsets", _look_at_offsets, job, topics, advertised, mends=asking)
    return Cluster(source, ranges)


def _check_archive(examination: Examination, job: Known[Job]) -> Cluster:
    """Check locator and offsets of an archive, whose topics and offsets come from the storage instead of brokers."""

    def ranges_of(job: Job, source: LogSource) -> Seen[PartitionRanges]:
        with warnings_of_ours() as warned:
            found = assigned(job.options.subscription, source.offset_reader).partitions
            if not found:
                raise FaultError("; ".join(warned) or "no partition is chosen", "correct subscribePattern or assign")
            starts, ends = source.offset_reader.earliest(found), source.offset_reader.latest(found)
        seen = _ranges({each: OffsetRange(starts[each], max(starts[each], ends[each])) for each in found})
        return Seen(seen.value, "; ".join(warned), _RESTORE) if warned else seen

    mends: Mends = {
        ConfigurationError: "correct the setting that the message names",
        UnknownTopicError: "correct subscribe, remote.storage.uri or rsm.config.key.prefix",
        StorageAccessError: "grant s3:GetObject and s3:ListBucket on the bucket; where a key pair is named, give its "
        "private key in rsm.config.encryption.key.pairs.*",
        StorageError: "correct remote.storage.*, or see what the checks of the bucket say",
    }
    examination.check("brokers", _no_brokers, job)
    source = examination.check("locator", lambda job: _choose_locator(job.options), job, mends=mends)
    return Cluster(source, examination.check("offsets", ranges_of, job, source, mends=mends))


def _no_brokers(_: Job) -> Seen[bool]:
    raise NotNeededError("remote.log.locator=archive needs no broker")


def _reach_bootstrap(job: Job) -> Seen[bool]:
    config = BrokerConfig.parse(job.options.kafka)
    servers = config.bootstrap_servers.split(",")
    unreached = {each: fault for each in servers if (fault := _unreached(config, *_host_and_port(each)))}
    found = "; ".join(f"{server}: {fault.why}" for server, fault in unreached.items())
    mend = "; ".join(dict.fromkeys(fault.mend for fault in unreached.values()))
    if len(unreached) == len(servers):
        raise FaultError(found, f"{mend} (kafka.bootstrap.servers)")
    return Seen(True, found or f"{config.bootstrap_servers} answer, {config.security}", mend)


def _host_and_port(server: str) -> tuple[str, int]:
    host, _, port = server.rpartition("://")[2].rpartition(":")
    return host.strip("[]"), int(port)


def _unreached(config: BrokerConfig, host: str, port: int) -> Unreached | None:
    seconds = config.net["socket_connection_setup_timeout_ms"] / 1000
    return find_unreached(host, port, seconds, config.net.get("ssl_context"))


def _log_in(options: Options) -> Seen[Any]:
    """Log in with a Metadata request for no topic, and return the response, which lists the brokers."""
    client = open_client(options.kafka)
    _look_for_login(client.config)
    answer = client.ask_any_broker(lambda: metadata_request(()))
    count = len(answer.brokers)
    found = f"let in, {client.config.security}; cluster {answer.cluster_id}, {count} broker{'s' * (count != 1)}"
    return Seen(answer, found)


def _look_for_login(config: BrokerConfig) -> None:
    """Get the token or credentials before the login, so that their errors are not taken for errors of the brokers.

    Raises:
        FaultError: the token or the credentials cannot be got.
    """
    login = config.held_login
    if login is None:
        return
    try:
        login.renewal().result(config.api_timeout_ms / 1000)
    except TimeoutError as error:
        found = f"{login.origin}: no {login.shows} came in {config.api_timeout_ms} ms"
        raise FaultError(found, f"open the way to the {login.source}") from error
    except BrokerUnavailableError as error:
        raise FaultError(str(error), f"correct that setting, or open the way to the {login.source}") from error
    except ConfigurationError as error:  # an error of the token or credentials, not of TLS to the brokers
        raise FaultError(str(error), "correct what the message names") from error


def _look_at_versions(options: Options) -> Seen[bool]:
    answer = api_versions(open_client(options.kafka))
    newest = next((each.max_version for each in answer.api_keys if each.api_key == ListOffsetsRequest.API_KEY), -1)
    levels = [each for each in answer.finalized_features or () if each.name == "metadata.version"]
    shown = f", metadata.version {levels[0].max_version_level}" if levels else ""
    if newest < _LIST_OFFSETS_OF_3_9:
        return Seen(
            True, f"ListOffsets goes to version {newest}: older than Kafka 3.9", "upgrade the brokers to 3.9 or newer"
        )
    return Seen(True, f"Kafka 3.9 or newer (ListOffsets goes to version {newest}{shown})")


def _reach_advertised(job: Job, answer: Any) -> Seen[bool]:
    config = BrokerConfig.parse(job.options.kafka)
    brokers = answer.brokers[:_MOST_BROKERS]
    with ThreadPoolExecutor(_AT_ONCE) as threads:  # each connection may wait until its timeout
        faults = threads.map(lambda broker: _unreached(config, broker.host, broker.port), brokers)
        unreached = [(broker, fault) for broker, fault in zip(brokers, faults, strict=True) if fault]
    if unreached:
        found = "; ".join(
            f"broker {at.node_id} advertises {at.host}:{at.port}: {fault.why}" for at, fault in unreached[:_SHOWN]
        )
        if all(fault.of_tls for _, fault in unreached):
            raise FaultError(found, "; ".join(dict.fromkeys(fault.mend for _, fault in unreached)))
        raise FaultError(
            found,
            "set the broker's advertised.listeners to an address that this machine reaches (all reading goes there, "
            "not to the bootstrap servers), or open the way to that address",
        )
    return Seen(
        True,
        ", ".join(f"{broker.host}:{broker.port}" for broker in brokers[:_SHOWN])
        + f" answer; brokers: {len(brokers):,}",
    )


def _look_at_topics(options: Options) -> Seen[dict[str, TopicMetadata]]:
    client, subscription = open_client(options.kafka), options.subscription
    found = assigned(subscription, BrokerOffsetReader(client, options.isolation_level)).partitions
    missing = set(subscription.assigned) - found
    if missing:
        raise UnknownTopicError(f"the partitions {listed(missing)} do not exist")
    if not found and subscription.pattern is None:
        raise FaultError("assign names no partition", "name those that the job is to read")
    if not found:
        raise FaultError(f"no topic that the user may see has the pattern {subscription.pattern!r}",
                         "correct subscribePattern, or grant DESCRIBE on the topics")  # fmt: skip
    topics = client.metadata({partition.topic for partition in found})
    leaderless = [each for each in found if topics[each.topic].partitions[each.partition].leader_id < 0]
    if leaderless:
        return Seen(topics, f"no leader: {listed(leaderless)}", "bring back the brokers that hold these partitions")
    return Seen(topics, f"{_some(topics)}; all partitions have a leader: {len(found):,}")


def _some(names: Iterable[str]) -> str:
    names = sorted(names)
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _look_at_tiering(job: Job, topics: Mapping[str, TopicMetadata]) -> Seen[bool]:
    told = topic_configs(open_client(job.options.kafka), topics, (_TIERED, *COPY_LAG_CONFIGS))
    plain = [topic for topic, configs in told.items() if configs.get(_TIERED, "false") != "true"]
    if plain:
        return Seen(
            True,
            f"not tiered, all of it is read through the brokers: {_some(plain)}",
            kafka_tool(
                "kafka-configs",
                job.options.kafka,
                f"--alter --entity-type topics --entity-name NAME --add-config {_TIERED}=true",
            ),
        )
    if len(told) < len(topics):
        raise NotNeededError(
            f"unknown of {_some(topics.keys() - told)}: the user lacks DESCRIBE_CONFIGS, which no job needs"
        )
    lags = {topic: lag for topic, configs in told.items() if (lag := copy_lag(configs)) is not None}
    return _seen_lags(lags, job.options)


def _seen_lags(lags: Mapping[str, CopyLag], options: Options) -> Seen[bool]:
    """Return the finding that all topics are tiered, with the topics whose segments are copied with a delay."""
    shown = [f"{topic}: {lags[topic]}" for topic in sorted(lags)[:_SHOWN]]
    more = [f"and {len(lags) - _SHOWN} more topics"] if len(lags) > _SHOWN else []
    found = "; ".join([f"{_TIERED}=true", *shown, *more])
    if any(lag.is_for_ever for lag in lags.values()):
        alter = f"--alter --entity-type topics --entity-name NAME --add-config {LAG_MS}=0"
        return Seen(True, found, kafka_tool("kafka-configs", options.kafka, alter))
    return Seen(True, found)


def _probe_topics(job: Job, topics: Mapping[str, TopicMetadata], _: bool) -> Seen[bool]:
    """Check the right to READ each topic with a Fetch at the end of one partition, which returns no records.

    Raises:
        BrokerAuthorizationError: the user is not authorized to READ a topic.
    """
    client = open_client(job.options.kafka)
    reader = BrokerOffsetReader(client, job.options.isolation_level)
    refused = {}
    for topic, metadata in topics.items():
        led = [number for number, each in metadata.partitions.items() if each.leader_id >= 0]
        for partition in [TopicPartition(topic, led[0])] if led else ():
            try:
                end = reader.latest([partition])[partition]
                with suppress(OffsetOutOfRangeError):  # only an authorized user gets this error
                    fetch_records(client, partition, end, isolation=job.options.isolation_level, max_bytes=1,
                                  max_wait_ms=0)  # fmt: skip
            except BrokerAuthorizationError as error:
                refused[topic] = error
    if refused:
        first = next(iter(refused.values()))
        raise BrokerAuthorizationError(f"{_some(refused)}: {first}" if len(refused) > 1 else str(first)) from first
    return Seen(True, "a Fetch from each topic is answered")


def _look_at_feature(options: Options) -> Seen[int]:
    version = supported_feature(open_client(options.kafka), LOCATION_FEATURE)
    if not version:
        return Seen(0, "not spoken: these are stock brokers, without a gateway")
    return Seen(
        version, f"{LOCATION_FEATURE} {version}, {'signed' if version >= SIGNED_LOCATIONS else 'not signed'}: a gateway"
    )


def _probe_metadata_topic(options: Options, feature: int) -> Seen[bool]:
    if options.locator is LocatorName.NONE:
        raise NotNeededError("remote.log.locator=none reads everything through the brokers")
    if feature and options.locator is not LocatorName.METADATA_TOPIC:
        raise NotNeededError("the gateway says where segments are")
    check_readable(open_client(options.kafka))
    return Seen(True, f"{REMOTE_LOG_METADATA_TOPIC} exists and may be read")


def _choose_locator(options: Options) -> Seen[LogSource]:
    with warnings_of_ours() as warned:
        source = open_log_source(options)
    asked = f"remote.log.locator={options.locator}"
    if options.locator is LocatorName.ARCHIVE:
        return Seen(source, f"{asked}: topics, offsets and segments come from the storage")
    if source.locator is not None:
        why = {
            "broker": "the brokers or a gateway before them speak KIP-1248",
            "metadata-topic": f"nobody speaks KIP-1248, and {REMOTE_LOG_METADATA_TOPIC} can be read",
        }
        told = why.get(source.locator.name, "") if options.locator is LocatorName.AUTO else "as asked for"
        return Seen(source, f"{asked} takes {source.locator.name}: {told}")
    if options.locator is LocatorName.NONE:
        return Seen(source, f"{asked}: everything is read through the brokers, as asked for")
    mend = f"grant READ on {REMOTE_LOG_METADATA_TOPIC}, or read through a gateway"
    if options.storage.uri is None and options.fetcher_class is None:
        mend = "set remote.storage.uri, or read through a gateway that signs locations"
    return Seen(source, f"{asked} takes none: {'; '.join(warned)}", mend)


def _look_at_offsets(job: Job, topics: Mapping[str, TopicMetadata], _: bool) -> Seen[PartitionRanges]:
    client, options = open_client(job.options.kafka), job.options
    wanted = [
        TopicPartition(topic, number)
        for topic, metadata in topics.items()
        for number, each in metadata.partitions.items()
        if each.leader_id >= 0
        and (not options.subscription.assigned or TopicPartition(topic, number) in options.subscription.assigned)
    ]
    reader = BrokerOffsetReader(client, options.isolation_level)
    starts, ends = reader.earliest(wanted), reader.latest(wanted)
    return _ranges({each: OffsetRange(starts[each], max(starts[each], ends[each])) for each in wanted})


def _ranges(ranges: PartitionRanges) -> Seen[PartitionRanges]:
    total = sum(len(each) for each in ranges.values())
    return Seen(ranges, f"{total:,} offsets; partitions: {len(ranges):,}")
