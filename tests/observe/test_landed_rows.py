from __future__ import annotations

import logging

import pytest

from tiered_stream.observe import landed_rows
from tiered_stream.observe.landed_rows import ChangedKeys, LandedRows, describe_rows, landed_in, note_landed, summed

ORDERS, USERS = LandedRows("orders", 5, 2, "dead"), LandedRows("users", 7)


@pytest.mark.parametrize(
    ("records", "tables", "text"),
    [
        (1500, None, "1,500 rows"),
        (1500, [LandedRows("orders", 1500)], "1,500 rows"),
        (7, [ORDERS], "7 rows read, 5 rows landed, 2 dead letters in dead"),
        (6, [LandedRows("orders", 5, 1, "dead")], "6 rows read, 5 rows landed, 1 dead letter in dead"),
        (8, [LandedRows("orders", 0)], "8 rows read, 0 rows landed"),
        (12, [LandedRows("orders", 5), USERS], "12 rows in 2 tables"),
        (14, [ORDERS, USERS], "14 rows read, 12 rows landed in 2 tables, 2 dead letters of orders in dead"),
        (None, [ORDERS], "5 rows landed, 2 dead letters in dead"),
    ],
)
def test_rows_that_were_not_landed_are_named(records: int | None, tables: list[LandedRows] | None, text: str) -> None:
    assert describe_rows(records, tables) == text


def test_a_line_names_at_most_five_tables_with_dead_letters() -> None:
    tables = [LandedRows(f"t{number}", 0, number, "dead") for number in range(1, 8)]
    text = describe_rows(28, tables)
    assert text.endswith("5 dead letters of t5 in dead, 13 dead letters of 2 more tables")


def test_sums_keep_tables_and_places_of_dead_letters_apart() -> None:
    other_place = LandedRows("orders", 1, 3, "other")
    assert summed([ORDERS, USERS, ORDERS, other_place]) == (
        LandedRows("orders", 11, 4, "dead"), LandedRows("orders", 0, 3, "other"), USERS,
    )  # fmt: skip


def test_dead_letters_of_a_micro_batch_are_logged_once_it_is_committed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tiered_stream")
    note_landed(("q", 3), [USERS])
    note_landed(("q", 4), [ORDERS])
    assert caplog.messages == ["micro-batch 4 of query q: 5 rows landed, 2 dead letters in dead"]
    assert (landed_in(("q", 3)), landed_in(("q", 4)), landed_in(("q", 5))) == ((USERS,), (ORDERS,), None)


def test_micro_batches_of_many_tables_are_remembered_as_long_as_all_their_tables_are_not_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(landed_rows, "summed", tuple)
    for number, tables in enumerate((200_000, 100_000, 300_000)):
        note_landed(("many", number), [USERS] * tables)
        kept = [batch for batch in range(3) if landed_in(("many", batch)) is not None]
        assert kept == [number], "the last one is always kept"


def test_a_table_of_the_latest_state_has_keys_in_place_of_rows() -> None:
    tables = [LandedRows("a", 11, keys=ChangedKeys(8, 2, 1)), LandedRows("a", 1004, 2, "dead", ChangedKeys(1000, 0, 4))]
    assert summed(tables) == (LandedRows("a", 1015, 2, "dead", ChangedKeys(1008, 2, 5)),)
    said = "1,020 rows read, 1,008 keys inserted, 2 updated, 5 deleted, 2 dead letters in dead"
    assert describe_rows(1020, summed(tables)) == said
    both = [LandedRows("a", 3, keys=ChangedKeys(3, 0, 0)), LandedRows("b", 4)]
    assert describe_rows(7, both) == "7 rows read, 4 rows landed, 3 keys inserted, 0 updated, 0 deleted in 2 tables"
