"""Options that set the `Limits`, with their documentation. The module `limits` has their names and defaults."""

from __future__ import annotations

from dataclasses import replace

from tiered_stream.limits import DEFAULT_LIMITS, Limit
from tiered_stream.options import types
from tiered_stream.options.types import Option

_DOCS = {
    "batch": "Stored record batch.",
    "decompressed_batch":
    "Record batch after decompression. A task's memory holds one such batch, and a second copy of one record.",
    "batch_records": "Records in a batch. Only few of them are decoded at a time.",
    "record_headers": "Headers of a record, with `includeHeaders`.",
    "chunk": "Compressed or encrypted chunk of the Aiven plugin (its `chunk.size`).",
    "manifest": "Aiven plugin's manifest of a segment.",
    "index": "Offset, time or transaction index; in the Aiven plugin's layout, all indexes of a segment.",
    "snapshot": "Producer snapshot or leader epoch checkpoint.",
}  # fmt: skip
_LARGEST = {"decompressed_batch": types.LONG_MAX}


def _option(field: str) -> Option[Limit]:
    limit: Limit = getattr(DEFAULT_LIMITS, field)
    in_bytes = limit.option.endswith(".bytes")
    parse = (types.byte_size if in_bytes else types.integer)(1, _LARGEST.get(field, types.INT_MAX))
    shown = f"{limit.maximum >> 20}m" if in_bytes else str(limit.maximum)
    return Option(limit.option, lambda value: replace(limit, maximum=parse(value)), limit, shown, _DOCS[field])


LIMIT_OPTIONS = {field: _option(field) for field in _DOCS}
"""Options for limits, by the name of the field in `Limits`."""
