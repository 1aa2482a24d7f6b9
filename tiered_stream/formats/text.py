"""Decoder of the format `string`, which is UTF-8."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.formats.columns.decoded import Decoded, ValueDecoder


class TextDecoder(ValueDecoder):
    """Decoder of UTF-8 values to a string column. A value that is not UTF-8 becomes null and gets a reason.

    Spark's `CAST(value AS STRING)` does not check whether the bytes are UTF-8.
    """

    kind = pa.string()

    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> Decoded:
        with suppress(pa.ArrowInvalid):
            return Decoded(values.cast(pa.string()), {})
        reasons = {}
        for slot, value in enumerate(values.to_pylist()):
            try:
                (value or b"").decode()
            except UnicodeDecodeError as error:
                reasons[slot] = f"not UTF-8: {error.reason} at byte {error.start}"
        good = pa.array([slot not in reasons for slot in range(len(values))])
        return Decoded(pc.if_else(good, values, None).cast(pa.string()), reasons)
