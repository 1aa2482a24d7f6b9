from __future__ import annotations

from tests.delta.made_batches import DAY_MS, decoded
from tests.rigs.stack.rows import Record
from tiered_stream.delta.write.waiting_rows import day_numbers, day_text


def days(*timestamps_ms: int) -> list[str | None]:
    batch = decoded([Record(timestamp_ms=each) for each in timestamps_ms])
    return [day_text(int(day)) for day in day_numbers(batch)]


def test_a_day_begins_at_midnight_utc() -> None:
    assert days(-1, 0, DAY_MS - 1, DAY_MS) == ["1969-12-31", "1970-01-01", "1970-01-01", "1970-01-02"]


def test_the_first_and_the_last_day_that_a_date_can_say_are_said() -> None:
    assert days(-62_135_596_800_000, 253_402_300_799_999) == ["0001-01-01", "9999-12-31"]


def test_a_timestamp_beyond_every_date_has_no_day() -> None:
    assert days(253_402_300_800_000, 0, -62_135_596_800_001) == [None, "1970-01-01", None]
