"""Numbers since 1970 become dates and timestamps, or reasons."""

from __future__ import annotations

from datetime import UTC, date, datetime

import orjson
import pyarrow as pa
import pytest

from tests.delta.made_batches import decoded
from tests.formats.landed import landed
from tests.rigs.stack.rows import Record
from tiered_stream.delta.schema.row_plan import plan_rows
from tiered_stream.delta.settings.ingest_settings import table_spec
from tiered_stream.delta.settings.row_settings import row_settings
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.row_decoder import RowDecoder
from tiered_stream.formats.rows.row_steps import with_times
from tiered_stream.formats.sql.sql_reader import sql_columns

ROW = [("id", pa.int32()), ("born", pa.int32()), ("at", pa.int64())]


def planned(times: str, envelope: str = "none") -> RowDecoder:
    schema = pa.schema(ROW)
    if envelope == "debezium":
        image = pa.struct(ROW)
        schema = pa.schema([("before", image), ("after", image), ("op", pa.string())])
    settings = {"ingest.value.format": "json", "ingest.value.schema": sql_columns(schema), "ingest.times": times,
                "ingest.envelope": envelope, "ingest.onDecodeError": "deadLetter",
                "ingest.deadLetterTable": "/dead"}  # fmt: skip
    return RowDecoder(plan_rows(table_spec(settings), include_headers=False))


@pytest.mark.parametrize("envelope", ["none", "debezium"])
def test_milliseconds_and_days_are_the_times_that_they_mean(envelope: str) -> None:
    row = '{"id": 1, "born": -1, "at": 1700000000123}'
    value = row if envelope == "none" else f'{{"after": {row}, "op": "c"}}'
    found = planned("born=days, at=MILLIS", envelope).decode(
        decoded([Record(None, value.encode()), Record(None, None)])
    )
    rows = found.rows.select(["id", "born", "at"]).to_pylist()
    at = datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
    assert rows == [{"id": 1, "born": date(1969, 12, 31), "at": at}, {"id": None, "born": None, "at": None}]
    assert found.dead is None


def test_a_number_beyond_a_timestamp_is_a_dead_letter() -> None:
    found = planned("at=seconds").decode(
        decoded([Record(None, b'{"at": 9223372036854775807}'), Record(None, b'{"at": 1}')])
    )
    assert found.dead is not None and found.rows.column("at").to_pylist() == [datetime(1970, 1, 1, 0, 0, 1, 0, UTC)]
    assert found.dead.column("reason").to_pylist() == [
        "at: the number is no seconds since 1970 that a timestamp[us, tz=UTC] can hold"
    ]


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
    made, reasons = with_times(column, [("at", unit)])
    made.validate(full=True)
    assert reasons == {} and [row and row["at"] is not None for row in made.to_pylist()] == [None, False, True]


@pytest.mark.parametrize(
    ("times", "why"),
    [("at", "must be schema, or columns"), ("at=weeks", "must be schema"), ("at=days,at=millis", "each column once"),
     ("schema", "is for avro"), ("none=days", "none, which the rows lack"), ("ID=days", "ID, which the rows lack")],
)  # fmt: skip
def test_times_that_no_column_can_be_are_refused(times: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        planned(times)
    assert row_settings({}).times == ()
