"""Services that the processes of a run share (`tests.rigs.stack.shared`): each function here starts one of them."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.broker.certificates import CertificateAuthority
from tests.broker.secure import OAUTHBEARER, PLAIN, SCRAM, TOKEN_VALIDATOR
from tests.broker.token_server import AUDIENCE, TokenServer
from tests.kerberos.kdc import REALM, Kdc, running, why_no_kerberos
from tests.kerberos.secured_hdfs import SecuredHdfs, hdfs_of
from tests.replays.topics import ReplayedTopics, fill_topics
from tests.rigs.stack.azurite import Azurite
from tests.rigs.stack.broker import JVM_OPTIONS
from tests.rigs.stack.fake_gcs import FakeGcs
from tests.rigs.stack.hdfs import Hdfs
from tests.rigs.stack.processes import free_ports
from tests.rigs.stack.s3proxy import S3Proxy
from tests.rigs.stack.shared import shared
from tests.rigs.stack.tiered_stack import TieredStack

USERS = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy", "ken", "leo")
"""Users with the password `NAME-secret` for PLAIN, without rights. A file of tests grants rights to its own users."""
ADMINS = ("reader", "writer", "gateway", "short", "short-on-yarn")
"""Users with all rights, whether a password, a token, a ticket or a certificate says who they are."""
TICKET_SESSION_MS, TOKEN_SESSION_MS = 2_000, 4_000
"""Milliseconds after which the broker ends a session that does not log in again (KIP-368): `GSSSHORT`, `SHORT`."""
SERVICE, STALE = "kafka/127.0.0.1", "stale/127.0.0.1"
"""The broker's principals. The key of the second one, on the listener `STALE`, has changed at the KDC since."""

_PLAIN = {"PLAIN": "SASL_PLAINTEXT"}
_PASSWORDS = {"SASL": "SASL_PLAINTEXT", "SASLSSL": "SASL_SSL"}
_CERTIFICATES = dict.fromkeys(("TLS", "MTLS", "EXPIREDTLS", "OTHERTLS"), "SSL")
_TOKENS = dict.fromkeys(("LOGIN", "NOCERT", "SHORT", "EXPIRED", "OTHERNAME"), "SASL_SSL")
_TICKETS = {"GSS": "SASL_PLAINTEXT", "GSSTLS": "SASL_SSL", "GSSSHORT": "SASL_PLAINTEXT", "STALE": "SASL_PLAINTEXT"}
KRB5 = "com.sun.security.auth.module.Krb5LoginModule"


@dataclass(frozen=True)
class Cluster:
    """One broker with a listener for each way to log in, and the S3 endpoint of its tier.

    Listeners:
        PLAINTEXT, AWAY: no login; clients are sent from AWAY to an address where nobody listens.
        PLAIN: PLAIN. SASL, SASLSSL: PLAIN and SCRAM-SHA-256.
        TLS, MTLS: without and with a client's certificate. EXPIREDTLS, OTHERTLS: with a certificate that does not hold.
        LOGIN, NOCERT, SHORT, EXPIRED, OTHERNAME: SCRAM-SHA-512 and OAUTHBEARER, all but NOCERT with a certificate.
        GSS, GSSTLS, GSSSHORT, STALE: GSSAPI, where this machine has a KDC.
    """

    stack: TieredStack
    authority: CertificateAuthority
    trust_store: Path
    signing_key: str
    kdc: Kdc | None


@contextmanager
def s3proxy(folder: Path) -> Iterator[S3Proxy]:
    """Start an S3 endpoint; its buckets are folders in `base_dir`."""
    with S3Proxy(folder / "s3proxy", folder / "storage") as proxy:
        yield proxy


@contextmanager
def key_distribution_center(folder: Path) -> Iterator[Kdc]:
    """Start a KDC with the principal `reader`, whose key table is there."""
    with running(folder / "kdc") as kdc:
        kdc.add("reader")
        yield kdc


@contextmanager
def cluster(folder: Path, kerberos: bool = True) -> Iterator[Cluster]:
    """Start the broker, its tier's endpoint, and the services that its logins need.

    Only the shared cluster may have the listeners for Kerberos, because a run has one KDC.
    """
    folder.mkdir(exist_ok=True)
    authority, tokens = CertificateAuthority(), TokenServer({})
    trust_store = authority.write(folder / "trust.pem")
    options = [*JVM_OPTIONS, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tokens.keys_url}"]
    with ExitStack() as services:
        services.enter_context(tokens)
        kdc = shared(key_distribution_center) if kerberos and not why_no_kerberos() else None
        if kdc is not None:
            options.append(f"-Djava.security.krb5.conf={kdc.config}")
        listeners = {
            **_PLAIN,
            **_PASSWORDS,
            **_CERTIFICATES,
            **_TOKENS,
            **(_TICKETS if kdc else {}),
            "AWAY": "PLAINTEXT",
        }
        properties = {
            "num.network.threads": "1",  # for each of the many listeners
            **_authorizer(),
            **_tls(folder, authority, listeners),
            **_passwords(),
            **_tokens(tokens.keys_url),
            **(_tickets(kdc) if kdc else {}),
        }
        stack = TieredStack(
            folder / "stack",
            listeners=listeners,
            advertised={"AWAY": f"127.0.0.1:{free_ports(1)[0]}"},
            properties=properties,
            jvm_options=tuple(options),
        )
        services.enter_context(stack)
        if kdc is not None:
            kdc.change_key(STALE)
        yield Cluster(stack, authority, trust_store, tokens.key_pem, kdc)


def _authorizer() -> dict[str, str]:
    admins = [f"User:{name}" for name in ADMINS] + [f"User:CN={name}" for name in ADMINS]
    return {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": ";".join(["User:ANONYMOUS", *admins]),
    }


def _tls(folder: Path, authority: CertificateAuthority, listeners: dict[str, str]) -> dict[str, str]:
    broker = authority.issue("broker")
    expired = authority.issue("expired", ends=-datetime.timedelta(hours=1))
    other = authority.issue("other", host="10.11.12.13")
    identities = {"EXPIRED": expired, "EXPIREDTLS": expired, "OTHERNAME": other, "OTHERTLS": other}
    asks = {*_TOKENS, "MTLS"} - {"NOCERT"}
    found = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(folder / "trust.pem")}
    for name, protocol in listeners.items():
        if protocol.endswith("SSL"):
            of = f"listener.name.{name.lower()}.ssl"
            store = identities.get(name, broker).write(folder / f"{name}.pem")
            found |= {f"{of}.keystore.type": "PEM", f"{of}.keystore.location": str(store)}
            found[f"{of}.client.auth"] = "required" if name in asks else "none"
    return found


def _passwords() -> dict[str, str]:
    known = " ".join(f'user_{user}="{user}-secret"' for user in (*USERS, *ADMINS))
    jaas = {"PLAIN": f"{PLAIN} required {known};", "SCRAM-SHA-256": f"{SCRAM} required;"}
    return _sasl(_PASSWORDS, jaas) | _sasl(_PLAIN, {"PLAIN": jaas["PLAIN"]})


def _tokens(keys_url: str) -> dict[str, str]:
    jaas = {"SCRAM-SHA-512": f"{SCRAM} required;", "OAUTHBEARER": f"{OAUTHBEARER} required;"}
    handlers = {
        f"listener.name.{name.lower()}.oauthbearer.sasl.server.callback.handler.class": TOKEN_VALIDATOR
        for name in _TOKENS
    }
    return {
        **_sasl(_TOKENS, jaas),
        **handlers,
        "sasl.oauthbearer.jwks.endpoint.url": keys_url,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "listener.name.short.oauthbearer.connections.max.reauth.ms": str(TOKEN_SESSION_MS),
    }


def _tickets(kdc: Kdc) -> dict[str, str]:
    tables = {SERVICE: kdc.add(SERVICE), STALE: kdc.add(STALE)}

    def jaas(name: str) -> str:
        principal = STALE if name == "STALE" else SERVICE
        table = tables[principal]
        return f'{KRB5} required useKeyTab=true storeKey=true keyTab="{table}" principal="{principal}@{REALM}";'

    found = {"sasl.kerberos.service.name": "kafka"}
    for name in _TICKETS:
        found |= _sasl([name], {"GSSAPI": jaas(name)})
    return {**found, "listener.name.gssshort.gssapi.connections.max.reauth.ms": str(TICKET_SESSION_MS)}


def _sasl(listeners: Iterable[str], jaas: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for name in listeners:
        of = f"listener.name.{name.lower()}"
        found[f"{of}.sasl.enabled.mechanisms"] = ",".join(jaas)
        found |= {f"{of}.{mechanism.lower()}.sasl.jaas.config": config for mechanism, config in jaas.items()}
    return found


@contextmanager
def replayed_topics(_folder: Path) -> Iterator[ReplayedTopics]:
    """Fill topics of every kind that a replay and a verification read."""
    yield fill_topics(shared(cluster).stack, seed=1)


@contextmanager
def azurite(folder: Path) -> Iterator[Azurite]:
    """Start Azure Blob Storage's emulator, with the container `contract`."""
    with Azurite(folder) as server:
        server.create_container("contract")
        yield server


@contextmanager
def fake_gcs(folder: Path) -> Iterator[FakeGcs]:
    """Start a stand-in for Google Cloud Storage, with the bucket `contract`."""
    with FakeGcs(folder) as server:
        server.create_bucket("contract")
        yield server


@contextmanager
def hdfs(folder: Path) -> Iterator[Hdfs]:
    """Start HDFS with one data node."""
    with Hdfs(folder) as server:
        yield server


@contextmanager
def secured_hdfs(folder: Path) -> Iterator[SecuredHdfs]:
    """Start HDFS that asks for a Kerberos login."""
    kdc = shared(key_distribution_center)
    with hdfs_of(kdc, kdc.table("reader"), folder) as server:
        yield server
