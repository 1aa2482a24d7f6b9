"""The most that is read of what a stranger may have written: each limit once, with the option that raises it."""

from __future__ import annotations

from dataclasses import dataclass

from tiered_stream.errors import DataLimitError


@dataclass(frozen=True, slots=True)
class Limit:
    """The most of something that is read, and the option's name."""

    option: str
    most: int

    def check(self, number: int, what: str) -> None:
        """Raises DataLimitError: `what`, of which there are `number`, is beyond the limit."""
        if number > self.most:
            raise self.exceeded(f"{what}: {number}")

    def exceeded(self, what: str) -> DataLimitError:
        """The error for `what`, which is beyond the limit."""
        return DataLimitError(
            f"{what}, more than the {self.most} that the option {self.option} allows; raise it to read this"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Those of one query. Sizes are in bytes.

    What is legal but not sane is refused, never skipped. Memory is bounded below the limits too: records are decoded in
    units, however many a batch has.
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
