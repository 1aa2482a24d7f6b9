"""Decoder of the format `string`, which is UTF-8."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tiered_stream.formats.columns.decoded import Decoded

_FEW = 64


class TextDecoder:
    """Decoder of UTF-8 texts (see `decoded.ValueDecoder`). A value that is not UTF-8 gets a reason.

    Spark's `CAST(value AS STRING)` does not check this.
    """

    @property
    def kind(self) -> pa.DataType:
        return pa.string()

    def decode(self, values: pa.BinaryArray) -> Decoded:
        reasons = dict(_malformed(values, 0))
        if not reasons:
            return Decoded(values.cast(pa.string()), reasons)
        import pyarrow.compute as pc  # late, because few workers need it

        good = pa.array([slot not in reasons for slot in range(len(values))])
        return Decoded(pc.if_else(good, values, None).cast(pa.string()), reasons)


def _malformed(values: pa.BinaryArray, first: int) -> Iterator[tuple[int, str]]:
    """Yield slot and reason of each value that is not UTF-8, with slots counted from `first`.

    Values are checked by halves, so that many valid values are checked together.
    """
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        if len(values) > _FEW:
            half = len(values) // 2
            yield from _malformed(values.slice(0, half), first)
            yield from _malformed(values.slice(half), first + half)
            return
        for slot, value in enumerate(values.to_pylist(), first):
            try:
                (value or b"").decode()
            except UnicodeDecodeError as error:
                yield slot, f"not UTF-8: {error.reason} at byte {error.start}"
