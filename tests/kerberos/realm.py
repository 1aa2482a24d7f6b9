"""A realm: a KDC, and a stack whose broker has listeners that ask for a Kerberos login."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.broker.certificates import CertificateAuthority
from tests.kerberos.kdc import REALM, Kdc, running
from tests.reading import tier_segments
from tests.stack.broker import JVM_OPTIONS
from tests.stack.tiered_stack import TieredStack

KRB5 = "com.sun.security.auth.module.Krb5LoginModule"
SERVICE = "kafka/127.0.0.1"
TOPIC, ROWS = "guarded", 91
SESSION_MS = 2_000
"""After which the broker ends what is not logged in to again (KIP-368), on the listener `SHORT`."""
LISTENERS = {"GSS": "SASL_PLAINTEXT", "GSSTLS": "SASL_SSL", "SHORT": "SASL_PLAINTEXT", "STALE": "SASL_PLAINTEXT"}
STALE = "stale/127.0.0.1"
"""Principal of the broker on the listener `STALE`, whose key has changed at the KDC since."""


@dataclass(frozen=True)
class Realm:
    """The KDC has the principal `reader`, with a key table; the broker has a topic of `ROWS` records."""

    kdc: Kdc
    stack: TieredStack
    keytab: Path
    trust: Path

    def login(self, listener: str = "GSS", jaas: str | None = None, **more: str) -> dict[str, str]:
        """Return a client's properties, without `kafka.`; `jaas` are the options of the login module."""
        protocol = LISTENERS[listener]
        return {
            "bootstrap.servers": self.stack.broker.address(listener),
            "security.protocol": protocol,
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            **({"ssl.truststore.location": str(self.trust)} if protocol == "SASL_SSL" else {}),
            **({} if jaas is None else {"sasl.jaas.config": f"{KRB5} required {jaas};"}),
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def by_keytab(self, principal: str = "reader", keytab: Path | None = None) -> str:
        return f'useKeyTab=true keyTab="{keytab or self.keytab}" principal="{principal}@{REALM}"'


@contextmanager
def realm(folder: Path, properties: Mapping[str, str] | None = None) -> Iterator[Realm]:
    """Start a KDC and the broker's stack; `properties` are more of the broker's."""
    with running(folder / "kdc") as kdc, realm_of(kdc, folder, properties) as here:
        yield here


@contextmanager
def realm_of(kdc: Kdc, folder: Path, properties: Mapping[str, str] | None = None) -> Iterator[Realm]:
    """Start the broker's stack in the realm of a KDC that has none yet."""
    tables, keytab = {SERVICE: kdc.add(SERVICE), STALE: kdc.add(STALE)}, kdc.add("reader")
    authority = CertificateAuthority()
    jaas = {
        principal: f'{KRB5} required useKeyTab=true storeKey=true keyTab="{table}" principal="{principal}@{REALM}";'
        for principal, table in tables.items()
    }
    own = {
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("broker").write(folder / "broker.pem")),
        "listener.name.short.gssapi.connections.max.reauth.ms": str(SESSION_MS),
        **{f"listener.name.{name.lower()}.gssapi.sasl.jaas.config": jaas[SERVICE] for name in LISTENERS},
        "listener.name.stale.gssapi.sasl.jaas.config": jaas[STALE],
    }
    options = (*JVM_OPTIONS, f"-Djava.security.krb5.conf={kdc.config}")
    with TieredStack(
        folder / "stack", listeners=LISTENERS, properties={**own, **(properties or {})}, jvm_options=options
    ) as stack:
        assert tier_segments(stack, TOPIC, [40, 50]) == ROWS
        kdc.change_key(STALE)
        yield Realm(kdc, stack, keytab, authority.write(folder / "trust.pem"))
