"""Checks that Spark's Delta sink would not change values silently.

Values could be changed because of a session setting, or because a column's type in the table differs.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql.types import StructType

from tiered_stream.delta.commit.local_times import check_times
from tiered_stream.delta.requirements.lane import TableDescription, check_fit
from tiered_stream.delta.requirements.session_requirements import OUTPUT_TIMESTAMPS, STORE_ASSIGNMENT
from tiered_stream.delta.schema.json_types import parts_of
from tiered_stream.errors import ConfigurationError

GetSetting = Callable[[str], str | None]
_LEGACY, _MILLIS = "LEGACY", "TIMESTAMP_MILLIS"


def check_spark_sink(
    setting: GetSetting,
    table: str,
    description: TableDescription,
    written: StructType,
    day_column: str | None,
    *,
    typed: bool,
) -> None:
    """Check that Spark's Delta sink would store the written values unchanged.

    Args:
        setting: function that returns the value of a session setting, or None if it is not set.
        table: name of the table, for errors.
        description: the table's metadata and protocol.
        written: columns of the rows, with the day column if there is one.
        day_column: name of the day column; None: there is none.
        typed: true if the rows have columns other than Kafka's columns.

    Raises:
        ConfigurationError: values would be changed; the error names the column or the setting.
    """
    check_times(table, description.fields, written)
    if typed and _is(setting, OUTPUT_TIMESTAMPS, _MILLIS) and "timestamp" in parts_of(written.jsonValue()):
        raise ConfigurationError(
            f"{OUTPUT_TIMESTAMPS} is {_MILLIS}, by which Spark's Delta sink would cut microseconds off the times in "
            f"{table}: set it to TIMESTAMP_MICROS, or remove it"
        )
    if _is(setting, STORE_ASSIGNMENT, _LEGACY):
        try:
            check_fit(table, description, written, day_column)
        except ConfigurationError as error:
            raise ConfigurationError(
                f"{error}. {STORE_ASSIGNMENT} is {_LEGACY}, by which Spark would cut values until they fit: set it "
                "to ANSI to let Spark cast what can be cast"
            ) from error


def _is(setting: GetSetting, name: str, value: str) -> bool:
    return (setting(name) or "").upper() == value
