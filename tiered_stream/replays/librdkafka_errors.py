"""Handling of librdkafka's errors: repeat a call after a temporary error, or convert the error to this package's."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from tiered_stream import errors

T = TypeVar("T")

PATIENCE_SECONDS = 60.0
"""Time in seconds for which a call is repeated while its errors are temporary: Kafka's default of
`default.api.timeout.ms`.
"""
_PAUSE_SECONDS = 0.2

_FENCED = frozenset((KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH))
_ACLS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "WRITE on the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "READ on the replay's consumer groups (prefix replay-)",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "WRITE on the replay's transactional ids (prefix replay-)",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "IDEMPOTENT_WRITE on the cluster",
}
_LOGIN = frozenset((KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL))
_TEMPORARY = frozenset(
    (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR,
     KafkaError.CONCURRENT_TRANSACTIONS, KafkaError.REQUEST_TIMED_OUT, KafkaError.NETWORK_EXCEPTION,
     KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError._TRANSPORT, KafkaError._WAIT_COORD, KafkaError._TIMED_OUT,
     KafkaError._TIMED_OUT_QUEUE, KafkaError._MSG_TIMED_OUT, KafkaError._ALL_BROKERS_DOWN)
)  # fmt: skip
_REFUSED_RECORDS = {
    KafkaError.MSG_SIZE_TOO_LARGE: (
        "a record is larger than the target takes: raise its max.message.bytes, or, where records are compressed "
        "below it, target.kafka.max.request.size with target.kafka.compression.type"
    ),
    KafkaError.INVALID_TIMESTAMP: (
        "a record's timestamp is refused: see the target's message.timestamp.before.max.ms and after.max.ms"
    ),
    KafkaError.INVALID_RECORD: (
        "the target refuses a record. Where it is compacted, it takes none without a key; else see its "
        "message.timestamp.* settings"
    ),
}


def retry(call: Callable[[], T], doing: str) -> T:
    """Return the result of `call`. If `call` raises a temporary error of librdkafka, call it again for up to 60 s.

    Args:
        doing: the action and the topic for an error message, such as `producing to orders-copy`.

    Raises:
        BrokerError, ConfigurationError: `call` has raised another error of librdkafka, or temporary errors for 60 s.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return call()
        except KafkaException as exception:
            error = error_of(exception)
            if not (error.code() in _TEMPORARY or error.retriable()) or time.monotonic() > deadline:
                raise target_fault(error, doing) from exception
        time.sleep(_PAUSE_SECONDS)


def error_of(exception: KafkaException) -> KafkaError:
    """Return the `KafkaError` that `exception` has as its first argument."""
    error = exception.args[0]
    assert isinstance(error, KafkaError)
    return error


def target_fault(error: KafkaError, doing: str) -> errors.TieredStreamError:
    """Return an error of this package, with advice, for an error of librdkafka.

    Args:
        doing: the action and the topic for the message, such as `producing to orders-copy`.
    """
    code, message, kafka = error.code(), f"{doing}: {error.str()}", f"(Kafka: {error.name()})"
    if code in _FENCED:
        return errors.BrokerError(
            f"{doing}: another task of this replay has taken over. Is the replay running twice? {kafka}"
        )
    if code in _ACLS:
        return errors.BrokerAuthorizationError(f"{doing}: the user is not authorized: grant {_ACLS[code]} {kafka}")
    if code in _LOGIN:
        return errors.BrokerAuthorizationError(f"{message}; check target.kafka.sasl.*, ssl.* and security.protocol")
    if code in _REFUSED_RECORDS:
        return errors.ConfigurationError(f"{doing}: {_REFUSED_RECORDS[code]} {kafka}")
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
        return errors.UnknownTopicError(f"{doing}: there is no such topic or partition {kafka}")
    if code in _TEMPORARY:
        return errors.BrokerUnavailableError(f"{message}. Are the target's brokers up?")
    return errors.BrokerError(f"{message} {kafka}")
