"""A broker that asks clients who they are, by password or certificate, and what they may."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from tests.broker.certificates import CertificateAuthority
from tests.stack.broker import KafkaBroker

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
TOKEN_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def login_module(mechanism: str, username: str, password: str) -> str:
    """`sasl.jaas.config` of a client."""
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    return f'{module} required username="{username}" password="{password}";'


def secure_broker(
    folder: Path, authority: CertificateAuthority, sasl: Mapping[str, str], users: Collection[str], certified: str
) -> KafkaBroker:
    """Not started yet; `trust.pem` in the folder is what its clients trust.

    Args:
        sasl: listeners with a login, by name with their protocol; the listener `TLS` asks for a certificate.
        users: who logs in by PLAIN, each with the password `NAME-secret`.
        certified: who has a certificate and may do everything.
    """
    trust_store = authority.write(folder / "trust.pem")
    (folder / "tier").mkdir()
    known = " ".join(f'user_{user}="{user}-secret"' for user in users)
    logins = {
        f"listener.name.{listener.lower()}.{mechanism}.sasl.jaas.config": config
        for listener in sasl
        for mechanism, config in (("plain", f"{PLAIN} required {known};"), ("scram-sha-256", f"{SCRAM} required;"))
    }
    properties = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        **logins,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("broker").write(folder / "broker.pem")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust_store),
        "listener.name.tls.ssl.client.auth": "required",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:CN={certified}",
    }
    listeners = {**sasl, "TLS": "SSL"}
    return KafkaBroker(folder / "broker", folder / "tier", listeners=listeners, properties=properties)
