from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.positions import TimeRange, show_time
from tiered_stream.replays.times import parse_range, parse_time, show_range

NOW = 1_795_000_000_000
HOUR = 3_600_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-01T00:00:00Z", 1_793_491_200_000),
        ("2026-11-01T01:00:00+01:00", 1_793_491_200_000),
        ("2026-10-31T18:30-05:30", 1_793_491_200_000),
        ("20261101T000000Z", 1_793_491_200_000),
        ("2026-11-01T00:00:00.001Z", 1_793_491_200_001),
        (" 1793491200000 ", 1_793_491_200_000),
        ("0", 0),
        ("1970-01-01T00:00:00Z", 0),
        ("-3h", NOW - 3 * HOUR),
        ("-90m", NOW - 90 * 60_000),
        ("-2d", NOW - 48 * HOUR),
        ("-1w", NOW - 7 * 24 * HOUR),
        ("-45s", NOW - 45_000),
    ],
)
def test_a_time_may_be_written_in_each_of_three_forms(text: str, expected: int) -> None:
    assert parse_time(text, NOW) == expected


def test_a_part_of_a_millisecond_is_rounded_up() -> None:
    """So that what has a timestamp before the time is before it still."""
    assert parse_time("2026-11-01T00:00:00.000001Z", NOW) == 1_793_491_200_001


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "2026-11-01T00:00:00",
            "has no zone: write 2026-11-01T00:00:00Z for UTC, or its offset from UTC: 2026-11-01T00",
        ),
        ("2026-11-01", "2026-11-01T00:00:00+01:00"),
        ("yesterday", "is no time: write 2026-11-01T00:00:00Z"),
        ("", "is no time"),
        ("3h", "back from now"),
        ("-3 h", "is no time"),
        ("-3y", "is no time"),
        ("1793491200", "for seconds add three zeros (1793491200000)"),
        ("1969-12-31T23:59:59Z", "before 1970"),
        ("-999999d", "before 1970"),
        ("0001-01-01T00:00:00+23:59", "is before 1970"),
        ("99999999999999999999", "is no time"),
    ],
)
def test_any_other_form_is_refused_with_what_to_write(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        parse_time(text, NOW)


@given(
    st.datetimes(
        datetime(1970, 1, 2),
        datetime(9990, 1, 1),
        timezones=st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes))),
    )
)
def test_a_time_shown_is_the_time_that_was_read(moment: datetime) -> None:
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    time_ms = parse_time(moment.isoformat(), NOW)
    assert 0 <= time_ms * 1000 - since // timedelta(microseconds=1) < 1000
    assert parse_time(show_time(time_ms), NOW) == time_ms


@given(st.text())
def test_any_text_is_a_time_or_refused(text: str) -> None:
    try:
        assert parse_time(text, NOW) >= 0
    except ConfigurationError:
        pass


def test_a_range_is_read_with_one_now() -> None:
    assert parse_range("-3h", "-1h", NOW) == TimeRange(NOW - 3 * HOUR, NOW - HOUR)
    assert parse_range("-3h", None, NOW) == TimeRange(NOW - 3 * HOUR, None)
    assert show_range(TimeRange(0, 1)) == "1970-01-01T00:00:00Z to 1970-01-01T00:00:00.001Z"


@pytest.mark.parametrize(
    ("from_time", "to_time", "said"),
    [
        ("-1h", "-3h", "--to -3h (2026-11-18"),
        ("-1h", "-1h", "is not after --from -1h"),
        (str(NOW + 1), None, f"--from {NOW + 1} "),
        ("-1h", str(NOW + 1), "is in the future: it is 2026-11-18"),
        ("2026-11-01", None, "has no zone"),
    ],
)
def test_a_range_that_cannot_be_replayed_is_refused(from_time: str, to_time: str | None, said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        parse_range(from_time, to_time, NOW)
