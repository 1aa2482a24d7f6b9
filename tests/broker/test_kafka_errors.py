from __future__ import annotations

import ssl

import kafka.errors as kafka_errors
import pytest

from tiered_stream.broker.kafka_errors import AbsentBrokerError, code_name, connection_fault, is_retriable
from tiered_stream.errors import (
    BrokerAuthorizationError,
    BrokerError,
    BrokerUnavailableError,
    ConfigurationError,
    StorageError,
)


def fault(error: BaseException) -> Exception:
    return connection_fault(error, "broker 1 at a:1", "kafka.security.protocol = PLAINTEXT")


def test_error_codes_have_kafkas_names() -> None:
    assert [code_name(code) for code in (-1, 1, 3, 6, 75, -9)] == [
        "UNKNOWN_SERVER_ERROR",
        "OFFSET_OUT_OF_RANGE",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "NOT_LEADER_OR_FOLLOWER",
        "UNKNOWN_LEADER_EPOCH",
        "error code -9",
    ]


def test_every_code_that_kafkas_consumer_polls_again_for_may_be_retried() -> None:
    """Kafka: `FetchCollector.handleInitializeErrors`, and `FetchSessionHandler.handleResponse` for the last three."""
    polled_again = (9, 6, 74, 56, 78, 3, 100, 103, 75, -1, 5, 7, 70, 71, 106)
    assert all(is_retriable(code) for code in polled_again)
    assert not any(is_retriable(code) for code in (0, 1, 2, 17, 29, 35))


def test_a_code_that_is_not_known_stands_for_an_unknown_server_error() -> None:
    assert is_retriable(9999)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (kafka_errors.KafkaConnectionError("111 ECONNREFUSED"), AbsentBrokerError),
        (kafka_errors.KafkaConnectionError("Connection timed out"), BrokerUnavailableError),
        (kafka_errors.RequestTimedOutError(), BrokerUnavailableError),
        (kafka_errors.UnknownBrokerIdError(4), BrokerUnavailableError),
        (kafka_errors.KafkaConnectionError(ssl.SSLEOFError(8, "EOF")), BrokerUnavailableError),
        (kafka_errors.KafkaConnectionError(ssl.SSLCertVerificationError(1, "bad")), ConfigurationError),
        (kafka_errors.SaslAuthenticationFailedError("no"), BrokerAuthorizationError),
        (kafka_errors.SaslAuthenticationFailedError("[8f] Too many connects"), BrokerUnavailableError),
        (kafka_errors.IncompatibleBrokerVersion("Fetch"), BrokerError),
        (kafka_errors.InvalidReceiveError("length"), BrokerError),
        (BrokerUnavailableError("kafka.sasl.x: no token"), BrokerUnavailableError),
        (BrokerAuthorizationError("kafka.sasl.x: refused"), BrokerAuthorizationError),
        (KeyError("s"), BrokerError),
    ],
)
def test_a_failed_request_names_the_broker(error: Exception, kind: type[Exception]) -> None:
    found = fault(error)

    assert type(found) is kind
    assert "broker 1 at a:1" in str(found)


@pytest.mark.parametrize(
    ("code", "fix"),
    [
        (10, "renew the server's certificate"),
        (20, r"trust the authority .* kafka\.ssl\.truststore\.location"),
        (62, "connect by a name that the certificate has"),
        (1, r"check kafka\.ssl\.\*, .* kafka\.security\.protocol = PLAINTEXT"),
    ],
)
def test_a_refused_certificate_has_its_fix(code: int, fix: str) -> None:
    refused = ssl.SSLCertVerificationError(1, "bad")
    refused.verify_code, refused.verify_message = code, "certificate is bad."
    with pytest.raises(ConfigurationError, match=f"TLS .*certificate is bad; {fix}"):
        raise fault(kafka_errors.KafkaConnectionError(refused))


def test_a_tls_failure_is_found_under_what_kafka_python_made_of_it() -> None:
    try:
        try:
            raise ssl.SSLCertVerificationError(1, "CERTIFICATE_VERIFY_FAILED")
        except ssl.SSLError as error:
            raise kafka_errors.KafkaConnectionError(f"Handshake failed: {error}")  # noqa: B904 - as kafka-python does
    except kafka_errors.KafkaConnectionError as error:
        assert isinstance(fault(error), ConfigurationError)


HOSTILE = "\x1b]0;mine\x07\x1b[2J\u202efine\x9b31m\ntiered_stream: all is well"


@pytest.mark.parametrize(
    "error",
    [
        kafka_errors.SaslAuthenticationFailedError(HOSTILE),
        kafka_errors.UnsupportedSaslMechanismError(HOSTILE),
        kafka_errors.UnsupportedVersionError(HOSTILE),
        kafka_errors.KafkaConnectionError(HOSTILE),
        kafka_errors.KafkaProtocolError(HOSTILE),
        ssl.SSLError(HOSTILE),
        ValueError(HOSTILE),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_peers_text_neither_controls_the_terminal_nor_adds_lines(error: Exception) -> None:
    text = str(connection_fault(error, "broker 1", "kafka.security.protocol = SASL_SSL"))
    assert text.isprintable() and "fine" in text


def test_no_error_of_the_package_controls_the_terminal() -> None:
    assert str(StorageError(f"the service said {HOSTILE}")) == (
        "the service said \\x1b]0;mine\\x07\\x1b[2J\\u202efine\\x9b31m\ntiered_stream: all is well"
    )
