"""All properties of Kafka's Java consumer and admin client (4.3): honoured, without effect, or refused.

Names, defaults, bounds and meanings are those of Kafka's `ConsumerConfig`, `AdminClientConfig`, `SaslConfigs` and
`SslConfigs`. Honoured properties are options, in which the source's own options have part.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import Any

from tiered_stream.errors import ConfigurationError
from tiered_stream.options import spark_options, types
from tiered_stream.options.known_properties import KnownProperty, Use, properties_of
from tiered_stream.options.spark_options import NOT_SUPPORTED
from tiered_stream.options.types import INT_MAX, LONG_MIN, Option, declared_in, option
from tiered_stream.options.unknown_names import is_slip, nearest_name

_log = logging.getLogger(__name__)

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "AWS_MSK_IAM", "OAUTHBEARER")


class DnsLookup(StrEnum):
    """`client.dns.lookup`: the addresses of a host name that are tried."""

    ALL = "use_all_dns_ips"
    CANONICAL = "resolve_canonical_bootstrap_servers_only"


def _milliseconds(minimum: int) -> Callable[[str], int]:
    """Return a parser of milliseconds. Kafka takes 64 bits; the parser returns at most `INT_MAX` (24 days)."""
    parse = types.integer(minimum)
    return lambda value: min(INT_MAX, parse(value))


_INT, _POSITIVE_INT, _BUFFER_SIZE = (types.integer(minimum, INT_MAX) for minimum in (0, 1, -1))
_MILLISECONDS = _milliseconds(0)

CLIENT_DNS_LOOKUP = option(
    "kafka.client.dns.lookup", types.word(DnsLookup, any_case=False), "use_all_dns_ips",
    "Which addresses of a name are tried; or `resolve_canonical_bootstrap_servers_only`.",
)  # fmt: skip
CLIENT_ID = option("kafka.client.id", str, "tiered-stream", "What the brokers' logs and quotas call this client.")
CONNECTIONS_MAX_IDLE_MS = option(
    "kafka.connections.max.idle.ms", _milliseconds(LONG_MIN), "540000",
    "Close a connection that was idle for so long; -1: never.",
)  # fmt: skip
DEFAULT_API_TIMEOUT_MS = option(
    "kafka.default.api.timeout.ms", _INT, "60000", "How long a call may take with all its attempts."
)
FETCH_MAX_BYTES = option(
    "kafka.fetch.max.bytes", _INT, "52428800", "The most that a Fetch asks for; the smaller of this and the next holds."
)
MAX_PARTITION_FETCH_BYTES = option(
    "kafka.max.partition.fetch.bytes", _INT, "16777216",
    "The same for one partition. Kafka's 1 MiB is made for many in one Fetch; here each asks for one.",
)  # fmt: skip
FETCH_MAX_WAIT_MS = option("kafka.fetch.max.wait.ms", _INT, "500", "How long a broker may wait for `fetch.min.bytes`.")
FETCH_MIN_BYTES = option("kafka.fetch.min.bytes", _INT, "1", "What a broker waits for.")
METADATA_MAX_AGE_MS = option(
    "kafka.metadata.max.age.ms", _MILLISECONDS, "300000", "Ask anew who leads a partition after so long."
)
RECEIVE_BUFFER_BYTES = option(
    "kafka.receive.buffer.bytes", _BUFFER_SIZE, "-1",
    "The socket's receive buffer. -1: the system's choice; Kafka's default is 64 KiB.",
)  # fmt: skip
SEND_BUFFER_BYTES = option(
    "kafka.send.buffer.bytes", _BUFFER_SIZE, "-1",
    "The socket's send buffer. -1: the system's choice; Kafka's default is 128 KiB.",
)  # fmt: skip
RECONNECT_BACKOFF_MS = option(
    "kafka.reconnect.backoff.ms", _MILLISECONDS, "50", "Wait before connecting again, doubled with each failure."
)
RECONNECT_BACKOFF_MAX_MS = option(
    "kafka.reconnect.backoff.max.ms", _MILLISECONDS, "1000", "The longest of these waits."
)
REQUEST_TIMEOUT_MS = option("kafka.request.timeout.ms", _INT, "30000", "How long one request may take.")
RETRY_BACKOFF_MS = option(
    "kafka.retry.backoff.ms", _MILLISECONDS, "100", "Wait before asking again, doubled with each failure."
)
RETRY_BACKOFF_MAX_MS = option("kafka.retry.backoff.max.ms", _MILLISECONDS, "1000", "The longest of these waits.")
SETUP_TIMEOUT_MS = option(
    "kafka.socket.connection.setup.timeout.ms", _MILLISECONDS, "10000",
    "How long connecting may take, TLS and login included.",
)  # fmt: skip
SETUP_TIMEOUT_MAX_MS = option(
    "kafka.socket.connection.setup.timeout.max.ms", _MILLISECONDS, "30000",
    "The same after failures, when it is doubled.",
)  # fmt: skip
SECURITY_PROTOCOL = option(
    "kafka.security.protocol", types.one_of(*PROTOCOLS), "PLAINTEXT",
    "`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`.",
)  # fmt: skip
SASL_MECHANISM = option(
    "kafka.sasl.mechanism", types.one_of(*MECHANISMS), "GSSAPI",
    "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER`, `AWS_MSK_IAM`, or `GSSAPI`, which needs the package "
    "`gssapi`.",
)  # fmt: skip
HEADER_URLENCODE = option(
    "kafka.sasl.oauthbearer.header.urlencode", types.boolean, "false",
    "Encode id and secret for the `Authorization` header (RFC 6749, 2.3.1).",
)  # fmt: skip
LOGIN_CONNECT_TIMEOUT_MS = option(
    "kafka.sasl.login.connect.timeout.ms", _POSITIVE_INT, "10000", "How long connecting to the token endpoint may take."
)
LOGIN_READ_TIMEOUT_MS = option(
    "kafka.sasl.login.read.timeout.ms", _POSITIVE_INT, "10000", "How long its answer may take."
)
LOGIN_RETRY_BACKOFF_MS = option(
    "kafka.sasl.login.retry.backoff.ms", _POSITIVE_INT, "100", "Wait before asking it again, doubled with each failure."
)
LOGIN_RETRY_BACKOFF_MAX_MS = option(
    "kafka.sasl.login.retry.backoff.max.ms", _INT, "10000", "For how long it is asked again."
)
LOGIN_REFRESH_WINDOW_FACTOR = option(
    "kafka.sasl.login.refresh.window.factor", types.fraction(0.5, 1.0), "0.8",
    "The part of a token's life after which a new one is asked for.",
)  # fmt: skip
LOGIN_REFRESH_WINDOW_JITTER = option(
    "kafka.sasl.login.refresh.window.jitter", types.fraction(0.0, 0.25), "0.05",
    "At most so much is added to it, by chance.",
)  # fmt: skip
LOGIN_REFRESH_MIN_PERIOD_SECONDS = option(
    "kafka.sasl.login.refresh.min.period.seconds", types.integer(0, 900), "60", "But not sooner than after this,"
)
LOGIN_REFRESH_BUFFER_SECONDS = option(
    "kafka.sasl.login.refresh.buffer.seconds", types.integer(0, 3600), "300",
    "nor later than this before its end; where a life is long enough.",
)  # fmt: skip
SSL_ENABLED_PROTOCOLS = option(
    "kafka.ssl.enabled.protocols", str, "TLSv1.2,TLSv1.3", "The versions of TLS; none older."
)
SSL_PROTOCOL = option(
    "kafka.ssl.protocol", types.one_of("TLS", "TLSv1.2", "TLSv1.3"), "TLSv1.3",
    "`TLS`, `TLSv1.2` or `TLSv1.3`; `ssl.enabled.protocols` says which are spoken.",
)  # fmt: skip
ENDPOINT_IDENTIFICATION = option(
    "kafka.ssl.endpoint.identification.algorithm", types.one_of("https", ""), "https",
    "The broker's certificate must be for its host name; empty: for any.",
)  # fmt: skip
SSL_KEYSTORE_TYPE: Option[str] = Option(
    "kafka.ssl.keystore.type", str, "", "JKS",
    "`PEM`, `PKCS12` or `JKS`. As in Java, `JKS` and `PKCS12` stand for each other; PEM is known without it.",
)  # fmt: skip
SSL_TRUSTSTORE_TYPE: Option[str] = Option("kafka.ssl.truststore.type", str, "", "JKS", "As `ssl.keystore.type`.")
_TEXTS = {
    "client.rack": "Fetch from a replica in this rack, where the brokers name one (KIP-392).",
    "sasl.jaas.config": "The login module with its options, as for Java. A JVM's JAAS file is not read.",
    "sasl.client.callback.handler.class":
    "Java cannot be run here: only `IAMClientCallbackHandler` (AWS_MSK_IAM), for which ours stands in.",
    "sasl.login.callback.handler.class":
    "Java cannot be run here: only Kafka's own `OAuthBearerLoginCallbackHandler`, for which ours stands in. In place "
    "of others set `sasl.oauthbearer.token.provider`.",
    "sasl.kerberos.service.name": "The brokers' service name (GSSAPI).",
    "sasl.oauthbearer.token.endpoint.url":
    "Where tokens come from: an `http(s)` endpoint with the grant of client credentials, or a `file:` that holds one.",
    "sasl.oauthbearer.client.credentials.client.id": "The client's id; goes before `clientId` in `sasl.jaas.config`.",
    "sasl.oauthbearer.client.credentials.client.secret":
    "Its secret; goes before `clientSecret` in `sasl.jaas.config`.",
    "sasl.oauthbearer.scope": "The scope to ask for; goes before `scope` in `sasl.jaas.config`.",
    "sasl.oauthbearer.jwt.retriever.class":
    "Java cannot be run here: only `DefaultJwtRetriever`, `ClientCredentialsJwtRetriever` and `FileJwtRetriever`, for "
    "which ours stands in.",
    "sasl.oauthbearer.token.provider":
    "Ours, in place of a Java callback handler: `my_module.my_callable`, a Python function without parameters that "
    "returns a token, or a token and when it expires in seconds since the epoch. Executors must be able to import it.",
    "ssl.cipher.suites": "The cipher suites, by Java's names. Those of TLS 1.3 go all three together.",
    "ssl.keystore.location": "The file with the private key and its certificate chain, on every executor.",
    "ssl.keystore.password": "The password of a JKS or PKCS12 key store.",
    "ssl.key.password": "The private key's password; of a JKS or PKCS12 store, its password unless given.",
    "ssl.keystore.key": "The private key itself, in PEM.",
    "ssl.keystore.certificate.chain": "Its certificate chain, in PEM.",
    "ssl.truststore.location": "The file with the certificates to trust. Without one, those that the system trusts.",
    "ssl.truststore.password":
    "The password of a JKS or PKCS12 trust store. As in Java, a JKS store is not checked without it.",
    "ssl.truststore.certificates": "The certificates themselves, in PEM.",
}  # fmt: skip
_NO_EFFECT = {
    "no consumer group is joined": """
        auto.commit.interval.ms group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms
        internal.leave.group.on.close max.poll.interval.ms max.poll.records partition.assignment.strategy
        session.timeout.ms share.acknowledgement.mode share.acquire.mode""",
    "there are no metrics of Java's clients": """
        auto.include.jmx.reporter enable.metrics.push metric.reporters metrics.num.samples metrics.recording.level
        metrics.sample.window.ms""",
    "topics are never created by reading them": "allow.auto.create.topics",
    "internal topics are read only where `assign` names them": "exclude.internal.topics",
    "brokers are asked, not controllers": "bootstrap.controllers",
    "the broker's answer is waited for": "internal.throw.on.fetch.stable.offset.unsupported",
    "brokers and bootstrap servers are asked in turn until `default.api.timeout.ms`": """
        metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy retries""",
    "tickets are those of this machine's Kerberos, which renews them": """
        sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.ticket.renew.jitter
        sasl.kerberos.ticket.renew.window.factor""",
    "the brokers check tokens": """
        sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
        sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
        sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name""",
    "OpenSSL does the work of Java's security providers": """
        security.providers ssl.keymanager.algorithm ssl.provider ssl.secure.random.implementation
        ssl.trustmanager.algorithm""",
}
_REFUSED = {
    **{reason: name.removeprefix("kafka.") for name, reason in NOT_SUPPORTED.items()},
    "values are taken as they are written": "config.providers",
    "Java cannot be run here": "sasl.login.class ssl.engine.factory.class",
    "tokens come by client credentials, a `file:`, or `sasl.oauthbearer.token.provider`": """
        sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
        sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
        sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
        sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
        sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
        sasl.oauthbearer.assertion.template.file""",
}


_OF_THE_SOURCE = {each.name: each for each in declared_in(vars(spark_options))}
_HONOURED: tuple[Option[Any], ...] = (
    spark_options.BOOTSTRAP_SERVERS, spark_options.CHECK_CRCS, spark_options.ISOLATION_LEVEL, *declared_in(globals()),
)  # fmt: skip
CLIENT_PROPERTIES = {
    known.name: known
    for known in (
        *(KnownProperty(each.name.removeprefix("kafka."), Use.HONOURED, each.doc, each.shown) for each in _HONOURED),
        *(KnownProperty(name, Use.HONOURED, doc) for name, doc in _TEXTS.items()),
        *properties_of(Use.NO_EFFECT, _NO_EFFECT),
        *properties_of(Use.REFUSED, _REFUSED),
    )
}
"""All client properties by name, without the `kafka.` prefix."""


def check_names(properties: Mapping[str, str]) -> None:
    """Log a warning for each property that is unknown or has no effect; an unknown one may be for a Java plug-in.

    Raises:
        ConfigurationError: a property is not supported here.
    """
    for name in sorted(properties):
        known = CLIENT_PROPERTIES.get(name)
        if known is None and f"kafka.{name}" not in _OF_THE_SOURCE:
            nearest = nearest_name(name, CLIENT_PROPERTIES)
            hint = f" (kafka.{nearest}?)" if is_slip(name, nearest) else ""
            _log.warning("kafka.%s is not a known Kafka client property%s", name, hint)
        elif known is not None and known.use is Use.NO_EFFECT:
            _log.warning("kafka.%s has no effect: %s", name, known.doc)
        elif known is not None and known.refuses(properties[name]):
            raise ConfigurationError(f"kafka.{name} is not supported: {known.doc}")


def warn_of_unread(given: Collection[str], read: Collection[str], security: str) -> None:
    """Log a warning for each honoured property that was not read, such as `ssl.*` without TLS: it has no effect."""
    for name in sorted(set(given).difference(read)):
        known = CLIENT_PROPERTIES.get(name)
        if known is not None and known.use is Use.HONOURED:
            _log.warning("kafka.%s has no effect beside the other settings (%s)", name, security)
