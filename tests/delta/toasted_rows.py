"""Changes of rows with large values, of which PostgreSQL sends none that an update leaves as it is (TOAST)."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import orjson
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, MapType, StringType, StructType

from tests.rigs.stack.rows import Record

TOAST = "__debezium_unavailable_value"
_UNKNOWN = {
    "doc": TOAST, "tags": [TOAST], "sizes": list(TOAST.encode()), "pic": b64encode(TOAST.encode()).decode(),
    "attributes": {TOAST: TOAST},
}  # fmt: skip
DDL = (
    "id BIGINT, n INT, doc STRING, tags ARRAY<STRING>, sizes ARRAY<BIGINT>, pic BINARY, attributes MAP<STRING, STRING>"
)
_ROW = StructType().add("id", LongType()).add("n", IntegerType()).add("doc", StringType()) \
    .add("tags", ArrayType(StringType())).add("sizes", ArrayType(LongType())).add("pic", BinaryType()) \
    .add("attributes", MapType(StringType(), StringType()))  # fmt: skip
_KEY = StructType().add("id", LongType())
SETTINGS = {
    "ingest.mode": "upsert", "ingest.keys": "id", "ingest.kafkaColumns": "timestamp", "ingest.value.format": "json",
    "ingest.key.format": "json", "ingest.key.schema": _KEY.json(),
}  # fmt: skip
ENVELOPES = {
    "debezium": {
        "ingest.envelope": "debezium",
        "ingest.value.schema": StructType().add("before", _ROW).add("after", _ROW).add("op", StringType()).json(),
    },
    "flattened": {
        "ingest.envelope": "flattened",
        "ingest.value.schema": StructType([*_ROW.fields]).add("__deleted", StringType()).json(),
    },
    "none": {"ingest.unavailableValue": TOAST, "ingest.value.schema": _ROW.json()},
}
"""Settings by envelope; rows without an envelope are deleted by tombstones."""


def change(envelope: str, key: int, n: int, text: str | None, at: int = 1) -> Record:
    """Return an update of a row; `text` is in all large values, or None: they are not sent."""
    row = {"id": key, "n": n, **(_UNKNOWN if text is None else _large(text))}
    value = {"debezium": {"after": row, "op": "u"}, "flattened": {**row, "__deleted": "false"}, "none": row}
    return Record(orjson.dumps({"id": key}), orjson.dumps(value[envelope]), (), 1000 + at)


def delete(envelope: str, key: int, at: int = 1) -> Record:
    row = {"id": key, "n": 0, **_UNKNOWN}
    value: dict[str, Any] = {"debezium": {"before": row, "op": "d"}, "flattened": {**row, "__deleted": "true"}}
    text = orjson.dumps(value[envelope]) if envelope in value else None
    return Record(orjson.dumps({"id": key}), text, (), 1000 + at)


def _large(text: str) -> dict[str, Any]:
    pic = b64encode(text.encode()).decode()
    return {"doc": text, "tags": [text], "sizes": [len(text)], "pic": pic, "attributes": {"k": text}}


def by_key(rows: Iterable[Mapping[str, Any]]) -> dict[int, tuple[int, str | None]]:
    """Return the number and the text of rows of the table, by key.

    Raises:
        AssertionError: the large values of a row have different texts.
    """
    found = {}
    for row in rows:
        text, unknown = row["doc"], dict.fromkeys(_UNKNOWN)
        large = {name: row[name] for name in unknown}
        large["attributes"] = large["attributes"] and dict(large["attributes"])
        large["pic"] = large["pic"] and b64encode(large["pic"]).decode()
        assert large == (unknown if text is None else _large(text))
        found[row["id"]] = (row["n"], text)
    return found


def first(envelope: str, at: int = 1) -> list[Record]:
    """Return records that fill the table, as of the time `at`."""
    return [change(envelope, key, 1, f"old {key}", at) for key in range(1, 8)]


def second(envelope: str) -> list[Record]:
    """Return records that lead from the rows of `first` to `LATEST`."""
    own, gone = partial(change, envelope), partial(delete, envelope)
    return [
        own(1, 2, None), own(1, 3, None),
        own(2, 2, "new"), own(2, 3, None),
        own(3, 2, None), own(3, 3, "new"),
        gone(4), own(4, 2, "again"), own(4, 3, None),
        gone(5), own(5, 2, None),
        own(6, 2, None), gone(6),
        own(8, 1, "first"), own(8, 2, None),
        own(9, 1, None), own(9, 2, None),
    ]  # fmt: skip


LATEST = {1: (3, "old 1"), 2: (3, "new"), 3: (3, "new"), 4: (3, "again"), 5: (2, None), 7: (1, "old 7"),
          8: (2, "first"), 9: (2, None)}  # fmt: skip


def out_of_order(envelope: str) -> list[Record]:
    """Return records that lead from rows of the time 5 to `LATEST_BY_TIME`; `n` is the time."""
    own, gone = partial(change, envelope), partial(delete, envelope)
    return [
        own(1, 4, "older", 4), own(1, 6, None, 6),
        own(2, 6, "newer", 6), own(2, 7, None, 7),
        own(3, 7, None, 7), own(3, 6, "behind", 6),
        gone(4, 4), own(4, 6, None, 6),
        gone(5, 6), own(5, 7, None, 7),
        own(6, 4, None, 4),
        own(7, 5, "equal", 5), own(7, 5, None, 5),
    ]  # fmt: skip


LATEST_BY_TIME = {1: (6, "old 1"), 2: (7, "newer"), 3: (7, "behind"), 4: (6, "old 4"), 5: (7, None), 6: (1, "old 6"),
                  7: (5, "equal")}  # fmt: skip
