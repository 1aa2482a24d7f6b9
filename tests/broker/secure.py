"""Login modules of Kafka, as brokers and clients name them."""

from __future__ import annotations

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
TOKEN_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def login_module(mechanism: str, username: str, password: str) -> str:
    """`sasl.jaas.config` of a client."""
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    return f'{module} required username="{username}" password="{password}";'
