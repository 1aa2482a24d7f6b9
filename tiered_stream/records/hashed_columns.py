"""Columns that the row hash covers, and the row hash as an expression of Spark SQL.

A row's hash is `xxhash64` over its offset and then these columns in this order. `xxhash64` skips nulls, so a key with a
null value would have the hash of a null key with a value of the same bytes. A null mark before key and value tells the
two apart. Null headers and an empty list of headers have the same hash, because they are the same in Kafka.
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
"""Number of offsets in a bucket, in which row hashes are summed up. A bucket starts at a multiple of this number."""


def row_hash_sql(columns: Collection[str]) -> str:
    """Return the Spark SQL expression for a row's hash over its offset and the `HASHED` columns in `columns`."""
    return f"xxhash64({', '.join(('offset', *(_SQL[name] for name in HASHED if name in columns)))})"
