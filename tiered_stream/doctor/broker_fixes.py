"""Advice on how to fix refused logins and requests at the brokers, depending on the job's SASL mechanism."""

from __future__ import annotations

from collections.abc import Mapping

from tiered_stream.broker.kafka_properties import CLIENT_PROPERTIES
from tiered_stream.doctor.finding import Fixes
from tiered_stream.errors import BrokerAuthorizationError, BrokerUnavailableError, ConfigurationError, UnknownTopicError

_NAME_AND_PASSWORD = "correct username and password in kafka.sasl.jaas.config"  # noqa: S105 - no password
_LOGIN_FIXES = {
    "PLAIN": _NAME_AND_PASSWORD,
    "SCRAM-SHA-256": _NAME_AND_PASSWORD,
    "SCRAM-SHA-512": _NAME_AND_PASSWORD,
    "OAUTHBEARER": "correct clientId, clientSecret and scope in kafka.sasl.jaas.config",
    "AWS_MSK_IAM": "grant kafka-cluster:Connect on the cluster in the IAM policy of this identity, or name another "
    "identity by awsRoleArn or awsProfileName in kafka.sasl.jaas.config",
    "GSSAPI": "correct principal and keyTab in kafka.sasl.jaas.config, or the ticket (kinit; klist shows it), or "
    "kafka.sasl.kerberos.service.name",
}


def login_fixes(kafka: Mapping[str, str]) -> Fixes:
    """Return advice on failed logins at the brokers, by the class of the login's error.

    Args:
        kafka: the job's client properties, by name without the prefix `kafka.`.
    """
    mechanism = _mechanism(kafka)
    # Without SASL, a refused login means that the broker refuses the client's certificate.
    refused = _LOGIN_FIXES.get(
        mechanism or "", "give a client certificate that brokers accept, in kafka.ssl.keystore.*"
    )
    return {
        BrokerAuthorizationError: f"{refused}; if that is right, compare kafka.security.protocol and "
        "kafka.sasl.mechanism with the cluster's",
        ConfigurationError: "correct the setting that the message names, or kafka.ssl.*: the authority to trust, or a "
        "client certificate that the broker asks for",
        BrokerUnavailableError: "find out from the cluster's owner which kafka.security.protocol and "
        "kafka.sasl.mechanism the listener at this address has. Do not try weaker ones",
    }


def request_fixes(kafka: Mapping[str, str]) -> Fixes:
    """Return advice on failed requests for topics and records, by the class of the request's error.

    Args:
        kafka: the job's client properties, by name without the prefix `kafka.`.
    """
    acl = kafka_tool("kafka-acls", kafka, "--add --allow-principal User:NAME --operation READ --operation DESCRIBE "
                     "--topic NAME")  # fmt: skip
    granted = f"grant it, e.g. {acl}"
    if _mechanism(kafka) == "AWS_MSK_IAM":
        granted = (
            "grant kafka-cluster:DescribeTopic and kafka-cluster:ReadData on the topic in the identity's IAM policy"
        )
    return {
        UnknownTopicError: "create the topic, or correct subscribe, assign or subscribePattern",
        BrokerAuthorizationError: granted,
        BrokerUnavailableError: "restart the brokers that lead these partitions, or open the network path to them",
    }


def kafka_tool(tool: str, kafka: Mapping[str, str], arguments: str) -> str:
    """Return a command line of one of Kafka's tools (such as `kafka-acls`) for the job's cluster.

    If the security protocol is not PLAINTEXT, the command has `--command-config FILE`, where FILE stands for the user's
    file with the login.

    Args:
        kafka: the job's client properties, by name without the prefix `kafka.`.
        arguments: the tool's further arguments, which are put at the end.
    """
    servers = kafka.get("bootstrap.servers", "").replace(" ", "") or "HOST:PORT"
    login = "" if _protocol(kafka) == "PLAINTEXT" else " --command-config FILE"
    return f"{tool} --bootstrap-server {servers}{login} {arguments}"


def _protocol(kafka: Mapping[str, str]) -> str:
    return _property(kafka, "security.protocol")


def _mechanism(kafka: Mapping[str, str]) -> str | None:
    return _property(kafka, "sasl.mechanism") if _protocol(kafka).startswith("SASL") else None


def _property(kafka: Mapping[str, str], name: str) -> str:
    """Return the value of the client property `name` in upper case; Kafka's default if the job does not set it."""
    return kafka.get(name, CLIENT_PROPERTIES[name].default).strip().upper()
