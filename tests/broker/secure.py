"""Login modules of Kafka, as brokers and clients name them, and what brokers let a user do."""

from __future__ import annotations

from kafka.admin import ACL, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourcePattern, ResourceType

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
TOKEN_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def login_module(mechanism: str, username: str, password: str) -> str:
    """`sasl.jaas.config` of a client."""
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    return f'{module} required username="{username}" password="{password}";'


def grant(
    user: str, name: str, *operations: ACLOperation, kind: ResourceType = ResourceType.TOPIC, is_prefix: bool = False
) -> list[ACL]:
    """What lets a user do `operations` with a topic or another resource, or with all whose names begin like that."""
    pattern = ACLResourcePatternType.PREFIXED if is_prefix else ACLResourcePatternType.LITERAL
    resource = ResourcePattern(kind, name, pattern)
    return [ACL(f"User:{user}", "*", each, ACLPermissionType.ALLOW, resource) for each in operations]
