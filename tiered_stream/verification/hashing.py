"""Option `verify.hashing` of the source `tiered_stream_sums`, which selects the rows and columns to hash.

The names of the source's result columns are here, too.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import orjson

from tiered_stream.options.positions import TimeRange

HASHING = "verify.hashing"
"""Name of the option whose value is the JSON of `Hashing`."""
SUMS = ("topic", "partition", "bucket", "records", "high", "low")
"""Columns of a row with the sums over one bucket of offsets (see `row_hash.bucket_sums`).

Several tasks may return rows of the same bucket, whose sums the reader must add up.
"""
HASHES = ("topic", "partition", "offset", "hash")


@dataclass(frozen=True, slots=True)
class Hashing:
    """Selection of the rows and columns that tasks hash. A row hash covers the offset and `columns`.

    Only rows with timestamps within `times` are hashed; None: all rows. If `by_row` is true, tasks return a hash for
    each row instead of sums.
    """

    columns: tuple[str, ...]
    times: TimeRange | None = None
    by_row: bool = False

    @property
    def result_columns(self) -> tuple[str, ...]:
        """Return the names of the columns that tasks return; all except `topic` and `partition` are 64-bit integers."""
        return HASHES if self.by_row else SUMS

    def to_json(self) -> str:
        """Return this object as JSON, which is the value of the source's option `HASHING`."""
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def from_json(cls, text: str) -> Hashing:
        """Parse the value of the option `HASHING`, which `to_json` returned."""
        values = orjson.loads(text)
        times = values["times"]
        return cls(tuple(values["columns"]), None if times is None else TimeRange(**times), values["by_row"])
