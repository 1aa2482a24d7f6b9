"""A realm: a KDC, and a broker with listeners that ask for a Kerberos login."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kerberos.kdc import REALM, Kdc
from tests.reading import tier_segments
from tests.rigs.stack.shared import shared
from tests.rigs.stack.tiered_stack import TieredStack
from tests.services import KRB5, cluster

TOPIC, ROWS = "guarded-by-tickets", 91


@dataclass(frozen=True)
class Realm:
    """The KDC has the principal `reader`, with a key table; the broker has a topic of `ROWS` records."""

    kdc: Kdc
    stack: TieredStack
    keytab: Path
    trust: Path

    def login(self, listener: str = "GSS", jaas: str | None = None, **more: str) -> dict[str, str]:
        """Return a client's properties, without `kafka.`; `jaas` are the options of the login module."""
        tls = listener == "GSSTLS"
        return {
            "bootstrap.servers": self.stack.broker.address(listener),
            "security.protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            **({"ssl.truststore.location": str(self.trust)} if tls else {}),
            **({} if jaas is None else {"sasl.jaas.config": f"{KRB5} required {jaas};"}),
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def by_keytab(self, principal: str = "reader", keytab: Path | None = None) -> str:
        return f'useKeyTab=true keyTab="{keytab or self.keytab}" principal="{principal}@{REALM}"'


@contextmanager
def realm(_folder: Path) -> Iterator[Realm]:
    """Fill the topic of the run's cluster, which has a KDC; a starter for `shared`."""
    found = shared(cluster)
    assert found.kdc is not None
    assert tier_segments(found.stack, TOPIC, [40, 50]) == ROWS
    yield Realm(found.kdc, found.stack, found.kdc.table("reader"), found.trust_store)
