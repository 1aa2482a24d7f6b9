"""All errors that this package raises on purpose, in one class tree.

A message says what is wrong, the value (never a secret), and what to do. `retriable` is true if the same call may
succeed when it is repeated without any change by the user. Code that calls a library maps the library's errors to
these errors with `raise ... from error`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class TieredStreamError(Exception):
    """Root of every error that this package raises on purpose."""

    retriable = False


class ConfigurationError(TieredStreamError, ValueError):
    """An option is missing, unknown, malformed, or contradicts another."""


class DataLossError(TieredStreamError):
    """Records that the query should read no longer exist (Spark: `KAFKA_DATA_LOSS`, `failOnDataLoss`)."""


class TopicRecreatedError(DataLossError):
    """A topic was deleted and created again, so the requested offsets belong to records that no longer exist."""


class CorruptDataError(TieredStreamError):
    """Bytes of a log segment, an index, a manifest or a Fetch response are malformed."""


class UnsupportedDataError(TieredStreamError):
    """Well-formed data that this version cannot read."""


class UndecodableRecordError(TieredStreamError):
    """A key or a value cannot be decoded, or the table rejects its row, and `ingest.onDecodeError` is `fail`."""


class DataLimitError(UnsupportedDataError):
    """Data exceeds a limit that an option sets. The message names the option. The data is neither read nor skipped."""


@contextmanager
def naming(what: object) -> Iterator[None]:
    """Prefix errors about corrupt or unsupported data with the data's name.

    `what` is the name, or a function that returns the name and is called only if there is an error.
    """
    try:
        yield
    except (CorruptDataError, UnsupportedDataError) as error:
        raise type(error)(f"{what() if callable(what) else what}: {error}") from error


class StorageError(TieredStreamError):
    """A request to the remote storage failed. The message names the object.

    `fallback_reason` is the label in the metrics for why the broker is read instead.
    """

    fallback_reason = "other"


class StorageObjectNotFoundError(StorageError):
    """The bucket or the object does not exist in the remote storage."""

    fallback_reason = "not_found"


class StorageBucketNotFoundError(StorageObjectNotFoundError):
    """The whole bucket (or root folder) does not exist, not only one object, so the configuration is wrong."""


class StorageAccessError(StorageError):
    """The storage refused the credentials, or there are none."""

    fallback_reason = "refused"


class StorageFormatError(StorageError):
    """A segment is stored in a format that this version does not know (KIP-1248: `SupportedStorageFormatVersions`)."""

    fallback_reason = "unknown_format"


class SignedLocationError(StorageError):
    """A signed location is not a URL, or its host is not allowed by `remote.signed.location.hosts`."""

    fallback_reason = "refused"


class StorageUnavailableError(StorageError):
    """The storage could not be reached, or asked to slow down, after all retries."""

    retriable = True


class StorageConnectTimeoutError(StorageUnavailableError):
    """No connection to the storage was made within `kafka.fetch.remote.connect.timeout.ms`."""

    fallback_reason = "connect_timeout"


class StorageReadTimeoutError(StorageUnavailableError):
    """The storage sent nothing for `kafka.fetch.remote.read.timeout.ms` in each attempt, or its response did not end
    within `remote.fetch.request.timeout.ms`."""

    fallback_reason = "read_timeout"


class BrokerError(TieredStreamError):
    """A broker responded with an error. The message contains Kafka's name of the error."""


class UnknownTopicError(BrokerError):
    """A topic or partition that the options name does not exist (Kafka: UNKNOWN_TOPIC_OR_PARTITION)."""


class BrokerAuthorizationError(BrokerError):
    """The broker refused the user: authentication failed or an ACL is missing."""


class OffsetOutOfRangeError(BrokerError):
    """The broker no longer (or not yet) has the offset (Kafka: OFFSET_OUT_OF_RANGE)."""


class OpenTransactionError(TieredStreamError):
    """Records that should be read belong to a transaction that is neither committed nor aborted yet."""

    retriable = True


class BrokerUnavailableError(BrokerError):
    """No broker responded within the allowed time."""

    retriable = True


class FetchTimeoutError(BrokerUnavailableError, TimeoutError):
    """No record came within `kafkaConsumer.pollTimeoutMs`, though the log continues (Spark: `TimeoutException`)."""


class ReplayStoppedError(TieredStreamError):
    """A replay's query was stopped before its end. The replay continues if it is started again."""

    retriable = True


class TableError(TieredStreamError):
    """A Delta table cannot be opened, written or committed to. The message names the table."""


class DeadLetterLimitError(TableError):
    """A micro-batch has more dead letters than `ingest.maxDeadLetters`. No row of the micro-batch is in any table."""


class TableAccessError(TableError):
    """The object store of a table refuses the credentials, does not have the bucket, or cannot be reached."""


class SchemaRegistryError(TieredStreamError):
    """The schema registry refused a request or sent a malformed response. The message names the registry."""


class UnknownSchemaError(SchemaRegistryError):
    """The schema registry does not have the requested schema or subject."""


class SchemaRegistryUnavailableError(SchemaRegistryError):
    """The schema registry could not be reached, or could not serve the request, after all retries."""

    retriable = True
