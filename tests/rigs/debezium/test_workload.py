"""The workload's model, and what its statements look like; no database."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from random import Random

import pytest

from tests.rigs.debezium.tables import (
    BYTES,
    FLAT,
    LONG_BYTES,
    NUMERIC,
    PLAIN,
    SHAPES,
    TEXT,
    TIMESTAMP,
    TIMESTAMP_WITH_ZONE,
    VARIANTS,
    WITHIN,
    Table,
    tables,
)
from tests.rigs.debezium.workload import MOST_ROWS, Workload

TABLES = tables(5)


def run(workload: Workload, transactions: int = 1000) -> list[str]:
    return [workload.transaction() for _ in range(transactions)]


def test_a_seed_gives_the_same_transactions_again() -> None:
    first, second, other = Workload(TABLES, 1), Workload(TABLES, 1), Workload(TABLES, 2)
    assert run(first) == run(second)
    assert first.rows == second.rows
    assert run(other) != run(Workload(TABLES, 1))


def test_every_kind_of_change_comes() -> None:
    workload = Workload(TABLES, 1)
    run(workload)
    assert len(workload.changes) == 7
    assert min(workload.changes.values()) > 20


def test_a_transaction_that_is_rolled_back_leaves_the_model_as_it_was() -> None:
    workload = Workload(TABLES, 1)
    rolled_back = 0
    for _ in range(300):
        before = {name: dict(rows) for name, rows in workload.rows.items()}
        if workload.transaction().endswith("ROLLBACK;"):
            rolled_back += 1
            assert workload.rows == before
    assert rolled_back


def test_rows_are_kept_by_their_own_keys() -> None:
    workload = Workload(TABLES, 3)
    run(workload)
    for table in TABLES:
        rows = workload.rows[table.name]
        assert table.by_key(list(rows.values())) == rows


def test_a_table_does_not_grow_without_end() -> None:
    (table,) = tables(1)
    workload = Workload([table], 1)
    run(workload, 2000)
    assert MOST_ROWS / 2 < len(workload.rows[table.name]) <= MOST_ROWS + 8


def test_a_key_is_used_again_after_its_row_is_gone() -> None:
    workload = Workload(TABLES[2:3], 1)  # its keys are random texts, which hardly come twice by chance
    run(workload)
    used = workload._used["codes_02"]
    assert len(set(used)) < workload.changes["insert"] + workload.changes["key change"]


@pytest.mark.parametrize("shape", {shape.name: shape for shape, _ in VARIANTS}.values(), ids=lambda shape: shape.name)
def test_a_row_that_the_database_prints_is_the_row_that_was_drawn(shape) -> None:
    """What PostgreSQL makes of the values is proved by the rig; here are the forms in which it prints them."""
    random, table = Random(1), Table("some", shape)
    printed = {
        NUMERIC: str,
        BYTES: bytes.hex,
        LONG_BYTES: bytes.hex,
        TIMESTAMP: datetime.isoformat,
        TIMESTAMP_WITH_ZONE: datetime.isoformat,
    }
    for _ in range(100):
        row = tuple(kind.draw(random) for kind in table.columns.values())
        lines = [
            printed.get(kind, lambda value: value)(value)
            for kind, value in zip(table.columns.values(), row, strict=True)
        ]
        line = json.dumps(lines, default=str)
        key = row[: len(shape.keys)]
        assert table.parse(line + "\n") == {key: row}


def test_two_rows_of_one_key_are_refused() -> None:
    (table,) = tables(1)
    row = (1, "a", Decimal("1.00"), True, 1)
    with pytest.raises(ValueError, match="orders_00 has 2 rows, but 1 keys"):
        table.by_key([row, row])


def test_a_quote_in_a_text_does_not_end_the_literal() -> None:
    assert TEXT.literal("it's ''") == "'it''s '''''"


def test_the_schema_is_the_envelope_or_is_within_payload() -> None:
    plain, within, flat = (Table("some", SHAPES[0], connector) for connector in (PLAIN, WITHIN, FLAT))
    row = "STRUCT<`id`: BIGINT, `name`: STRING, `amount`: DECIMAL(12,2), `paid`: BOOLEAN, `count`: INT>"
    assert plain.ddl == f"before {row}, after {row}, op STRING, ts_ms BIGINT"
    assert within.ddl == f"payload STRUCT<before: {row}, after: {row}, op: STRING, ts_ms: BIGINT>"
    assert flat.ddl == f"{row[7:-1]}, __deleted STRING"
