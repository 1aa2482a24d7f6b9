"""The one error tree. A message says what was wrong, the value (never a secret), and what to do.

`retriable` says whether the same call may succeed if it is made again without any change by the user.
Errors of libraries are mapped to these at the edge where they appear, with `raise ... from error`.
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
    """Records that the query was to read are no longer there (Spark: `KAFKA_DATA_LOSS`, `failOnDataLoss`)."""


class TopicRecreatedError(DataLossError):
    """A topic was deleted and made again: the offsets that are wanted are those of records that are gone."""


class CorruptDataError(TieredStreamError):
    """Bytes of a log segment, an index, a manifest or a Fetch answer do not have their format."""


class UnsupportedDataError(TieredStreamError):
    """Well-formed data that this version cannot read."""


class UndecodableRecordError(TieredStreamError):
    """A key or a value is not of its format, or the table does not take its row, and `ingest.onDecodeError` is fail."""


class DataLimitError(UnsupportedDataError):
    """Data beyond a limit that an option sets; the message names the option. Nothing of it is read or passed over."""


@contextmanager
def naming(what: object) -> Iterator[None]:
    """Errors about data say what it is, by its text or by a function that makes one only then."""
    try:
        yield
    except (CorruptDataError, UnsupportedDataError) as error:
        raise type(error)(f"{what() if callable(what) else what}: {error}") from error


class StorageError(TieredStreamError):
    """The remote storage refused a request; the message names the object.

    `fallback_reason` says in the metrics why the brokers are read instead.
    """

    fallback_reason = "other"


class StorageObjectNotFoundError(StorageError):
    """The bucket or the object is not there."""

    fallback_reason = "not_found"


class StorageBucketNotFoundError(StorageObjectNotFoundError):
    """The whole bucket (or root folder) is not there: the configuration is wrong, not one object gone."""


class StorageAccessError(StorageError):
    """The storage refused the credentials, or there are none."""

    fallback_reason = "refused"


class StorageFormatError(StorageError):
    """A segment is stored in a format that is not known here (KIP-1248: `SupportedStorageFormatVersions`)."""

    fallback_reason = "unknown_format"


class SignedLocationError(StorageError):
    """A signed location is no URL, or leads where it may not (`remote.signed.location.hosts`)."""

    fallback_reason = "refused"


class StorageUnavailableError(StorageError):
    """The storage could not be reached, or asked to slow down, after all retries."""

    retriable = True


class StorageConnectTimeoutError(StorageUnavailableError):
    """No connection to the storage within `kafka.fetch.remote.connect.timeout.ms`."""

    fallback_reason = "connect_timeout"


class StorageReadTimeoutError(StorageUnavailableError):
    """The storage went silent for `kafka.fetch.remote.read.timeout.ms` in each attempt, or its response did not end
    within `remote.fetch.request.timeout.ms`."""

    fallback_reason = "read_timeout"


class BrokerError(TieredStreamError):
    """A broker answered with an error; the message carries Kafka's name for it."""


class UnknownTopicError(BrokerError):
    """A topic or partition that is named in the options does not exist (Kafka: UNKNOWN_TOPIC_OR_PARTITION)."""


class BrokerAuthorizationError(BrokerError):
    """The broker refused the user: authentication failed or an ACL is missing."""


class OffsetOutOfRangeError(BrokerError):
    """The broker no longer (or not yet) has the offset (Kafka: OFFSET_OUT_OF_RANGE)."""


class OpenTransactionError(TieredStreamError):
    """Records that are to be read belong to a transaction that is neither committed nor aborted yet."""

    retriable = True


class BrokerUnavailableError(BrokerError):
    """No broker answered within the time allowed."""

    retriable = True


class FetchTimeoutError(BrokerUnavailableError, TimeoutError):
    """No record came within `kafkaConsumer.pollTimeoutMs`, though the log goes on (Spark: `TimeoutException`)."""


class ReplayStoppedError(TieredStreamError):
    """Somebody has stopped a replay's query before its end; started again, it goes on."""

    retriable = True


class TableError(TieredStreamError):
    """The Delta table cannot be opened, written or committed to; the message names it."""


class DeadLetterLimitError(TableError):
    """A micro-batch has more dead letters than `ingest.maxDeadLetters`; nothing of it is in any table."""


class TableAccessError(TableError):
    """The store that the table is in refuses the credentials, has no such bucket, or cannot be reached."""


class SchemaRegistryError(TieredStreamError):
    """The schema registry refused a request, or what it answered is none of its answers; the message names it."""


class UnknownSchemaError(SchemaRegistryError):
    """The schema registry has no such schema, or no such subject."""


class SchemaRegistryUnavailableError(SchemaRegistryError):
    """The schema registry could not be reached, or could not answer, after all retries."""

    retriable = True
