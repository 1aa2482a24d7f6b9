"""Conversion of Kafka's error codes and kafka-python's exceptions into errors of `tiered_stream.errors`."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import kafka.errors as kafka_errors

from tiered_stream import errors

_TRANSIENT_TLS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
_TOO_MANY = "Too many connects"
"""Text in MSK's error when it refuses an AWS_MSK_IAM login only because of too many connections in this second."""
_REFUSALS = (
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.IllegalSaslStateError,
    kafka_errors.AuthorizationError,
)


def code_name(error_code: int) -> str:
    """Return Kafka's name of an error code, such as `NOT_LEADER_OR_FOLLOWER`; `error code N` if the name is unknown."""
    if error_code == kafka_errors.NotLeaderForPartitionError.errno:
        return "NOT_LEADER_OR_FOLLOWER"  # its name since Kafka 2.6
    if error_code == kafka_errors.UnknownError.errno:
        return "UNKNOWN_SERVER_ERROR"
    kind = kafka_errors.kafka_errors.get(error_code)
    return str(kind.message) if kind and kind.message else f"error code {error_code}"


def is_retriable(error_code: int) -> bool:
    """Return whether a request that got this error code may succeed later, perhaps at another broker.

    True also for UNKNOWN_SERVER_ERROR and for codes that kafka-python does not know.
    """
    return bool(kafka_errors.for_code(error_code).retriable) or is_unknown(error_code)


def is_unknown(error_code: int) -> bool:
    """Return whether the code is UNKNOWN_SERVER_ERROR, or one that kafka-python does not know (Kafka: `Errors`).

    A broker responds with UNKNOWN_SERVER_ERROR when its read from remote storage failed. Kafka's consumer repeats the
    request (`FetchCollector`, `OffsetFetcherUtils`, `OffsetsForLeaderEpochUtils`).
    """
    return issubclass(kafka_errors.for_code(error_code), kafka_errors.UnknownError)


def response_fault(error_code: int, subject: str, needed_acl: str) -> errors.BrokerError:
    """Return the error for a response with the permanent error `error_code`.

    Args:
        subject: the topic, or the partition and the offset, that the request was about, for the message.
        needed_acl: the ACL that the message names if the user is not authorized.
    """
    name = code_name(error_code)
    kind = kafka_errors.for_code(error_code)
    if issubclass(kind, kafka_errors.AuthorizationError):
        return errors.BrokerAuthorizationError(
            f"{subject}: the user is not authorized: grant {needed_acl} (Kafka: {name})"
        )
    if kind is kafka_errors.OffsetOutOfRangeError:
        return errors.OffsetOutOfRangeError(f"{subject}: not in the log (Kafka: {name})")
    if kind is kafka_errors.InvalidTopicError:
        return errors.UnknownTopicError(f"{subject}: not a valid topic name (Kafka: {name})")
    return errors.BrokerError(f"{subject}: Kafka responded with {name}")


def connection_fault(error: BaseException, broker: str, security: str) -> errors.TieredStreamError:
    """Return the package's error for an exception that ended a request to `broker` without a response.

    `broker` names the broker. `security` are the security settings, which the message names if they may be wrong. The
    result is BrokerUnavailableError if the request may succeed later.
    """
    if isinstance(error, errors.TieredStreamError):  # raised while a token or credentials for a login were obtained
        return type(error)(f"for the login at {broker}: {error}")
    tls = next((cause for cause in _causes(error) if isinstance(cause, ssl.SSLError)), None)
    if tls is not None and not isinstance(tls, _TRANSIENT_TLS):
        reason = getattr(tls, "verify_message", None) or getattr(tls, "reason", None) or tls
        return errors.ConfigurationError(
            f"{broker}: TLS failed: {reason}; check kafka.ssl.*, and whether the listener speaks {security}"
        )
    if isinstance(error, kafka_errors.SaslAuthenticationFailedError) and _TOO_MANY in str(error):
        return errors.BrokerUnavailableError(
            f"{broker}: {error}; where that goes on, set kafka.reconnect.backoff.ms=1000 and read with fewer tasks"
        )
    if isinstance(error, _REFUSALS):
        return errors.BrokerAuthorizationError(
            f"{broker} refused the login: {error}; check kafka.sasl.* and {security}"
        )
    if isinstance(error, kafka_errors.UnsupportedVersionError):
        return errors.BrokerError(f"{broker} is too old or too new: {error}")
    if isinstance(error, kafka_errors.UnknownBrokerIdError):  # the broker left the cluster, or has not joined yet
        return errors.BrokerUnavailableError(f"{broker}: not among the brokers of the cluster")
    if isinstance(error, kafka_errors.KafkaError) and error.retriable:
        return errors.BrokerUnavailableError(f"{broker}: {_reason(error)}")
    if isinstance(error, kafka_errors.KafkaProtocolError):
        return errors.BrokerError(
            f"{broker} sent a response that is not Kafka's protocol ({error}). Does the listener speak {security}?"
        )
    return errors.BrokerError(f"{broker}: {type(error).__name__}: {error}")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the exception and its causes, at most 8.

    A cause is an exception in the arguments, the `__cause__` or the `__context__` of the exception before.
    """
    for _ in range(8):
        if error is None:
            return
        yield error
        wrapped = next((arg for arg in error.args if isinstance(arg, BaseException)), None)
        error = wrapped or error.__cause__ or error.__context__


def _reason(error: kafka_errors.KafkaError) -> str:
    return ": ".join(str(arg) for arg in error.args) or "the connection was closed"
