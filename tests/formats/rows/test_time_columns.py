"""Numbers since 1970 become dates and timestamps, or reasons."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import orjson
import pyarrow as pa
import pytest

from tests.formats.landed import landed
from tiered_stream.delta.settings.row_settings import row_settings
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.rows import row_steps

COLUMNS = "id INT, born INT, at BIGINT"


def with_times(
    times: str, *values: bytes | None, schema: str = COLUMNS, **more: str
) -> tuple[list[Any], dict[int, str]]:
    return landed(values, value_format="json", value_schema=schema, times=times, **more)


def test_milliseconds_and_days_are_the_times_that_they_mean() -> None:
    row, envelope = b'{"id": 1, "born": -1, "at": 1700000000123}', f"after STRUCT<{COLUMNS}>, op STRING"
    expected = {"id": 1, "born": date(1969, 12, 31), "at": datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)}
    assert with_times("born=days, at=MILLIS", row, None) == ([expected, dict.fromkeys(expected)], {})
    event = b'{"after": %s, "op": "c"}' % row
    found = with_times("born=days, at=MILLIS", event, schema=envelope, envelope="debezium")
    assert found == ([{**expected, "__op": "c"}], {})


def test_a_number_beyond_a_timestamp_is_a_dead_letter() -> None:
    rows, reasons = with_times("at=seconds", b'{"at": 9223372036854775807}', b'{"at": 1}')
    assert [row["at"] for row in rows] == [datetime(1970, 1, 1, 0, 0, 1, 0, UTC)]
    assert reasons == {0: "at: the number is no seconds since 1970 that a timestamp[us, tz=UTC] can hold"}


@pytest.mark.parametrize("number", [b"19000.0", b"1.5", b"19e3"])
@pytest.mark.parametrize("envelope", ["none", "debezium"])
def test_a_number_with_a_fraction_is_no_time_also_if_columns_may_widen(number: bytes, envelope: str) -> None:
    rows = [b'{"id": 1, "born": 19000}', b'{"id": 1, "born": %s}' % number, b'{"id": 2.5, "born": 3000000000}',
            b'{"id": 2.5, "born": 1}']  # fmt: skip
    is_debezium, columns = envelope == "debezium", "id INT, born INT"
    values = [b'{"after": %s, "op": "c"}' % row if is_debezium else row for row in rows]
    schema = f"after STRUCT<{columns}>, op STRING" if is_debezium else columns
    found, reasons = with_times("born=days", *values, schema=schema, envelope=envelope, schemaEvolution="widen")
    assert [(row["id"], row["born"]) for row in found] == [(1.0, date(2022, 1, 8)), (2.5, date(1970, 1, 2))]
    assert list(reasons) == [1, 2]


def test_names_of_debeziums_types_in_an_avro_schema_are_the_times_that_they_mean() -> None:
    def named(kind: str, name: str) -> dict[str, object]:
        return {"name": name, "type": {"type": kind, "connect.name": f"io.debezium.time.{name}"}}

    fields = [named("int", "Date"), named("long", "Timestamp"), named("long", "MicroTimestamp"), named("int", "Year")]
    schema = orjson.dumps({"type": "record", "name": "r", "fields": fields}).decode()
    value = b"\x04" + b"\xd0\x0f" * 2 + b"\x04"  # 2 days, 1,000 milliseconds, 1,000 microseconds, the year 2
    numbers, _ = landed([value], value_format="avro", value_schema=schema)
    assert numbers == [{"Date": 2, "Timestamp": 1000, "MicroTimestamp": 1000, "Year": 2}]
    times, _ = landed([value], value_format="avro", value_schema=schema, times="schema")
    assert times == [
        {"Date": date(1970, 1, 3), "Timestamp": datetime(1970, 1, 1, 0, 0, 1, 0, UTC),
         "MicroTimestamp": datetime(1970, 1, 1, 0, 0, 0, 1000, UTC), "Year": 2}
    ]  # fmt: skip


@pytest.mark.parametrize("unit", ["days", "seconds", "millis", "micros"])
def test_nulls_and_slices_keep_their_rows(unit: str) -> None:
    column = pa.array([{"at": 5}, None, {"at": None}, {"at": 7}], pa.struct([("at", pa.int64())])).slice(1)
    made, reasons = row_steps.with_times(column, [("at", unit)])
    made.validate(full=True)
    assert reasons == {} and [row and row["at"] is not None for row in made.to_pylist()] == [None, False, True]


@pytest.mark.parametrize(
    ("times", "why"),
    [("at", "must be schema, or columns"), ("at=weeks", "must be schema"), ("at=days,at=millis", "each column once"),
     ("schema", "is for avro"), ("none=days", "none, which the rows lack"), ("ID=days", "ID, which the rows lack")],
)  # fmt: skip
def test_times_that_no_column_can_be_are_refused(times: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        with_times(times)
    assert row_settings({}).times == ()
