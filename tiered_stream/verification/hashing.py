"""What tasks hash, as an option of the source of sums, and the columns that they columns with."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import orjson

from tiered_stream.options.positions import TimeRange

HASHING = "verify.hashing"
"""Option that says what is hashed; its value comes from `Hashing.to_json`."""
SUMS = ("topic", "partition", "bucket", "records", "high", "low")
"""Columns of a row of sums, for one bucket of offsets (see `row_hash.bucket_sums`).

Several tasks may give rows of the same bucket, which must be added up.
"""
HASHES = ("topic", "partition", "offset", "hash")


@dataclass(frozen=True, slots=True)
class Hashing:
    """Choice of what is hashed: the offset and `columns`, for rows whose timestamp is in `times` (None: all rows).

    `by_row`: return a hash for each row instead of sums.
    """

    columns: tuple[str, ...]
    times: TimeRange | None = None
    by_row: bool = False

    @property
    def result_columns(self) -> tuple[str, ...]:
        """Return the names of the result's columns; all but the first two are 64-bit integers."""
        return HASHES if self.by_row else SUMS

    def to_json(self) -> str:
        """Return the value of the source's option `HASHING`."""
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def from_json(cls, text: str) -> Hashing:
        """Parse the value of the option `HASHING`; the inverse of `to_json`."""
        values = orjson.loads(text)
        times = values["times"]
        return cls(tuple(values["columns"]), None if times is None else TimeRange(**times), values["by_row"])
