"""What is hashed, and the columns of the answer: what a comparison's driver and its tasks both know."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import orjson

from tiered_stream.options.positions import TimeRange

BUCKET_BITS = 16
BUCKET = 1 << BUCKET_BITS
"""Offsets whose rows are summed up together, those from a multiple of it on."""

SUMS = ("topic", "partition", "bucket", "records", "high", "low")
"""The columns of sums: of a bucket the number of rows, and the sums of the upper and the lower 32 bits of their hashes.

No such sum overflows, and rows may come in any order, from several tasks. Unlike an exclusive or, it tells a row that
is there three times.
"""
HASHES = ("topic", "partition", "offset", "hash")


@dataclass(frozen=True, slots=True)
class Hashing:
    """What is hashed: the `columns` beside the offset, of rows whose timestamp is in `times`.

    `each_row`: the hashes are wanted, not their sums.
    """

    columns: tuple[str, ...]
    times: TimeRange | None = None
    each_row: bool = False

    @property
    def answer(self) -> tuple[str, ...]:
        """The answer's columns; all but the first two are 64-bit integers."""
        return HASHES if self.each_row else SUMS

    def to_json(self) -> str:
        """As an option of the source."""
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def from_json(cls, text: str) -> Hashing:
        """Inverse of `to_json`."""
        given = orjson.loads(text)
        times = given["times"]
        return cls(tuple(given["columns"]), None if times is None else TimeRange(**times), given["each_row"])
