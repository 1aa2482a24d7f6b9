"""Conversion of Kafka's error codes and kafka-python's exceptions into errors of `tiered_stream.errors`."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator

import kafka.errors as kafka_errors

from tiered_stream import errors
from tiered_stream.errors import one_line

_TRANSIENT_TLS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
_TOO_MANY = "Too many connects"
"""Text in MSK's error when it refuses an AWS_MSK_IAM login only because of too many connections in this second."""
_REFUSALS = (
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.IllegalSaslStateError,
    kafka_errors.AuthorizationError,
)
_KERBEROS_CAUSES = (
    ", whether the clocks of this machine and of the broker differ by more than 5 minutes, and whether the broker's "
    "key table has the KDC's current key"
)
_ABSENT = {
    "DNS Resolution failure": "the name is not known here (DNS)",
    "ECONNREFUSED": "nobody listens there (connection refused)",
    "EHOSTUNREACH": "there is no route to the host",
    "ENETUNREACH": "there is no route to the network",
}
"""Reason that our message gives if no broker can respond at an address, by a part of kafka-python's error text."""
_HTTP = b"HTTP", b"<"
"""First bytes of an HTTP server's response; `<` begins the page of a server that takes the request for HTTP/0.9."""
TLS = b"\x15\x03", b"\x16\x03"
"""First bytes of a TLS record that holds an alert or a handshake message."""
_TRUST = (
    "trust the authority that issued it, if the server's owner confirms that (for brokers: "
    "kafka.ssl.truststore.location)"
)
_RENAME = "connect by a name that the certificate has, or have one issued that names this address"
_CERTIFICATE_FIXES = {
    9: "set this machine's clock, or have the server's certificate issued again",
    10: "renew the server's certificate",
    **dict.fromkeys((18, 19, 20, 21), _TRUST),
    **dict.fromkeys((62, 64), _RENAME),
}
"""Advice on a server's certificate that is not yet valid, has expired, has an unknown authority, or has a wrong name.

The keys are OpenSSL's error codes (X509_V_ERR_*).
"""
_LONGEST_TEXT = 1_000
_FRAME_LENGTH = re.compile(r"Invalid frame length: (-?\d+)")


class AbsentBrokerError(errors.BrokerUnavailableError):
    """Error for an address where no broker can respond: the name is unknown, or nothing accepts connections there."""


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

    `broker` is the text that names the broker in the message. `security` is a text with the security settings, which
    the message repeats if the settings may be wrong. The result is BrokerUnavailableError if the same request may
    succeed later.
    """
    if isinstance(error, errors.TieredStreamError):  # raised while a token or credentials for a login were obtained
        return type(error)(f"for the login at {broker}: {error}")
    tls = next((cause for cause in _causes(error) if isinstance(cause, ssl.SSLError)), None)
    if tls is not None and not isinstance(tls, _TRANSIENT_TLS):
        reason = _said(getattr(tls, "verify_message", None) or getattr(tls, "reason", None) or tls).rstrip(".")
        fix = certificate_fix(tls) or f"check kafka.ssl.*, and whether the listener speaks {security}"
        return errors.ConfigurationError(f"{broker}: TLS failed: {reason}; {fix}")
    if isinstance(error, kafka_errors.SaslAuthenticationFailedError) and _TOO_MANY in str(error):
        return errors.BrokerUnavailableError(
            f"{broker}: {_said(error)}; where that goes on, set kafka.reconnect.backoff.ms=1000 and read with fewer "
            "tasks"
        )
    if isinstance(error, _REFUSALS):
        also = _KERBEROS_CAUSES if "GSSAPI" in security else ""
        return errors.BrokerAuthorizationError(
            f"{broker} refused the login: {_said(error)}; check kafka.sasl.* and {security}{also}"
        )
    if isinstance(error, kafka_errors.UnsupportedVersionError):
        return errors.BrokerError(f"{broker} is too old or too new: {_said(error)}")
    if isinstance(error, kafka_errors.UnknownBrokerIdError):  # the broker left the cluster, or has not joined yet
        return errors.BrokerUnavailableError(f"{broker}: not among the brokers of the cluster")
    if isinstance(error, kafka_errors.KafkaError) and error.retriable:
        reason = _said(": ".join(map(str, error.args)) or "the connection was closed")
        absent = next((text for part, text in _ABSENT.items() if part in reason), None)
        return (
            AbsentBrokerError(f"{broker}: {absent}") if absent else errors.BrokerUnavailableError(f"{broker}: {reason}")
        )
    if isinstance(error, kafka_errors.KafkaProtocolError):
        foreign = foreign_protocol(_first_bytes(error))
        if foreign:
            return errors.ConfigurationError(f"{broker} {foreign}")
        return errors.BrokerError(
            f"{broker} sent a response that is not Kafka's protocol ({_said(error)}). Does the listener speak "
            f"{security}?"
        )
    return errors.BrokerError(f"{broker}: {type(error).__name__}: {_said(error)}")


def _said(error: object) -> str:
    """Return the first 1,000 characters of an error's text as one line. The text may contain bytes from the network."""
    return one_line(str(error)[:_LONGEST_TEXT])


def certificate_fix(error: ssl.SSLError) -> str:
    """Return advice on the server's certificate that `error` refuses; empty: `error` has another reason."""
    return _CERTIFICATE_FIXES.get(getattr(error, "verify_code", 0), "")


def foreign_protocol(first_bytes: bytes) -> str:
    """Return which protocol a server speaks that is not Kafka's (HTTP or TLS), and which setting to change.

    `first_bytes` is the beginning of the server's response to a Kafka request without TLS. The text continues a
    sentence whose subject is the server. It is empty if the server may speak Kafka's protocol.
    """
    if first_bytes.startswith(_HTTP):
        return (
            "is an HTTP server, such as an S3 endpoint, and no Kafka listener: correct the host and port in "
            "kafka.bootstrap.servers"
        )
    if first_bytes.startswith(TLS):
        return "speaks TLS: set kafka.security.protocol to SSL, or to SASL_SSL if it asks for a login"
    return ""


def _first_bytes(error: kafka_errors.KafkaProtocolError) -> bytes:
    """Return the first 4 bytes of a response that kafka-python refused because they are no valid length.

    The result is empty if `error` has another reason.
    """
    match = next((match for cause in _causes(error) if (match := _FRAME_LENGTH.search(str(cause)))), None)
    return int(match[1]).to_bytes(4, "big", signed=True) if match else b""


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
