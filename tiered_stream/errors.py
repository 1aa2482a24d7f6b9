"""Classes of the errors that this package raises on purpose, in one class tree.

A message says what is wrong, the value (never a secret), and what to do. `retriable` is true if the same call may
succeed when it is repeated without any change by the user. The paragraph "Fix" in a class's docstring says what a user
can do. `tests/docs/error_pages.py` makes a page of the documentation from each class. Code that calls a library maps
the library's errors to these errors with `raise ... from error`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager


def printable(text: str) -> str:
    """Return the text with escapes in place of characters that are not shown, such as `\\x1b` for the escape character.

    Line ends stay. A peer's text could otherwise control the terminal that shows it.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)


def one_line(text: str) -> str:
    """Return the text as `printable` does, but with line ends escaped, so that a peer's text adds no lines to a log."""
    return printable(text).replace("\n", "\\n")


def some_of(texts: Sequence[str], most: int = 5) -> str:
    """Return the first `most` texts, separated by commas, and then the number of further texts (`and 3 more`)."""
    return ", ".join(texts[:most]) + (f" and {len(texts) - most:,} more" if len(texts) > most else "")


class TieredStreamError(Exception):
    """Base class of every error that this package raises on purpose. Its message has printable characters only.

    Fix: Catch it to handle all errors of this package.
    """

    retriable = False
    """True if the same call may succeed when it is repeated without any change by the user."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(printable(arg) if isinstance(arg, str) else arg for arg in args))


class ConfigurationError(TieredStreamError, ValueError):
    """An option is missing, unknown, malformed, or contradicts another.

    Fix: Correct the option that the message names.
    """


class DataLossError(TieredStreamError):
    """Records that the query should read no longer exist (Spark: `KAFKA_DATA_LOSS`, `failOnDataLoss`).

    Fix: Accept the loss with `failOnDataLoss=false`, or use a new checkpoint. Raise the topics' retention, or run
    the query more often.
    """


class TopicRecreatedError(DataLossError):
    """A topic was deleted and created again, so the requested offsets belong to records that no longer exist.

    Fix: Use a new checkpoint to read the new topic from its start. To continue at the same offsets, start once with
    `failOnDataLoss=false`.
    """


class CorruptDataError(TieredStreamError):
    """Data from the storage or from a broker is malformed, such as a log segment, an index, a manifest or a response.

    Fix: Compare the storage with the brokers by `tiered-stream verify --storage`. Restore the object that the message
    names, or read what the brokers still have with `remote.log.locator=none`.
    """


class UnsupportedDataError(TieredStreamError):
    """Data is well-formed, but this version of the package cannot read it.

    Fix: Update this package, or leave out the topic that the message names.
    """


class UndecodableRecordError(TieredStreamError):
    """A record's key or value cannot be decoded, or the table rejects the row, and `ingest.onDecodeError` is `fail`.

    Fix: Correct the schema. Or store the records that cannot be decoded in another table, with
    `ingest.onDecodeError=deadLetter` and `ingest.deadLetterTable`.
    """

    fits: Sequence[tuple[str, str, str]] = ()
    """Settings with which the record's JSON would decode: tuples of `key` or `value`, format, and schema.

    The format is `''` if the configured format is right already. The sequence is empty if no settings are known.
    """


class DataLimitError(UnsupportedDataError):
    """Data exceeds a limit that an option sets. The message names the option. The data is neither read nor skipped.

    Fix: If the data is yours and has the size that the message gives, raise the option that the message names.
    """


@contextmanager
def naming(what: object) -> Iterator[None]:
    """Put the data's name before the message of a CorruptDataError or UnsupportedDataError that the block raises.

    The class of the error stays. Other errors pass unchanged. `what` is the name, or a function that returns the name
    and is called only if there is an error.
    """
    try:
        yield
    except (CorruptDataError, UnsupportedDataError) as error:
        raise type(error)(f"{what() if callable(what) else what}: {error}") from error


class StorageError(TieredStreamError):
    """A request to the remote storage failed. The message names the object.

    If the records are then read from a broker, the metrics count this fallback under the label `fallback_reason`.

    Fix: Read the reason in the message, and run `tiered-stream doctor`, which checks credentials, bucket and segments.
    """

    fallback_reason = "other"


class StorageObjectNotFoundError(StorageError):
    """The bucket or the object does not exist in the remote storage.

    Fix: If the message names settings, correct them. If the object was deleted, restore it from the bucket's
    versions.
    """

    fallback_reason = "not_found"


class StorageBucketNotFoundError(StorageObjectNotFoundError):
    """The whole bucket (or root folder) does not exist, not only one object, so the configuration is wrong.

    Fix: Correct `rsm.config.storage.s3.bucket.name` or `remote.storage.uri`.
    """


class StorageAccessError(StorageError):
    """The storage refused the credentials, or there are none.

    Fix: Check the credentials, `s3:GetObject`, the region and the endpoint. Grant `s3:ListBucket`, too: without this
    permission, S3 refuses a request for an object that does not exist.
    """

    fallback_reason = "refused"


class StorageFormatError(StorageError):
    """A segment is stored in a format that this version does not know (KIP-1248: `SupportedStorageFormatVersions`).

    Fix: Update this package. With `remote.fallback=broker`, the brokers send the segment.
    """

    fallback_reason = "unknown_format"


class SignedLocationError(StorageError):
    """The signed location of a segment is not a URL, or the URL's host is not allowed.

    Only the hosts of the configured storage and the hosts in `remote.signed.location.hosts` are allowed.

    Fix: If the host belongs to your storage, add the host to `remote.signed.location.hosts`.
    """

    fallback_reason = "refused"


class StorageUnavailableError(StorageError):
    """After all retries, the storage still could not be reached, or still asked to slow down.

    Fix: Start again. If the storage asks to slow down, lower `remote.fetch.requests.in.flight`.
    """

    retriable = True


class StorageConnectTimeoutError(StorageUnavailableError):
    """No connection to the storage was made within `kafka.fetch.remote.connect.timeout.ms`.

    Fix: Check the endpoint and the network, or raise `kafka.fetch.remote.connect.timeout.ms`.
    """

    fallback_reason = "connect_timeout"


class StorageReadTimeoutError(StorageUnavailableError):
    """The storage sent nothing for `kafka.fetch.remote.read.timeout.ms` in each attempt, or its response did not end
    within `remote.fetch.request.timeout.ms`.

    Fix: Raise the timeout that the message names, or lower `remote.fetch.requests.in.flight`.
    """

    fallback_reason = "read_timeout"


class BrokerError(TieredStreamError):
    """A broker responded with an error. The message contains Kafka's name of the error.

    Fix: Look up Kafka's name of the error, and read the broker's own log.
    """


class UnknownTopicError(BrokerError):
    """A topic or partition that the options name does not exist (Kafka: UNKNOWN_TOPIC_OR_PARTITION).

    Fix: Create the topic, or correct the option that names it.
    """


class BrokerAuthorizationError(BrokerError):
    """The broker refused the user: authentication failed or an ACL is missing.

    Fix: Grant the ACL that the message names. If the login was refused, correct `kafka.sasl.*`.
    """


class OffsetOutOfRangeError(BrokerError):
    """The broker no longer (or not yet) has the offset (Kafka: OFFSET_OUT_OF_RANGE).

    Fix: Start at an offset that the log has: retention may have deleted the records, or the topic was created
    again.
    """


class OpenTransactionError(TieredStreamError):
    """Records that should be read belong to a transaction that is neither committed nor aborted yet.

    Fix: Wait until the transaction ends, or set `kafka.isolation.level=read_uncommitted`. A batch query with
    `failOnDataLoss=false` reads up to the transaction's first offset.
    """

    retriable = True


class BrokerUnavailableError(BrokerError):
    """No broker responded within the allowed time.

    Fix: Check `kafka.bootstrap.servers` and `kafka.security.protocol`, and that the brokers are up.
    """

    retriable = True


class FetchTimeoutError(BrokerUnavailableError, TimeoutError):
    """No record came within `kafkaConsumer.pollTimeoutMs`, though the log has more offsets (Spark: `TimeoutException`).

    Fix: Read the log of the broker that leads the partition, or raise `kafkaConsumer.pollTimeoutMs`.
    """


class ReplayStoppedError(TieredStreamError):
    """A replay's query was stopped before its end. The replay continues if it is started again.

    Fix: Start the replay again with the same arguments.
    """

    retriable = True


class ExportError(TieredStreamError):
    """A file or a folder of an export cannot be written or read.

    Fix: Read the reason in the message, such as a full disk or missing rights. Start the same command again.
    """

    retriable = True


class TableError(TieredStreamError):
    """A Delta table cannot be opened, written or committed to. The message names the table.

    Fix: Read the reason in the message. The page Troubleshooting explains frequent reasons.
    """


class DeadLetterLimitError(TableError):
    """A micro-batch has more dead letters than `ingest.maxDeadLetters`. No row of the micro-batch is in any table.

    Fix: Look at the records. Correct the schema or raise `ingest.maxDeadLetters`, and start the query again.
    """


class TableAccessError(TableError):
    """The object store of a table refuses the credentials, does not have the bucket, or cannot be reached.

    Fix: Check `ingest.storage.*` and the session's settings (`fs.s3a.*`, `fs.azure.*`, `fs.gs.*`): credentials,
    endpoint and bucket.
    """


class SchemaRegistryError(TieredStreamError):
    """The schema registry refused a request or sent a malformed response. The message names the registry.

    Fix: Check `ingest.schema.registry.url` and the credentials.
    """


class UnknownSchemaError(SchemaRegistryError):
    """The schema registry does not have the requested schema or subject.

    Fix: Register the schema, or correct the subject's name (`ingest.value.subject`).
    """


class SchemaRegistryUnavailableError(SchemaRegistryError):
    """The schema registry could not be reached, or could not serve the request, after all retries.

    Fix: Check that the registry is up, and start the query again.
    """

    retriable = True
