"""Checks of the Kafka cluster or the archive: addresses, login, listeners, topics, locator and offsets."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tiered_stream import errors
from tiered_stream.broker.broker_check import meet_brokers, mismatch
from tiered_stream.broker.client import api_versions, open_client, supported_feature
from tiered_stream.broker.client_properties import BrokerConfig
from tiered_stream.broker.cluster_metadata import TopicMetadata, metadata_request
from tiered_stream.broker.kafka_errors import certificate_fix
from tiered_stream.broker.list_offsets import BrokerOffsetReader, ListOffsetsRequest, topic_configs
from tiered_stream.broker.offset_reader import OffsetReader
from tiered_stream.broker.record_fetch import check_authorized_to_read
from tiered_stream.broker.wire.location_messages import LOCATION_FEATURE, SIGNED_LOCATIONS
from tiered_stream.doctor.broker_fixes import kafka_tool, login_fixes, request_fixes
from tiered_stream.doctor.environment import Job
from tiered_stream.doctor.finding import (
    Examination,
    FaultError,
    Fixes,
    Known,
    NotNeededError,
    Result,
    collected_warnings,
)
from tiered_stream.errors import some_of
from tiered_stream.locate.log_source import LogSource, open_log_source
from tiered_stream.locate.metadata_topic.metadata_log import check_readable
from tiered_stream.locate.metadata_topic.remote_log_metadata import REMOTE_LOG_METADATA_TOPIC
from tiered_stream.model import PartitionRanges, TopicPartition, listed
from tiered_stream.options.choices import LocatorName
from tiered_stream.options.offset_ranges import ranges_between
from tiered_stream.options.parsing import Options
from tiered_stream.options.types import host_and_port
from tiered_stream.plan.offset_lookup import assigned, check_chosen
from tiered_stream.plan.tiering_delay import COPY_LAG_CONFIGS, LAG_MS, copy_lag

_OPEN_THE_WAY = "open the network path: security group, firewall or route"
_SPEAK_TLS = "check that the address speaks TLS (for brokers: kafka.security.protocol), and which versions"
_TIERED = "remote.storage.enable"
_DISKLESS = "diskless.enable"
"""Topic setting of brokers with diskless topics, such as Aiven's Inkless (KIP-1150)."""
_LIST_OFFSETS_OF_3_9 = 9
_SHOWN = 5
_MAX_BROKERS, _AT_ONCE = 1_000, 32
_METADATA_TOPIC_FIXES: Fixes = {
    errors.UnknownTopicError: "switch tiered storage on in the brokers (remote.log.storage.system.enable=true); if the "
    "cluster is gone, read its bucket with remote.log.locator=archive",
    errors.BrokerAuthorizationError: "grant READ on the topic __remote_log_metadata, or read through a gateway",
}
_ARCHIVE_FIXES: Fixes = {
    errors.UnknownTopicError: "correct subscribe, remote.storage.uri or rsm.config.key.prefix",
}
_RESTORE = "restore objects that are missing (from the bucket's versions); name key prefixes that are not read"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Values that later checks need: the job's log source (brokers or archive), and the offsets of its partitions."""

    source: Known[LogSource]
    ranges: Known[PartitionRanges]
    """Range from the start to the end of the log, for each partition that the job reads."""


def check_cluster(examination: Examination, job: Known[Job]) -> Cluster:
    """Run all checks of the brokers, or of the archive if the job reads a bucket without its Kafka cluster.

    Return values that later checks need.
    """
    kafka = {} if job.value is None else job.value.options.kafka
    check, asking = examination.check, request_fixes(kafka)
    if job.value is not None and job.value.options.locator is LocatorName.ARCHIVE:
        return _check_archive(examination, job)
    bootstrap = check("bootstrap servers", _reach_bootstrap, job)
    login = check("login", lambda job, _: _log_in(job.options), job, bootstrap, fixes=login_fixes(kafka))
    check("broker version", lambda job, _: _check_versions(job.options), job, login)
    advertised = check("advertised listeners", _reach_advertised, job, login)
    topics = check("topics", lambda job, _: _check_topics(job.options), job, login, fixes=asking)
    check("tiering of the topics", _check_tiering, job, topics)
    check("READ on the topics", _check_read, job, topics, advertised, fixes=asking)
    feature = check("KIP-1248", lambda job, _: _check_feature(job.options), job, login)
    check("metadata topic", _check_metadata_topic, job, feature, advertised, fixes=_METADATA_TOPIC_FIXES)
    source = check("locator", lambda job, _: _choose_locator(job.options), job, advertised)
    ranges = check("offsets", _check_offsets, job, topics, advertised, fixes=asking)
    return Cluster(source, ranges)


def _check_archive(examination: Examination, job: Known[Job]) -> Cluster:
    """Check the locator and the offsets of an archive, and report that the checks of brokers are skipped.

    An archive is a bucket that is read without its Kafka cluster.
    """

    def check_offsets(job: Job, source: LogSource) -> Result[PartitionRanges]:
        with collected_warnings() as warned:
            partitions = assigned(job.options.subscription, source.offset_reader).partitions
            if not partitions:
                raise FaultError("; ".join(warned) or "no partition is chosen", "correct subscribePattern or assign")
            result = _ranges(source.offset_reader, partitions)
        return Result(result.value, "; ".join(warned), _RESTORE) if warned else result

    examination.skip("brokers", "remote.log.locator=archive needs no broker")
    source = examination.check("locator", lambda job: _choose_locator(job.options), job, fixes=_ARCHIVE_FIXES)
    return Cluster(source, examination.check("offsets", check_offsets, job, source, fixes=_ARCHIVE_FIXES))


def _reach_bootstrap(job: Job) -> Result[bool]:
    """Check that the bootstrap servers can be reached. If only some of them can be reached, the result is a warning."""
    config = BrokerConfig.parse(job.options.kafka)
    servers = config.bootstrap_servers.split(",")
    unreached = {server: fault for server in servers if (fault := _unreached(config, *host_and_port(server)))}
    description = "; ".join(f"{server}: {fault.reason}" for server, fault in unreached.items())
    fix = "; ".join(dict.fromkeys(fault.fix for fault in unreached.values()))
    if len(unreached) == len(servers):
        raise FaultError(description, f"{fix} (kafka.bootstrap.servers)")
    return Result(True, description or f"{config.bootstrap_servers} respond, {config.security}", fix)


@dataclass(frozen=True, slots=True)
class Unreached:
    """Reason why an address is not reachable, with advice (`fix`).

    `is_tls` is True if the TCP connection works, but TLS fails.
    """

    reason: str
    fix: str
    is_tls: bool = False


def find_unreached(host: str, port: int, timeout_s: float, context: ssl.SSLContext | None) -> Unreached | None:
    """Connect to `host:port`, with TLS if `context` is given, and close the connection.

    Return why the connection fails, or None if it succeeds.

    Args:
        timeout_s: maximum wait in seconds for the TCP connection, and for each message of the TLS handshake.
    """
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            if context is not None:
                context.wrap_socket(connection, server_hostname=host).close()
    except (socket.gaierror, UnicodeError) as error:
        return Unreached(
            f"the name {host} is not known here ({getattr(error, 'strerror', None) or error})",
            "correct the name, or this machine's DNS",
        )
    except ssl.SSLError as error:
        return _of_tls(error)
    except TimeoutError:
        return Unreached(f"no response within {timeout_s:.0f} s", _OPEN_THE_WAY)
    except ConnectionRefusedError:
        return Unreached("nobody listens there (connection refused)", "correct the port, or start the server")
    except (OSError, OverflowError) as error:
        return Unreached(getattr(error, "strerror", None) or type(error).__name__, _OPEN_THE_WAY)
    return None


def _of_tls(error: ssl.SSLError) -> Unreached:
    reason = getattr(error, "verify_message", None) or error.reason or type(error).__name__
    return Unreached(f"TLS failed: {reason}", certificate_fix(error) or _SPEAK_TLS, is_tls=True)


def _unreached(config: BrokerConfig, host: str, port: int) -> Unreached | None:
    seconds = config.net["socket_connection_setup_timeout_ms"] / 1000
    unreached = find_unreached(host, port, seconds, config.net.get("ssl_context"))
    if unreached is not None and unreached.is_tls and (found := mismatch(host, port, config.net["security_protocol"])):
        reason, _, fix = found.rpartition(": ")
        return Unreached(reason, fix, is_tls=True)
    return unreached


def _log_in(options: Options) -> Result[Any]:
    """Log in to a broker and send a Metadata request without topics.

    The result's value is the response, which lists the brokers.
    """
    client = open_client(options.kafka)
    _renew_login(client.config)
    meet_brokers(client, advertised=False)  # a check of their own looks at the advertised addresses
    response = client.ask_any_broker(lambda: metadata_request(()))
    count = len(response.brokers)
    brokers = f"{count} broker{'s' * (count != 1)}"
    description = f"accepted, {client.config.security}; cluster {response.cluster_id}, {brokers}"
    return Result(response, description)


def _renew_login(config: BrokerConfig) -> None:
    """Get the login's token or credentials before the login, so that a failure is not reported as the brokers' error.

    Do nothing if the login mechanism has no token or credentials to renew.

    Raises:
        FaultError: the token or the credentials cannot be obtained.
    """
    login = config.renewed_login
    if login is None:
        return
    try:
        login.renewal().result(config.api_timeout_ms / 1000)
    except TimeoutError as error:
        description = f"{login.origin}: no {login.kind} came within {config.api_timeout_ms} ms"
        raise FaultError(description, f"open the network path to the {login.source}") from error
    except errors.BrokerUnavailableError as error:
        raise FaultError(str(error), f"correct that setting, or open the network path to the {login.source}") from error
    except errors.ConfigurationError as error:  # about the token or the credentials, not about TLS to the brokers
        raise FaultError(str(error), "correct what the message names") from error


def _check_versions(options: Options) -> Result[bool]:
    response = api_versions(open_client(options.kafka))
    newest = next((api.max_version for api in response.api_keys if api.api_key == ListOffsetsRequest.API_KEY), -1)
    levels = [api for api in response.finalized_features or () if api.name == "metadata.version"]
    shown = f", metadata.version {levels[0].max_version_level}" if levels else ""
    if newest < _LIST_OFFSETS_OF_3_9:
        return Result(
            True, f"ListOffsets goes to version {newest}: older than Kafka 3.9", "upgrade the brokers to 3.9 or newer"
        )
    return Result(True, f"Kafka 3.9 or newer (ListOffsets goes to version {newest}{shown})")


def _reach_advertised(job: Job, response: Any) -> Result[bool]:
    """Check that the brokers in the Metadata response `response` can be reached at their advertised addresses.

    At most the first 1,000 brokers are checked.

    Raises:
        FaultError: a broker cannot be reached.
    """
    config = BrokerConfig.parse(job.options.kafka)
    brokers = response.brokers[:_MAX_BROKERS]
    with ThreadPoolExecutor(_AT_ONCE) as threads:  # in parallel, because each connection may last until its timeout
        faults = threads.map(lambda broker: _unreached(config, broker.host, broker.port), brokers)
        unreached = [(broker, fault) for broker, fault in zip(brokers, faults, strict=True) if fault]
    if unreached:
        description = "; ".join(
            f"broker {broker.node_id} advertises {broker.host}:{broker.port}: {fault.reason}"
            for broker, fault in unreached[:_SHOWN]
        )
        if all(fault.is_tls for _, fault in unreached):
            raise FaultError(description, "; ".join(dict.fromkeys(fault.fix for _, fault in unreached)))
        raise FaultError(
            description,
            "set the broker's advertised.listeners to an address that this machine reaches (all reading goes there, "
            "not to the bootstrap servers), or open the network path to that address",
        )
    shown = ", ".join(f"{broker.host}:{broker.port}" for broker in brokers[:_SHOWN])
    return Result(True, f"{shown} respond; brokers: {len(brokers):,}")


def _check_topics(options: Options) -> Result[dict[str, TopicMetadata]]:
    client, subscription = open_client(options.kafka), options.subscription
    partitions = assigned(subscription, BrokerOffsetReader(client, options.isolation_level)).partitions
    check_chosen(subscription, partitions)
    topics = client.metadata({partition.topic for partition in partitions})
    leaderless = partitions - set(_with_leader(topics))
    if leaderless:
        return Result(topics, f"no leader: {listed(leaderless)}", "restart the brokers that have these partitions")
    return Result(topics, f"{some_of(sorted(topics))}; all partitions have a leader: {len(partitions):,}")


def _check_tiering(job: Job, topics: Mapping[str, TopicMetadata]) -> Result[bool]:
    """Check that all topics are tiered (`remote.storage.enable=true`), and describe which segments are copied late.

    The result is a warning if a topic is not tiered, is diskless (KIP-1150), or has segments that are never copied.

    Raises:
        NotNeededError: the user is not authorized to read the settings of a topic.
    """
    names = (_TIERED, _DISKLESS, *COPY_LAG_CONFIGS)
    topic_settings = topic_configs(open_client(job.options.kafka), topics, names)
    if diskless := [topic for topic, configs in topic_settings.items() if configs.get(_DISKLESS) == "true"]:
        return _diskless_result(diskless, topic_settings)
    not_tiered = [topic for topic, configs in topic_settings.items() if configs.get(_TIERED, "false") != "true"]
    if not_tiered:
        description = f"not tiered, so the brokers send every record: {some_of(sorted(not_tiered))}"
        return Result(True, description, _set_config(job.options, f"{_TIERED}=true"))
    if len(topic_settings) < len(topics):
        raise NotNeededError(
            f"unknown for {some_of(sorted(topics.keys() - topic_settings))}: the user lacks DESCRIBE_CONFIGS, "
            "which no job needs"
        )
    lags = {topic: lag for topic, configs in topic_settings.items() if (lag := copy_lag(configs)) is not None}
    delays = some_of(sorted(f"{topic}: {lag}" for topic, lag in lags.items()))
    description = f"{_TIERED}=true" + (f"; {delays}" if delays else "")
    waits = any(lag.is_unbounded for lag in lags.values())
    return Result(True, description, _set_config(job.options, f"{LAG_MS}=0") if waits else "")


def _diskless_result(topics: Collection[str], topic_settings: Mapping[str, Mapping[str, str]]) -> Result[bool]:
    """Return the warning for the diskless topics `topics`. If some have no tiered segments, it names only these topics.

    If a diskless topic has `remote.storage.enable=true`, brokers turn its records into segments, and tier the segments.
    Other diskless topics have no segments.
    """
    plain = [topic for topic in topics if topic_settings[topic].get(_TIERED) != "true"]
    if plain:
        return Result(
            True,
            f"{_DISKLESS}=true without {_TIERED}=true, so the brokers send every record: {some_of(sorted(plain))}",
            "read these topics with Spark's kafka source, or let the brokers consolidate them into tiered segments",
        )
    return Result(
        True,
        f"{_DISKLESS}=true, which was never tried: {some_of(sorted(topics))}",
        "compare what a query reads with the brokers' records, by `tiered-stream verify --storage`",
    )


def _set_config(options: Options, config: str) -> str:
    """Return the command line by which the user can set `config` of a topic, such as `remote.storage.enable=true`."""
    arguments = f"--alter --entity-type topics --entity-name NAME --add-config {config}"
    return kafka_tool("kafka-configs", options.kafka, arguments)


def _check_read(job: Job, topics: Mapping[str, TopicMetadata], _: bool) -> Result[bool]:
    """Check that the user is authorized to READ each topic, by a Fetch from one partition of each topic."""
    client = open_client(job.options.kafka)
    refused = {}
    for topic, partition in {partition.topic: partition for partition in reversed(_with_leader(topics))}.items():
        try:
            check_authorized_to_read(client, partition, job.options.isolation_level)
        except errors.BrokerAuthorizationError as error:
            refused[topic] = error
    if refused:
        first = next(iter(refused.values()))
        raise errors.BrokerAuthorizationError(
            f"{some_of(sorted(refused))}: {first}" if len(refused) > 1 else str(first)
        ) from first
    return Result(True, "the brokers respond to a Fetch from each topic")


def _check_feature(options: Options) -> Result[int]:
    version = supported_feature(open_client(options.kafka), LOCATION_FEATURE)
    if not version:
        return Result(0, "not supported: these are stock brokers without a gateway")
    signed = "signed" if version >= SIGNED_LOCATIONS else "not signed"
    return Result(version, f"{LOCATION_FEATURE} {version}, {signed}: a gateway")


def _check_metadata_topic(job: Job, feature: int, _: bool) -> Result[bool]:
    if job.options.locator is LocatorName.NONE:
        raise NotNeededError("remote.log.locator=none reads everything through the brokers")
    if feature and job.options.locator is not LocatorName.METADATA_TOPIC:
        raise NotNeededError("the gateway says where segments are")
    check_readable(open_client(job.options.kafka))
    return Result(True, f"{REMOTE_LOG_METADATA_TOPIC} exists and may be read")


def _choose_locator(options: Options) -> Result[LogSource]:
    """Open the log source as a query does. The result's description says which locator is chosen, and why.

    A locator finds the tiered segments. The result's value is the log source.
    """
    with collected_warnings() as warned:
        source = open_log_source(options)
    setting = f"remote.log.locator={options.locator}"
    if options.locator is LocatorName.ARCHIVE:
        return Result(source, f"{setting}: topics, offsets and segments come from the storage")
    if source.locator is not None:
        reasons = {
            "broker": "the brokers, or a gateway in front of them, support KIP-1248",
            "metadata-topic": f"no broker supports KIP-1248, and {REMOTE_LOG_METADATA_TOPIC} can be read",
        }
        reason = reasons.get(source.locator.name, "") if options.locator is LocatorName.AUTO else "as configured"
        return Result(source, f"{setting} chooses {source.locator.name}: {reason}")
    if options.locator is LocatorName.NONE:
        return Result(source, f"{setting}: the brokers send every record, as configured")
    fix = f"grant READ on {REMOTE_LOG_METADATA_TOPIC}, or read through a gateway"
    if options.storage.uri is None and options.fetcher_class is None:
        fix = "set remote.storage.uri, or read through a gateway that signs locations"
    return Result(source, f"{setting} chooses none: {'; '.join(warned)}", fix)


def _check_offsets(job: Job, topics: Mapping[str, TopicMetadata], _: bool) -> Result[PartitionRanges]:
    reader = BrokerOffsetReader(open_client(job.options.kafka), job.options.isolation_level)
    chosen = job.options.subscription.assigned
    return _ranges(reader, [partition for partition in _with_leader(topics) if not chosen or partition in chosen])


def _with_leader(topics: Mapping[str, TopicMetadata]) -> list[TopicPartition]:
    """Return the topics' partitions that have a leader."""
    return [
        TopicPartition(topic, number)
        for topic, metadata in topics.items()
        for number, partition in metadata.partitions.items()
        if partition.leader_id >= 0
    ]


def _ranges(reader: OffsetReader, partitions: Collection[TopicPartition]) -> Result[PartitionRanges]:
    ranges = ranges_between(reader.earliest(partitions), reader.latest(partitions))
    total = sum(len(offsets) for offsets in ranges.values())
    return Result(ranges, f"{total:,} offsets; partitions: {len(ranges):,}")
