"""Limits on the size of data that is read from the storage or from brokers, because these data are not trusted."""

from __future__ import annotations

from dataclasses import dataclass

from tiered_stream.errors import DataLimitError


@dataclass(frozen=True, slots=True)
class Limit:
    """Upper limit of a size in bytes or of a number of records, headers or other things.

    `maximum` is the largest accepted value, and `option` is the name of the option that sets `maximum`.
    """

    option: str
    maximum: int

    def check(self, number: int, what: str) -> None:
        """Raise DataLimitError if `number` exceeds `maximum`.

        `what` names the value for the error's message, such as "the batch's length".
        """
        if number > self.maximum:
            raise self.exceeded(f"{what}: {number}")

    def exceeded(self, what: str) -> DataLimitError:
        """Return the error for data above the limit. Its message names `maximum` and `option`.

        `what` is the start of the message: the name of the data, and the data's size.
        """
        return DataLimitError(
            f"{what}, more than the {self.maximum} that the option {self.option} allows; raise it to read this"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on the data that one query reads. Data above a limit raises DataLimitError and is never skipped.

    `batch_records` is the maximum number of records in a record batch, and `record_headers` the maximum number of
    headers in a record. The other limits are in bytes. `batch` and `decompressed_batch` limit a record batch, `chunk`
    and `manifest` limit what Aiven's plugin writes, and `index` limits an index file of a segment. `snapshot` limits a
    segment's producer snapshot and its leader epoch checkpoint. A batch below the limits is decoded piece by piece, so
    the memory for decoded records is bounded however many records the batch has.
    """

    batch: Limit = Limit("remote.max.batch.bytes", 256 << 20)
    decompressed_batch: Limit = Limit("remote.max.decompressed.batch.bytes", 256 << 20)
    batch_records: Limit = Limit("remote.max.batch.records", 50_000_000)
    record_headers: Limit = Limit("remote.max.record.headers", 100_000)
    chunk: Limit = Limit("remote.max.chunk.bytes", 128 << 20)
    manifest: Limit = Limit("remote.max.manifest.bytes", 4 << 20)
    index: Limit = Limit("remote.max.index.bytes", 64 << 20)
    snapshot: Limit = Limit("remote.max.snapshot.bytes", 16 << 20)


DEFAULT_LIMITS = Limits()
