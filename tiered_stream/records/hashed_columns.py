"""Which columns the row hash is over, and the hash in Spark SQL.

A row's hash is `xxhash64` over its offset and then these columns in this order. `xxhash64` passes over nulls, so that
a null key with a value, and the same bytes as the key of a null value, would be one: a mark stands before each.
No headers and an empty list of them are the same, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Collection

_SQL = {
    "timestamp": "timestamp",
    "key": "key IS NULL, key",
    "value": "value IS NULL, value",
    "headers": "transform(headers, header -> struct(header.key, header.value IS NULL, header.value))",
}
HASHED = tuple(_SQL)

BUCKET_BITS = 16
BUCKET = 1 << BUCKET_BITS
"""Offsets whose rows' hashes are summed up together, those from a multiple of it on."""


def row_hash_sql(columns: Collection[str]) -> str:
    """The hash of a row over its offset and those of `HASHED` that are in `columns`, as Spark SQL has it."""
    return f"xxhash64({', '.join(('offset', *(_SQL[name] for name in HASHED if name in columns)))})"
