"""Options that raise or lower the `Limits`, with their documentation. Names and defaults come from `limits`."""

from __future__ import annotations

from dataclasses import replace

from tiered_stream.limits import DEFAULT_LIMITS, Limit
from tiered_stream.options import types
from tiered_stream.options.types import Option

_DOCS = {
    "batch": "A record batch as it is stored.",
    "decompressed_batch":
    "The same when its records are decompressed. A task holds one such batch, and one record of it once more.",
    "batch_records": "Records in a batch. However many, few are decoded at a time.",
    "record_headers": "Headers of a record; counted with `includeHeaders` only.",
    "chunk": "A chunk of the Aiven plugin (its `chunk.size`) that is compressed or encrypted.",
    "manifest": "The Aiven plugin's manifest of a segment.",
    "index": "An offset, time or transaction index; in the layout of the Aiven plugin all of a segment.",
    "snapshot": "A producer snapshot or leader epoch checkpoint.",
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
