"""Limits on the size of the data that is read, which is not trusted. Each limit names the option that sets it."""

from __future__ import annotations

from dataclasses import dataclass

from tiered_stream.errors import DataLimitError


@dataclass(frozen=True, slots=True)
class Limit:
    """Largest accepted number (`maximum`), and the name of the option that sets it."""

    option: str
    maximum: int

    def check(self, number: int, what: str) -> None:
        """Raise DataLimitError if `number` exceeds `maximum`. In the message, `what` says what `number` counts."""
        if number > self.maximum:
            raise self.exceeded(f"{what}: {number}")

    def exceeded(self, what: str) -> DataLimitError:
        """Return the error for data above the limit.

        `what` is the start of the message: it names the data and its size. The message also names the limit and the
        option.
        """
        return DataLimitError(
            f"{what}, more than the {self.maximum} that the option {self.option} allows; raise it to read this"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on the data that one query reads. Sizes are in bytes.

    Data above a limit raises DataLimitError and is never skipped. Memory stays bounded for data below the limits too,
    because records are decoded in units of bounded size, however many records a batch has.
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
