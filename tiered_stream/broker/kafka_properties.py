"""Properties of Kafka's Java consumer and admin client (4.3): their declarations, and a reader of given values.

Names, defaults, bounds and meanings are as in Kafka's `ConsumerConfig`, `AdminClientConfig`, `SaslConfigs` and
`SslConfigs`. Each property is supported, has no effect, or is refused. Supported properties are declared as options.
Three of them are options of the source, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from tiered_stream.errors import ConfigurationError
from tiered_stream.options import spark_options, types
from tiered_stream.options.spark_options import NOT_SUPPORTED
from tiered_stream.options.types import (
    INT_MAX,
    LONG_MIN,
    KnownProperty,
    Option,
    Use,
    declared_in,
    option,
    properties_of,
    trimmed,
)
from tiered_stream.options.unknown_names import hint_for

_log = logging.getLogger(__name__)

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "AWS_MSK_IAM", "OAUTHBEARER")


class DnsLookup(StrEnum):
    """Value of `client.dns.lookup`: use all addresses of a host name, or the bootstrap servers' canonical names."""

    ALL = "use_all_dns_ips"
    CANONICAL = "resolve_canonical_bootstrap_servers_only"


def _milliseconds(minimum: int) -> Callable[[str], int]:
    """Return a parser for a number of milliseconds that is at least `minimum`.

    Kafka allows 64 bits, but the parser returns at most `INT_MAX`. It raises ValueError if the text is malformed.
    """
    parse = types.integer(minimum)
    return lambda value: min(INT_MAX, parse(value))


_INT, _POSITIVE_INT, _BUFFER_SIZE = (types.integer(minimum, INT_MAX) for minimum in (0, 1, -1))
_MILLIS = _milliseconds(0)

INTEGERS = {
    name: option(f"kafka.{name}", parse, default, doc)
    for name, parse, default, doc in (
        ("connections.max.idle.ms", _milliseconds(LONG_MIN), "540000",
         "Close a connection after this idle time; -1: never."),
        ("default.api.timeout.ms", _INT, "60000", "Limit of a call with all its attempts."),
        ("fetch.max.bytes", _INT, "52428800", "Largest Fetch; the smaller of this and the next holds."),
        ("max.partition.fetch.bytes", _INT, "16777216",
         "Largest Fetch from a partition. Kafka's 1 MiB is for many partitions in one Fetch; here a Fetch has one."),
        ("fetch.max.wait.ms", _INT, "500", "Longest time that a broker waits for `fetch.min.bytes`."),
        ("fetch.min.bytes", _INT, "1", "Bytes that a broker waits for."),
        ("metadata.max.age.ms", _MILLIS, "300000", "Age at which metadata is requested again."),
        ("receive.buffer.bytes", _BUFFER_SIZE, "-1",
         "Socket's receive buffer; -1: the system tunes it. Kafka: 64 KiB."),
        ("send.buffer.bytes", _BUFFER_SIZE, "-1", "Socket's send buffer; -1: the system tunes it. Kafka: 128 KiB."),
        ("reconnect.backoff.ms", _MILLIS, "50", "First wait before connecting again; further waits grow."),
        ("reconnect.backoff.max.ms", _MILLIS, "1000", "Longest wait before connecting again."),
        ("request.timeout.ms", _INT, "30000", "Limit of one request."),
        ("retry.backoff.ms", _MILLIS, "100", "First wait before a request is repeated; further waits grow."),
        ("retry.backoff.max.ms", _MILLIS, "1000", "Longest wait before a request is repeated."),
        ("socket.connection.setup.timeout.ms", _MILLIS, "10000", "Limit of connecting, with TLS and login."),
        ("socket.connection.setup.timeout.max.ms", _MILLIS, "30000",
         "Largest limit of connecting, which is twice as long after each failure."),
        ("sasl.login.connect.timeout.ms", _POSITIVE_INT, "10000", "Limit of connecting to the token endpoint."),
        ("sasl.login.read.timeout.ms", _POSITIVE_INT, "10000", "Limit of the token endpoint's response."),
        ("sasl.login.retry.backoff.ms", _POSITIVE_INT, "100",
         "First wait before a token is requested again; further waits grow."),
        ("sasl.login.retry.backoff.max.ms", _INT, "10000", "Time for which a token is requested again after failures."),
        ("sasl.login.refresh.min.period.seconds", types.integer(0, 900), "60", "Shortest time between two requests."),
        ("sasl.login.refresh.buffer.seconds", types.integer(0, 3600), "300",
         "Shortest time between a request and the token's end. Both times hold if the lifetime is long enough."),
    )
}  # fmt: skip
"""Supported properties that are whole numbers: their options, by name without the `kafka.` prefix."""

CLIENT_DNS_LOOKUP = option(
    "kafka.client.dns.lookup", types.word(DnsLookup, any_case=False), DnsLookup.ALL,
    "Which addresses of a host name are tried; or `resolve_canonical_bootstrap_servers_only`.",
)  # fmt: skip
CLIENT_ID = option("kafka.client.id", str, "tiered-stream", "Name of this client in the brokers' logs and quotas.")
SECURITY_PROTOCOL = option(
    "kafka.security.protocol", types.one_of(*PROTOCOLS), "PLAINTEXT",
    "`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`.",
)  # fmt: skip
SASL_MECHANISM = option(
    "kafka.sasl.mechanism", types.one_of(*MECHANISMS), "GSSAPI",
    "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER`, `AWS_MSK_IAM`, or `GSSAPI`, which needs the package "
    "`gssapi` (extra `kerberos`).",
)  # fmt: skip
HEADER_URLENCODE = option(
    "kafka.sasl.oauthbearer.header.urlencode", types.boolean, "false",
    "Encode id and secret for the `Authorization` header (RFC 6749, 2.3.1).",
)  # fmt: skip
REFRESH_WINDOW_FACTOR = option(
    "kafka.sasl.login.refresh.window.factor", types.fraction(0.5, 1.0), "0.8",
    "Part of a token's lifetime after which a new token is requested.",
)  # fmt: skip
REFRESH_WINDOW_JITTER = option(
    "kafka.sasl.login.refresh.window.jitter", types.fraction(0.0, 0.25), "0.05", "Largest random addition to that part."
)
SSL_ENABLED_PROTOCOLS = option("kafka.ssl.enabled.protocols", str, "TLSv1.2,TLSv1.3", "Versions of TLS; none older.")
SSL_PROTOCOL = option(
    "kafka.ssl.protocol", types.one_of("TLS", "TLSv1.2", "TLSv1.3"), "TLSv1.3",
    "`TLS`, `TLSv1.2` or `TLSv1.3`; `ssl.enabled.protocols` decides which versions are used.",
)  # fmt: skip
ENDPOINT_IDENTIFICATION = option(
    "kafka.ssl.endpoint.identification.algorithm", types.one_of("https", ""), "https",
    "The broker's certificate must be for its host name; empty: for any.",
)  # fmt: skip
SSL_KEYSTORE_TYPE: Option[str] = Option(
    "kafka.ssl.keystore.type", str, "", "JKS",
    "`PEM`, `PKCS12` or `JKS`. As in Java, `JKS` and `PKCS12` stand for each other; PEM is recognized without it.",
)  # fmt: skip
SSL_TRUSTSTORE_TYPE: Option[str] = Option("kafka.ssl.truststore.type", str, "", "JKS", "As `ssl.keystore.type`.")
_TEXTS = {
    "client.rack": "Fetch from a replica in this rack if the brokers name one (KIP-392).",
    "sasl.jaas.config": "Login module with its options, as for Java. A JVM's JAAS file is not read.",
    "sasl.client.callback.handler.class":
    "Java cannot be run here: only `IAMClientCallbackHandler` (AWS_MSK_IAM), for which ours stands in.",
    "sasl.login.callback.handler.class":
    "Java cannot be run here: only Kafka's own `OAuthBearerLoginCallbackHandler`, for which ours stands in. In place "
    "of others set `sasl.oauthbearer.token.provider`.",
    "sasl.kerberos.service.name": "First part of the brokers' principal, such as `kafka` (GSSAPI).",
    "sasl.oauthbearer.token.endpoint.url":
    "Source of tokens: an `http(s)` endpoint with the grant of client credentials, or a `file:` with a token.",
    "sasl.oauthbearer.client.credentials.client.id": "Client id; goes before `clientId` in `sasl.jaas.config`.",
    "sasl.oauthbearer.client.credentials.client.secret": "Secret; goes before `clientSecret` in `sasl.jaas.config`.",
    "sasl.oauthbearer.scope": "Scope to request; goes before `scope` in `sasl.jaas.config`.",
    "sasl.oauthbearer.jwt.retriever.class":
    "Java cannot be run here: only `DefaultJwtRetriever`, `ClientCredentialsJwtRetriever` and `FileJwtRetriever`, for "
    "which ours stands in.",
    "sasl.oauthbearer.token.provider":
    "Ours, in place of a Java callback handler: `my_module.my_callable`, a Python function without parameters that "
    "returns a token, or a token and its end in seconds since the epoch. Executors must be able to import it.",
    "ssl.cipher.suites": "Cipher suites by Java's names. The three suites of TLS 1.3 can be named only together.",
    "ssl.keystore.location": "File with the private key and its certificate chain, on every executor.",
    "ssl.keystore.password": "Password of a JKS or PKCS12 key store.",
    "ssl.key.password": "Password of the private key; in a JKS or PKCS12 store, by default the store's password.",
    "ssl.keystore.key": "The private key itself, in PEM.",
    "ssl.keystore.certificate.chain": "The private key's certificate chain, in PEM.",
    "ssl.truststore.location": "File with the trusted certificates; by default, the system's certificates are trusted.",
    "ssl.truststore.password":
    "Password of a JKS or PKCS12 trust store. As in Java, a JKS store is not checked without it.",
    "ssl.truststore.certificates": "The trusted certificates themselves, in PEM.",
}  # fmt: skip
"""Supported properties that are texts without a default: their descriptions in the documentation, by name."""
_NO_EFFECT = {
    "no consumer group is joined": """
        auto.commit.interval.ms group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms
        internal.leave.group.on.close max.poll.interval.ms max.poll.records partition.assignment.strategy
        session.timeout.ms share.acknowledgement.mode share.acquire.mode""",
    "there are no metrics of Java's clients": """
        auto.include.jmx.reporter enable.metrics.push metric.reporters metrics.num.samples metrics.recording.level
        metrics.sample.window.ms""",
    "topics are never created by reading them": "allow.auto.create.topics",
    "internal topics are never read": "exclude.internal.topics",
    "brokers are asked, not controllers": "bootstrap.controllers",
    "the client waits for the broker's response": "internal.throw.on.fetch.stable.offset.unsupported",
    "brokers and bootstrap servers are asked in turn until `default.api.timeout.ms`": """
        metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy retries""",
    "the Kerberos library gets and renews the tickets": """
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


_SOURCE_OPTIONS = {declared.name for declared in declared_in(vars(spark_options))}
_HONOURED: tuple[Option[Any], ...] = (
    spark_options.BOOTSTRAP_SERVERS, spark_options.CHECK_CRCS, spark_options.ISOLATION_LEVEL, *INTEGERS.values(),
    *declared_in(globals()),
)  # fmt: skip
CLIENT_PROPERTIES = {
    known.name: known
    for known in (
        *(
            KnownProperty(option.name.removeprefix("kafka."), Use.HONOURED, option.doc, option.shown)
            for option in _HONOURED
        ),
        *(KnownProperty(name, Use.HONOURED, doc) for name, doc in _TEXTS.items()),
        *properties_of(Use.NO_EFFECT, _NO_EFFECT),
        *properties_of(Use.REFUSED, _REFUSED),
    )
}
"""Declarations of all client properties, by name without the `kafka.` prefix."""


def check_names(properties: Mapping[str, str]) -> None:
    """Check the names of client properties, which are without the `kafka.` prefix.

    Log a warning for each property that is unknown or has no effect. An unknown property is no error, because it may be
    for a Java plug-in.

    Raises:
        ConfigurationError: a property is known, but this package does not support it.
    """
    for name in sorted(properties):
        known = CLIENT_PROPERTIES.get(name)
        if known is None and f"kafka.{name}" not in _SOURCE_OPTIONS:
            hint = hint_for(name, CLIENT_PROPERTIES, " (kafka.{}?)")
            _log.warning("kafka.%s is not a known Kafka client property%s", name, hint)
        elif known is not None and known.use is Use.NO_EFFECT:
            _log.warning("kafka.%s has no effect: %s", name, known.doc)
        elif known is not None and known.refuses(properties[name]):
            raise ConfigurationError(f"kafka.{name} is not supported: {known.doc}")


def warn_of_unread(names: Collection[str], names_read: Collection[str], security: str) -> None:
    """Log a warning that a property has no effect, for each supported property in `names` that is not in `names_read`.

    For example, `ssl.*` properties have no effect without TLS. `security` is a text with the security settings, for the
    message.
    """
    for name in sorted(set(names).difference(names_read)):
        known = CLIENT_PROPERTIES.get(name)
        if known is not None and known.use is Use.HONOURED:
            _log.warning("kafka.%s has no effect with the other settings (%s)", name, security)


T = TypeVar("T")


class ConfigValues:
    """Kafka client properties as a user gives them: text by name, without the `kafka.` prefix."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self.names_read: set[str] = set()
        """Names of all properties that were read, also of properties that the user did not give."""

    def __repr__(self) -> str:
        return f"ConfigValues({', '.join(sorted(self._properties))})"

    def __contains__(self, name: str) -> bool:
        return name in self._properties

    def secret(self, name: str) -> str | None:
        """Return the property's value unchanged; None: it is not given. Callers must never show the value."""
        self.names_read.add(name)
        return self._properties.get(name)

    def text(self, name: str) -> str:
        """Return the property's value without surrounding blanks, or an empty text if it is not given."""
        return trimmed(self.secret(name) or "")

    def read(self, option: Option[T]) -> T:
        """Return the parsed value of the property that `option` declares, or the option's default if it is not given.

        Blanks around the value are removed.

        Raises:
            ConfigurationError: the value is malformed. The message names the property, its value and the right form.
        """
        text = self.secret(option.name.removeprefix("kafka."))
        if text is None:
            return option.default
        value = trimmed(text)
        try:
            return option.parse(value)
        except ValueError as error:
            raise ConfigurationError(f"{option.name} = {value!r}: {error}") from error
