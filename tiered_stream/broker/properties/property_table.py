"""All properties of Kafka's Java consumer and admin client (4.3): honoured, without effect, or refused.

Names, defaults and meanings are those of Kafka's `ConsumerConfig`, `AdminClientConfig`, `SaslConfigs` and `SslConfigs`.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from tiered_stream.errors import ConfigurationError
from tiered_stream.options import spark_options
from tiered_stream.options.spark_options import NOT_SUPPORTED
from tiered_stream.options.types import declared_in

_log = logging.getLogger(__name__)

_OF_THE_SOURCE = {option.name.removeprefix("kafka.") for option in declared_in(vars(spark_options))}


def check_names(properties: Mapping[str, str]) -> None:
    """Log a warning for each property that is unknown or has no effect; an unknown one may be for a Java plug-in.

    Raises:
        ConfigurationError: a property is not supported here.
    """
    for name in sorted(properties):
        known = CLIENT_PROPERTIES.get(name)
        if known is None and name not in _OF_THE_SOURCE:
            near = difflib.get_close_matches(name, CLIENT_PROPERTIES, 1)
            hint = f" (kafka.{near[0]}?)" if near else ""
            _log.warning("kafka.%s is not a known Kafka client property%s", name, hint)
        elif known is not None and known.use is Use.NO_EFFECT:
            _log.warning("kafka.%s has no effect: %s", name, known.doc)
        elif known is not None and known.use is Use.REFUSED and properties[name].strip():
            raise ConfigurationError(f"kafka.{name} is not supported: {known.doc}")


def warn_of_unread(given: Collection[str], read: Collection[str], security: str) -> None:
    """Log a warning for each honoured property that was not read, such as `ssl.*` without TLS: it has no effect."""
    for name in sorted(set(given).difference(read)):
        known = CLIENT_PROPERTIES.get(name)
        if known is not None and known.use is Use.HONOURED:
            _log.warning("kafka.%s has no effect beside the other settings (%s)", name, security)


class Use(Enum):
    """Effect of a client property that a user gives."""

    HONOURED = "honoured"
    NO_EFFECT = "a warning"
    REFUSED = "an error"


@dataclass(frozen=True, slots=True)
class ClientProperty:
    """Kafka client property. `doc` says what it does if it is honoured, else why it has no effect or is refused."""

    name: str
    use: Use
    doc: str
    default: str = ""


_HONOURED = (
    ("bootstrap.servers", "", "Brokers to start with, `host:port,host:port`."),
    ("check.crcs", "true", "Check the checksum of each record batch."),
    (
        "client.dns.lookup",
        "use_all_dns_ips",
        "Which addresses of a name are tried; or `resolve_canonical_bootstrap_servers_only`.",
    ),
    ("client.id", "tiered-stream", "What the brokers' logs and quotas call this client."),
    ("client.rack", "", "Fetch from a replica in this rack, where the brokers name one (KIP-392)."),
    ("connections.max.idle.ms", "540000", "Close a connection that was idle for so long; -1: never."),
    ("default.api.timeout.ms", "60000", "How long a call may take with all its attempts."),
    ("fetch.max.bytes", "52428800", "The most that a Fetch asks for; the smaller of this and the next holds."),
    (
        "max.partition.fetch.bytes",
        "16777216",
        "The same for one partition. Kafka's 1 MiB is made for many in one Fetch; here each asks for one.",
    ),
    ("fetch.max.wait.ms", "500", "How long a broker may wait for `fetch.min.bytes`."),
    ("fetch.min.bytes", "1", "What a broker waits for."),
    ("isolation.level", "", "As the source's option of that name."),
    ("metadata.max.age.ms", "300000", "Ask anew who leads a partition after so long."),
    ("receive.buffer.bytes", "-1", "The socket's receive buffer. -1: the system's choice; Kafka's default is 64 KiB."),
    ("send.buffer.bytes", "-1", "The socket's send buffer. -1: the system's choice; Kafka's default is 128 KiB."),
    ("reconnect.backoff.ms", "50", "Wait before connecting again, doubled with each failure."),
    ("reconnect.backoff.max.ms", "1000", "The longest of these waits."),
    ("request.timeout.ms", "30000", "How long one request may take."),
    ("retry.backoff.ms", "100", "Wait before asking again, doubled with each failure."),
    ("retry.backoff.max.ms", "1000", "The longest of these waits."),
    ("socket.connection.setup.timeout.ms", "10000", "How long connecting may take, TLS and login included."),
    ("socket.connection.setup.timeout.max.ms", "30000", "The same after failures, when it is doubled."),
    ("security.protocol", "PLAINTEXT", "`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`."),
    (
        "sasl.mechanism",
        "GSSAPI",
        "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER`, `AWS_MSK_IAM`, or `GSSAPI`, which needs the package "
        "`gssapi`.",
    ),
    (
        "sasl.jaas.config",
        "",
        "The login module with its options, as for Java. A JVM's JAAS file is not read.",
    ),
    (
        "sasl.client.callback.handler.class",
        "",
        "Java cannot be run here: only `IAMClientCallbackHandler` (AWS_MSK_IAM), for which ours stands in.",
    ),
    (
        "sasl.login.callback.handler.class",
        "",
        "Java cannot be run here: only Kafka's own `OAuthBearerLoginCallbackHandler`, for which ours stands in. In "
        "place of others set `sasl.oauthbearer.token.provider`.",
    ),
    ("sasl.kerberos.service.name", "", "The brokers' service name (GSSAPI)."),
    (
        "sasl.oauthbearer.token.endpoint.url",
        "",
        "Where tokens come from: an `http(s)` endpoint with the grant of client credentials, or a `file:` that holds "
        "one.",
    ),
    (
        "sasl.oauthbearer.client.credentials.client.id",
        "",
        "The client's id; goes before `clientId` in `sasl.jaas.config`.",
    ),
    (
        "sasl.oauthbearer.client.credentials.client.secret",
        "",
        "Its secret; goes before `clientSecret` in `sasl.jaas.config`.",
    ),
    ("sasl.oauthbearer.scope", "", "The scope to ask for; goes before `scope` in `sasl.jaas.config`."),
    (
        "sasl.oauthbearer.header.urlencode",
        "false",
        "Encode id and secret for the `Authorization` header (RFC 6749, 2.3.1).",
    ),
    (
        "sasl.oauthbearer.jwt.retriever.class",
        "",
        "Java cannot be run here: only `DefaultJwtRetriever`, `ClientCredentialsJwtRetriever` and `FileJwtRetriever`, "
        "for which ours stands in.",
    ),
    (
        "sasl.oauthbearer.token.provider",
        "",
        "Ours, in place of a Java callback handler: `my_module.my_callable`, a Python function without parameters that "
        "returns a token, or a token and when it expires in seconds since the epoch. Executors must be able to import "
        "it.",
    ),
    ("sasl.login.connect.timeout.ms", "10000", "How long connecting to the token endpoint may take."),
    ("sasl.login.read.timeout.ms", "10000", "How long its answer may take."),
    ("sasl.login.retry.backoff.ms", "100", "Wait before asking it again, doubled with each failure."),
    ("sasl.login.retry.backoff.max.ms", "10000", "For how long it is asked again."),
    ("sasl.login.refresh.window.factor", "0.8", "The part of a token's life after which a new one is asked for."),
    ("sasl.login.refresh.window.jitter", "0.05", "At most so much is added to it, by chance."),
    ("sasl.login.refresh.min.period.seconds", "60", "But not sooner than after this,"),
    ("sasl.login.refresh.buffer.seconds", "300", "nor later than this before its end; where a life is long enough."),
    ("ssl.cipher.suites", "", "The cipher suites, by Java's names. Those of TLS 1.3 go all three together."),
    ("ssl.enabled.protocols", "TLSv1.2,TLSv1.3", "The versions of TLS; none older."),
    ("ssl.protocol", "TLSv1.3", "`TLS`, `TLSv1.2` or `TLSv1.3`; `ssl.enabled.protocols` says which are spoken."),
    (
        "ssl.endpoint.identification.algorithm",
        "https",
        "The broker's certificate must be for its host name; empty: for any.",
    ),
    (
        "ssl.keystore.type",
        "JKS",
        "`PEM`, `PKCS12` or `JKS`. As in Java, `JKS` and `PKCS12` stand for each other; PEM is known without it.",
    ),
    ("ssl.keystore.location", "", "The file with the private key and its certificate chain, on every executor."),
    ("ssl.keystore.password", "", "The password of a JKS or PKCS12 key store."),
    ("ssl.key.password", "", "The private key's password; of a JKS or PKCS12 store, its password unless given."),
    ("ssl.keystore.key", "", "The private key itself, in PEM."),
    ("ssl.keystore.certificate.chain", "", "Its certificate chain, in PEM."),
    ("ssl.truststore.type", "JKS", "As `ssl.keystore.type`."),
    (
        "ssl.truststore.location",
        "",
        "The file with the certificates to trust. Without one, those that the system trusts.",
    ),
    (
        "ssl.truststore.password",
        "",
        "The password of a JKS or PKCS12 trust store. As in Java, a JKS store is not checked without it.",
    ),
    ("ssl.truststore.certificates", "", "The certificates themselves, in PEM."),
)
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


def _all() -> Iterator[ClientProperty]:
    for name, default, doc in _HONOURED:
        yield ClientProperty(name, Use.HONOURED, doc, default)
    for use, by_reason in ((Use.NO_EFFECT, _NO_EFFECT), (Use.REFUSED, _REFUSED)):
        for reason, names in by_reason.items():
            yield from (ClientProperty(name, use, reason) for name in names.split())


CLIENT_PROPERTIES = {each.name: each for each in _all()}
"""All client properties by name, without the `kafka.` prefix."""


def render_client_properties() -> str:
    """Return a Markdown table of all client properties: honoured ones first, then the others, grouped by reason."""
    lines = ["| Property | Default | Given, it is | Meaning |", "|---|---|---|---|"]
    for each in CLIENT_PROPERTIES.values():
        if each.use is Use.HONOURED:
            default = f"`{each.default}`" if each.default else ""
            lines.append(f"| `{each.name}` | {default} | {each.use.value} | {each.doc} |")
    for use, by_reason in ((Use.NO_EFFECT, _NO_EFFECT), (Use.REFUSED, _REFUSED)):
        for reason, names in by_reason.items():
            lines.append(f"| {', '.join(f'`{name}`' for name in names.split())} | | {use.value} | {reason} |")
    return "\n".join(lines) + "\n"
