"""A record as a test produces it, and as a consumer returns it."""

from __future__ import annotations

from dataclasses import dataclass

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """Record of a producer. Timestamps are milliseconds since the epoch."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int = 1_700_000_000_000


@dataclass(frozen=True, slots=True, order=True)
class Row:
    """Row of a consumer. `timestamp_type` is 0 for CreateTime, 1 for LogAppendTime."""

    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    def record(self) -> Record:
        """Return the producer's record."""
        return Record(self.key, self.value, self.headers, self.timestamp_ms)
