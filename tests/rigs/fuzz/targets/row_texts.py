"""Constraints of tables, and settings that say what rows are."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import orjson
import pyarrow as pa

from tests.rigs.fuzz.mutation import one, spoiled_json, spoiled_text
from tests.rigs.fuzz.target import Target
from tiered_stream.delta.settings.row_settings import ROW_OPTIONS, row_settings
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.rows.table_rules import UncertainCheckError, parse_check

ROWS = pa.RecordBatch.from_pydict({"n": [1, None], "x": [0.5, None], "s": ["a", None], "b": [True, None]})
CHECKS = (
    "n > 0 AND NOT (x <= 1.5 OR s IN ('a', 'b'))", "n BETWEEN -1 AND 5 or b = true", "`s` is not null and 3 <> n",
    "n not in (1, 2, 3)", "length(s) > 1",
)  # fmt: skip
VALUES = (
    "json",
    "a INT",
    "registry",
    "infer",
    "5%",
    "100",
    "deadLetter",
    "none",
    "offset as o, topic",
    "add",
    "debezium",
)


def check(data: bytes) -> None:
    with suppress(UncertainCheckError):
        found = parse_check(data.decode(errors="replace"), ROWS.schema)[0](ROWS)
        assert found.type == pa.bool_() and len(found) == ROWS.num_rows


def settings(data: bytes) -> None:
    given = {}
    with suppress(ValueError):
        given = orjson.loads(data)
    if isinstance(given, dict):
        with suppress(ConfigurationError):
            row_settings({name: str(value) for name, value in given.items()})


def some_settings(random: Random) -> bytes:
    given = {one(random, ROW_OPTIONS).name: one(random, VALUES) for _ in range(4)}
    return spoiled_json(random, given)


TARGETS = (
    Target("table-checks", lambda random: spoiled_text(random, one(random, CHECKS)).encode(errors="replace"), check),
    Target("row-settings", some_settings, settings),
)
