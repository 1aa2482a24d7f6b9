from __future__ import annotations

from tests.landing.made_batches import DAY_MS, decoded
from tests.stack.rows import Record
from tiered_stream.landing.days import by_day


def days(*timestamps_ms: int) -> list[tuple[str | None, list[int]]]:
    """The days, each with the offsets of its rows."""
    batch = decoded([Record(timestamp_ms=each) for each in timestamps_ms])
    return [(day, rows.column("offset").to_pylist()) for day, rows in by_day(batch)]


def test_rows_of_one_day_stay_together() -> None:
    assert days(0, DAY_MS - 1) == [("1970-01-01", [0, 1])]


def test_rows_of_each_day_keep_their_order() -> None:
    assert days(DAY_MS, 5, DAY_MS + 7, 3, -1) == [
        ("1969-12-31", [4]),
        ("1970-01-01", [1, 3]),
        ("1970-01-02", [0, 2]),
    ]


def test_the_first_and_the_last_day_that_a_date_can_say_are_said() -> None:
    assert days(-62_135_596_800_000, 253_402_300_799_999) == [("0001-01-01", [0]), ("9999-12-31", [1])]


def test_a_timestamp_beyond_every_date_has_no_day() -> None:
    assert days(253_402_300_800_000, 0, -62_135_596_800_001) == [("1970-01-01", [1]), (None, [0, 2])]
