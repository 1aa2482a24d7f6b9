"""Declaration of the settings for tables of the latest state (`ingest.mode=upsert`)."""

from __future__ import annotations

from typing import Any

from tiered_stream.formats.rows.row_choices import placeholder_bytes
from tiered_stream.options import types
from tiered_stream.options.types import Option, option, optional

APPEND, UPSERT = "append", "upsert"


def column_names(value: str) -> tuple[str, ...]:
    """Parse names of columns, separated by commas; raise ValueError if a name is empty or occurs twice."""
    names = tuple(name.strip() for name in value.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise ValueError("must name columns, separated by commas, each once")
    return names


MODE = option(
    "ingest.mode", types.one_of(APPEND, UPSERT), APPEND,
    "`append`: each record becomes a row. `upsert`: the table has the latest row of each key.",
)  # fmt: skip
KEYS: Option[tuple[str, ...]] = Option(
    "ingest.keys", column_names, (), "",
    "With `ingest.mode=upsert`: columns that identify a row, separated by commas.",
)  # fmt: skip
ORDER_BY = optional(
    "ingest.orderBy", types.text,
    "With `ingest.mode=upsert`: column whose largest value is the latest. It is needed if a key occurs in several "
    "partitions.",
    shown="the offset",
)  # fmt: skip
MERGE_ON = optional(
    "ingest.mergeOn", types.text,
    "With `ingest.mode=upsert`: condition in SQL on `target` (the table) and `source` (the new rows) that limits the "
    "files in which keys are searched.",
)  # fmt: skip
OWN_COLUMNS: Option[tuple[str, ...]] = Option(
    "ingest.ownColumns", column_names, (), "",
    "With `ingest.mode=upsert`: columns of the table that records never set, separated by commas. They keep their "
    "values in an update. Each other column that a record does not have becomes null.",
)  # fmt: skip
DEBEZIUM_PLACEHOLDER = "__debezium_unavailable_value"
"""Default of the setting `unavailable.value.placeholder` of Debezium's connectors."""


def _placeholder(text: str) -> str:
    placeholder_bytes(text)
    return text


UNAVAILABLE_VALUE = optional(
    "ingest.unavailableValue", _placeholder,
    "With `ingest.mode=upsert`: placeholder of values that the database does not send "
    "(`unavailable.value.placeholder` of Debezium's connector). An update keeps the row's value in their place.",
    shown=f"{DEBEZIUM_PLACEHOLDER} if ingest.envelope is set",
)  # fmt: skip
UPSERT_OPTIONS: tuple[Option[Any], ...] = (MODE, KEYS, ORDER_BY, MERGE_ON, OWN_COLUMNS, UNAVAILABLE_VALUE)
