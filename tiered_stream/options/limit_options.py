"""Options that raise or lower the `Limits`, with their documentation. Names and defaults come from `limits`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tiered_stream.limits import DEFAULT_LIMITS, Limit
from tiered_stream.options import types
from tiered_stream.options.types import Option


def _limit(limit: Limit, parse: Callable[[str], int], shown: str, doc: str) -> Option[Limit]:
    return Option(limit.option, lambda value: replace(limit, most=parse(value)), limit, shown, doc)


def _bytes(limit: Limit, doc: str, maximum: int = types.INT_MAX) -> Option[Limit]:
    return _limit(limit, types.byte_size(1, maximum), f"{limit.most >> 20}m", doc)


def _count(limit: Limit, doc: str) -> Option[Limit]:
    return _limit(limit, types.integer(1, types.INT_MAX), str(limit.most), doc)


LIMIT_OPTIONS: dict[str, Option[Limit]] = {
    "batch": _bytes(DEFAULT_LIMITS.batch, "A record batch as it is stored."),
    "decompressed_batch": _bytes(
        DEFAULT_LIMITS.decompressed_batch,
        "The same when its records are decompressed. A task holds one such batch, and one record of it once more.",
        types.LONG_MAX,
    ),
    "batch_records": _count(
        DEFAULT_LIMITS.batch_records, "Records in a batch. However many, few are decoded at a time."
    ),
    "record_headers": _count(DEFAULT_LIMITS.record_headers, "Headers of a record; counted with `includeHeaders` only."),
    "chunk": _bytes(
        DEFAULT_LIMITS.chunk, "A chunk of the Aiven plugin (its `chunk.size`) that is compressed or encrypted."
    ),
    "manifest": _bytes(DEFAULT_LIMITS.manifest, "The Aiven plugin's manifest of a segment."),
    "index": _bytes(
        DEFAULT_LIMITS.index,
        "An offset, time or transaction index; in the layout of the Aiven plugin all of a segment.",
    ),
    "snapshot": _bytes(DEFAULT_LIMITS.snapshot, "A producer snapshot or leader epoch checkpoint."),
}
"""Options for limits, by the name of the field in `Limits`."""
