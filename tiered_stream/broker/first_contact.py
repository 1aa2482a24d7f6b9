"""First contact of a query or a command with its brokers: wrong addresses and wrong protocols are found out soon.

Later calls have more patience, because brokers that have responded before will probably be back.
"""

from __future__ import annotations

import concurrent.futures
import logging
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from tiered_stream.broker.client import PATIENCE_S, BrokerClient, open_client
from tiered_stream.broker.client_properties import BrokerConfig
from tiered_stream.broker.listener_probe import mismatch
from tiered_stream.errors import BrokerAuthorizationError, ConfigurationError
from tiered_stream.options.choices import LocatorName
from tiered_stream.options.given import GivenOptions
from tiered_stream.options.remote_options import LOCATOR
from tiered_stream.options.spark_options import ASSIGN, BOOTSTRAP_SERVERS, FETCH_OFFSET_NUM_RETRIES, SUBSCRIBE
from tiered_stream.options.types import host_and_port

log = logging.getLogger(__name__)

PROBE_AFTER_S = 1.0
"""Seconds without a response after which the listeners are probed."""
_PROBE_S = 2.0
_MAX_PROBED = 10


def meet_brokers(client: BrokerClient, *, advertised: bool = True) -> None:
    """Wait until brokers respond, at the start of a query or a command; do nothing if they have responded before.

    If `advertised` is false, only a bootstrap server has to respond.

    If every address is unknown or refuses connections, give up after `BrokerConfig.start_timeout_ms`. If no broker
    responds within 1 s, or a login is refused, find out what else listens at the bootstrap servers. After 3 s, log a
    warning.

    Raises:
        ConfigurationError: the listeners do not speak Kafka's protocol, or need another `kafka.security.protocol` or
            `kafka.sasl.mechanism`.
        BrokerUnavailableError: nobody responds.
        BrokerAuthorizationError, BrokerError: the login was refused, or the same request would fail again.
    """
    if client.has_met_brokers:
        return
    begin, deadline = time.monotonic(), client.deadline()
    soon = client.deadline(client.config.start_timeout_ms)
    call = client.start(lambda: client.meet(deadline, soon, advertised=advertised))
    if not _is_done(call, PROBE_AFTER_S):
        wrong = wrong_listeners(client.config, min(_PROBE_S, deadline.remaining_ms / 1000))
        if wrong and not call.done():
            deadline.end()
            raise ConfigurationError(wrong)
    if not _is_done(call, PATIENCE_S - (time.monotonic() - begin)):
        servers = f"kafka.bootstrap.servers = {client.config.bootstrap_servers!r}"
        log.warning("still trying to reach %s: %s", servers, client.unanswered(begin) or "no response yet")
    try:
        call.result()
    except BrokerAuthorizationError as error:
        if wrong := wrong_listeners(client.config, _PROBE_S):
            raise ConfigurationError(wrong) from error
        raise


def check_brokers(options: Mapping[str, str], *, topics: bool) -> None:
    """Check the brokers that the source's options name, before Spark is started. Do nothing for an archive.

    If `topics` is true, also check that the topics exist which the options name, unless the user has changed
    `fetchOffset.numRetries` to wait for them.

    Raises: as `meet_brokers`, and ConfigurationError for a malformed option, UnknownTopicError and
        BrokerAuthorizationError for a topic.
    """
    given = GivenOptions(options)
    if given.read(LOCATOR) is LocatorName.ARCHIVE or not given.read(BOOTSTRAP_SERVERS):
        return
    client = open_client(given.with_prefix("kafka."))
    meet_brokers(client)
    named = {*given.read(SUBSCRIBE), *(partition.topic for partition in given.read(ASSIGN))}
    awaits_topics = given.read(FETCH_OFFSET_NUM_RETRIES) != FETCH_OFFSET_NUM_RETRIES.default
    if topics and named and not awaits_topics:
        client.metadata(named)


def wrong_listeners(config: BrokerConfig, seconds: float) -> str:
    """Return what speaks at the bootstrap servers, and the fix, if the settings say otherwise; empty: all is right.

    The result is also empty if one of the bootstrap servers may be right. Servers that cannot be reached do not count.

    Args:
        seconds: time limit for the probes, which run in parallel.
    """
    if seconds <= 0:
        return ""
    servers = config.bootstrap_servers.split(",")[:_MAX_PROBED]
    with ThreadPoolExecutor(len(servers)) as threads:
        protocol, mechanism = config.net["security_protocol"], config.net.get("sasl_mechanism") or ""
        probes = [threads.submit(mismatch, *host_and_port(each), protocol, mechanism, seconds) for each in servers]
        found = [probe.result() for probe in probes]
    reached = {server: text for server, text in zip(servers, found, strict=True) if text is not None}
    return "; ".join(f"{server} {text}" for server, text in reached.items()) if all(reached.values()) else ""


def _is_done(call: Future[None], seconds: float) -> bool:
    return bool(concurrent.futures.wait([call], max(0.0, seconds)).done)
