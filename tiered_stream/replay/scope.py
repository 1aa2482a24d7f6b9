"""What is compared: the table at one version, and which offsets of each partition.

Where nothing else is said, a partition is compared from the table's lowest to its highest offset: a table may begin
and end where it likes. Starting and ending options say more: what lies between them must be in the table. Below the
log start offset there is nothing to compare with.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, IntegerType, LongType, StringType

from tiered_stream.delta.address import TableAddress, find_address
from tiered_stream.delta.java_errors import spark_errors
from tiered_stream.delta.session_checks import check_delta, check_table
from tiered_stream.errors import ConfigurationError
from tiered_stream.locate.log_source import open_log_source
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options import spark_options as spark
from tiered_stream.options.choices import LocatorName
from tiered_stream.options.command_settings import ENDS, POSITIONS, STARTS, gives, without
from tiered_stream.options.offset_json import offsets_to_json
from tiered_stream.options.parsing import parse_options
from tiered_stream.options.tables import OPTIONS
from tiered_stream.options.types import Queries
from tiered_stream.plan.lookup import OffsetLookup
from tiered_stream.plan.starting import batch_ranges
from tiered_stream.records.hashed_columns import HASHED
from tiered_stream.replay.replay_plan import Ranges, ends_of, starting_at
from tiered_stream.source import spark_schema

NO_END = 2**63 - 1

_FAIL = spark.FAIL_ON_DATA_LOSS.name
_OF_STREAMS = tuple(option.name for option in OPTIONS if option.queries is Queries.STREAMING)

Bounds = Mapping[TopicPartition, tuple[int, int]]
"""By partition from which offset, and to which, that not included; in a table they may be negative."""

_NEEDED = ("topic", "partition", "offset")
_TYPES: Mapping[str, type[DataType]] = {
    "partition": LongType, "offset": IntegerType, "key": StringType, "value": StringType,
}  # fmt: skip
"""Columns that may have another type than the source's."""


@dataclass(frozen=True)
class VerifiedTable:
    """A Delta table at one `version`: `rows` have `topic`, `partition`, `offset` and `columns`, as the source has them.

    `columns` are those of `HASHED` that the table has.
    """

    name: str
    version: int
    columns: tuple[str, ...]
    rows: DataFrame


def open_verified(spark: SparkSession, table: str, names: Mapping[str, str]) -> VerifiedTable:
    """The table, a path if it has a slash in it, at its latest version: what is written meanwhile is not seen.

    `names`: what the table calls Kafka's columns (see `record_columns`); one that is missing there is not compared.

    Raises:
        ConfigurationError: there is no Delta table, its columns are not those of records, or the session lacks what
            it takes to read it.
        TableError: Spark cannot reach it.
    """
    check_delta(spark)
    address = find_address(spark, table)
    check_table(spark, address.path)
    with spark_errors(table, "read"):
        version, rows = _latest(spark, address)
        columns = {column.lower(): column for column in rows.columns}
    found = {name: columns[own.lower()] for name, own in names.items() if own.lower() in columns}
    present = [name for name in (*_NEEDED, *HASHED) if name in found]
    types = {name: _cast(table, name, rows.schema[found[name]].dataType) for name in present}
    missing = [name for name in _NEEDED if name not in present]
    if missing or len(present) == len(_NEEDED):
        raise ConfigurationError(
            f"the table {table} cannot be compared: it has no column {' and '.join(missing) or ' or '.join(HASHED)}; "
            "it must have the name that it has in the source, or that ingest.kafkaColumns gives it"
        )
    named = [rows[f"`{found[name]}`"].cast(kind).alias(name) for name, kind in types.items()]
    return VerifiedTable(str(address), version, tuple(present[len(_NEEDED) :]), rows.select(*named))


def _latest(spark: SparkSession, address: TableAddress) -> tuple[int, DataFrame]:
    """The table's latest version, and its rows."""
    try:
        latest = spark.sql(f"DESCRIBE HISTORY {address.sql_name} LIMIT 1").first()
        assert latest is not None
        rows = spark.sql(f"SELECT * FROM {address.sql_name} VERSION AS OF {latest['version']}")
    except AnalysisException as error:
        raise ConfigurationError(f"there is no Delta table {address}: {str(error).splitlines()[0]}") from error
    return latest["version"], rows


def _cast(table: str, name: str, kind: DataType) -> DataType:
    """What the column is cast to: the source's own type. Text is bytes: Spark keeps those that are no UTF-8, too.

    Raises:
        ConfigurationError: it may be something else than what the record had.
    """
    wanted = spark_schema(include_headers=True)[name].dataType
    allowed = (type(wanted), _TYPES.get(name, type(wanted)))
    if not isinstance(kind, allowed) or (name == "headers" and kind.simpleString() != wanted.simpleString()):
        raise ConfigurationError(
            f"the table {table} cannot be compared: it has {name} as {kind.simpleString()}, "
            f"and records have it as {wanted.simpleString()}"
        )
    return wanted


@dataclass(frozen=True, slots=True)
class Scope:
    """The partitions, where their logs begin and end, and the `given` ranges: the logs' own where nothing is said."""

    logs: Ranges
    given: Ranges
    start_is_given: bool
    end_is_given: bool
    assigned: bool
    """Other partitions of the topics are nobody's business."""
    archive: bool
    """The logs' ends are only those of what was kept: a table may well go further."""

    def table_bounds(self) -> Bounds:
        """The offsets whose rows of the table are compared."""
        # The log's end was asked for after the table's version: what lies beyond it is in no log.
        ends = self.end_is_given or self.archive
        return {partition: (given.start, given.end if ends else NO_END) for partition, given in self.given.items()}

    @property
    def needs_table(self) -> bool:
        """Whether the ranges depend on what is in the table."""
        return not (self.start_is_given and self.end_is_given)

    def compared(self, table: Ranges) -> dict[TopicPartition, OffsetRange]:
        """The ranges, `table` being what the table holds of each partition within `table_bounds`."""
        return {partition: self._compared(given, table.get(partition)) for partition, given in self.given.items()}

    def _compared(self, given: OffsetRange, table: OffsetRange | None) -> OffsetRange:
        if table is None:
            # Where a start is given, all that follows is missing.
            return given if self.start_is_given else OffsetRange(given.end, given.end)
        start = given.start if self.start_is_given else max(given.start, min(table.start, given.end))
        end = given.end if self.end_is_given else max(start, min(table.end, given.end))
        return OffsetRange(start, end)


def look_up_scope(settings: Mapping[str, str], ranges: Ranges | None) -> Scope:
    """What the options say, asked of the brokers or the archive; or the `ranges`, as far as the logs hold them.

    Raises:
        ConfigurationError: an option is wrong, or `ranges` names a partition that does not exist.
        BrokerError, StorageError: offsets cannot be had.
    """
    if ranges is not None:
        settings = narrowed(settings, ranges)
    elif _start_has_moved(settings):
        settings = without(settings, [spark.STARTING_OFFSETS.name])
    # What the logs no longer hold is left out, and told; what is lost later fails the reading of it.
    batch = {**without(settings, (*_OF_STREAMS, _FAIL)), _FAIL: "false"}
    options = parse_options(batch, streaming=False)
    with closing(open_log_source(options)) as source:
        lookup = OffsetLookup.of(options, source.offset_reader)
        wanted, bounds = batch_ranges(options, lookup), lookup.bounds({}, {})
    logs = {each: OffsetRange(first, max(first, bounds.latest[each])) for each, first in bounds.earliest.items()}
    return Scope(
        logs,
        {partition: offsets for partition, offsets in wanted.items() if partition in logs},
        start_is_given=gives(settings, STARTS),
        end_is_given=gives(settings, ENDS),
        assigned=gives(settings, [spark.ASSIGN.name]),
        archive=options.locator is LocatorName.ARCHIVE,
    )


def narrowed(settings: Mapping[str, str], ranges: Ranges) -> dict[str, str]:
    """The options of a batch query that reads the ranges and nothing else, and fails if it cannot."""
    ends = {spark.ENDING_OFFSETS.name: offsets_to_json(ends_of(ranges))}
    return without(settings, (*POSITIONS, *_OF_STREAMS, _FAIL)) | starting_at(ranges) | ends


def _start_has_moved(settings: Mapping[str, str]) -> bool:
    """Whether a stream with these options began at what has moved since, the log's end or a group: the table knows."""
    given = {name.lower(): value for name, value in settings.items()}
    start = given.get(spark.STARTING_OFFSETS.name.lower(), "").strip().lower()
    return start == "latest" or start.startswith(spark.GROUP)
