"""Scope of a comparison of a table with its topics: the table at one version, and the offset range of each partition.

Without starting and ending options, a partition is compared from the table's lowest to its highest offset. With these
options, all records between start and end must be in the table. Offsets below the log start offset are never compared,
because the topic no longer has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, IntegerType, LongType, StringType

from tiered_stream.delta.catalog.address import TableAddress, find_address
from tiered_stream.delta.catalog.java_errors import spark_errors
from tiered_stream.delta.catalog.session_checks import check_delta, check_table
from tiered_stream.delta.schema.sql_types import sql_name
from tiered_stream.errors import ConfigurationError
from tiered_stream.locate.log_source import open_log_source
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options import spark_options as spark
from tiered_stream.options.choices import LocatorName
from tiered_stream.options.offset_ranges import STREAM_OPTIONS, Ranges, batch_options, ranges_between
from tiered_stream.options.parsing import parse_options
from tiered_stream.options.settings_files import ENDS, STARTS, gives, without
from tiered_stream.plan.offset_lookup import OffsetLookup
from tiered_stream.plan.starting import batch_ranges
from tiered_stream.records.row_hash import HASHED
from tiered_stream.spark.source import spark_schema

NO_END = 2**63 - 1
"""End of an offset range that has no end."""

_FAIL_ON_DATA_LOSS = spark.FAIL_ON_DATA_LOSS.name

_NEEDED = ("topic", "partition", "offset")
_TYPES: Mapping[str, type[DataType]] = {
    "partition": LongType, "offset": IntegerType, "key": StringType, "value": StringType,
}  # fmt: skip
"""Second type that a table's column can have, by the source's column name, in addition to the source's own type."""


@dataclass(frozen=True)
class VerifiedTable:
    """Delta table at one `version`.

    `columns` are the names among `timestamp`, `key`, `value` and `headers` for which the table has a column. `rows` are
    the table's rows, with these columns and `topic`, `partition` and `offset`. The columns of `rows` have the source's
    names and types.
    """

    name: str
    version: int
    columns: tuple[str, ...]
    rows: DataFrame


def open_verified(spark: SparkSession, table: str, names: Mapping[str, str]) -> VerifiedTable:
    """Return the table at its latest version. Commits after this call are not read.

    Args:
        table: a path (it has a slash in it), or a name in the catalog.
        names: name of the table's column for each of Kafka's columns, by Kafka's name (see `record_columns`). Kafka's
            columns that are not in `names` are not compared.

    Raises:
        ConfigurationError: there is no Delta table, it lacks columns, or a column has another type than the source's.
            Also if the Spark session cannot read Delta tables, or has no connector to the table's store.
        TableError: Spark cannot reach the table.
    """
    check_delta(spark)
    address = find_address(spark, table)
    check_table(spark, address.path)
    with spark_errors(table, "read"):
        version, rows = latest_version(spark, address)
        columns = {column.lower(): column for column in rows.columns}
    own_names = {name: columns[own.lower()] for name, own in names.items() if own.lower() in columns}
    present = [name for name in (*_NEEDED, *HASHED) if name in own_names]
    types = {name: _cast(table, name, rows.schema[own_names[name]].dataType) for name in present}
    missing = [name for name in _NEEDED if name not in present]
    if missing or len(present) == len(_NEEDED):
        raise ConfigurationError(
            f"the table {table} cannot be compared: it has no column {' and '.join(missing) or ' or '.join(HASHED)}; "
            "it must have the name that it has in the source, or that ingest.kafkaColumns gives it"
        )
    named = [rows[sql_name([own_names[name]])].cast(kind).alias(name) for name, kind in types.items()]
    return VerifiedTable(str(address), version, tuple(present[len(_NEEDED) :]), rows.select(*named))


def latest_version(spark: SparkSession, address: TableAddress) -> tuple[int, DataFrame]:
    """Return the number of the table's latest version, and the rows of this version.

    Raises:
        ConfigurationError: there is no Delta table.
    """
    try:
        latest = spark.sql(f"DESCRIBE HISTORY {address.sql_name} LIMIT 1").first()
        assert latest is not None
        rows = spark.sql(f"SELECT * FROM {address.sql_name} VERSION AS OF {latest['version']}")
    except AnalysisException as error:
        raise ConfigurationError(f"there is no Delta table {address}: {str(error).splitlines()[0]}") from error
    return latest["version"], rows


def _cast(table: str, name: str, table_type: DataType) -> DataType:
    """Check the type of a table's column, and return the type of the source's column `name`, for a cast.

    The table may have keys and values as STRING, partitions as BIGINT, and offsets as INT. A cast of STRING to BINARY
    keeps all bytes, because Spark keeps bytes in a STRING even if they are not UTF-8.

    Raises:
        ConfigurationError: the table's column has another type.
    """
    source_type = spark_schema(include_headers=True)[name].dataType
    allowed = (type(source_type), _TYPES.get(name, type(source_type)))
    are_others = name == "headers" and table_type.simpleString() != source_type.simpleString()
    if are_others or not isinstance(table_type, allowed):
        raise ConfigurationError(
            f"the table {table} cannot be compared: it has {name} as {table_type.simpleString()}, "
            f"and records have it as {source_type.simpleString()}"
        )
    return source_type


@dataclass(frozen=True, slots=True)
class Scope:
    """Offset ranges of a comparison, by partition: `logs` are the topics' offsets, and `requested` a part of them.

    The starting and ending options, or the caller of `verify`, choose the requested ranges. `has_start` is True if a
    start was given. Otherwise the range to compare begins at the table's lowest offset. `has_end` is True if an end was
    given. Otherwise the range ends at the table's highest offset.
    """

    logs: Ranges
    requested: Ranges
    has_start: bool
    has_end: bool
    assigned: bool
    """True if the option `assign` names the partitions, so that the topics' other partitions are ignored."""
    archive: bool
    """True if the logs come from an archive (a bucket without its Kafka cluster), which may end before the table."""

    def table_bounds(self) -> Ranges:
        """Return the range of offsets by which the table's rows are selected for the comparison, by partition.

        The end is `NO_END` if no end was given, unless the logs are from an archive.
        """
        # The logs' ends were looked up after the table's version, so rows beyond them are in no log: they are extra.
        ends = self.has_end or self.archive
        return {
            partition: offsets if ends else OffsetRange(offsets.start, NO_END)
            for partition, offsets in self.requested.items()
        }

    @property
    def needs_table(self) -> bool:
        """Return True if the ranges to compare depend on the table's offsets, because no start or no end was given."""
        return not (self.has_start and self.has_end)

    def compared(self, table: Ranges) -> dict[TopicPartition, OffsetRange]:
        """Return the offset ranges to compare, by partition.

        Args:
            table: range from the lowest to the highest offset that the table has within `table_bounds`, by partition.
        """
        return {
            partition: self._compared(offsets, table.get(partition)) for partition, offsets in self.requested.items()
        }

    def _compared(self, requested: OffsetRange, table: OffsetRange | None) -> OffsetRange:
        if table is None:
            # The table has no row of the partition. If the options name a start, the table lacks all requested records.
            return requested if self.has_start else OffsetRange(requested.end, requested.end)
        start = requested.start if self.has_start else max(requested.start, min(table.start, requested.end))
        end = requested.end if self.has_end else max(start, min(table.end, requested.end))
        return OffsetRange(start, end)


def look_up_scope(settings: Mapping[str, str], ranges: Ranges | None) -> Scope:
    """Look up which offsets the topics have, at the brokers or in the archive; return the scope of the comparison.

    Args:
        settings: the options of the source.
        ranges: the requested offset ranges, by partition; offsets that the logs no longer hold are left out. If
            `ranges` is None, the starting and ending options choose the ranges.

    Raises:
        ConfigurationError: an option is wrong, or `ranges` names a partition that does not exist.
        BrokerError, StorageError: offsets cannot be looked up.
    """
    if ranges is not None:
        settings = narrowed(settings, ranges)
    elif _start_has_moved(settings):
        settings = without(settings, [spark.STARTING_OFFSETS.name])
    # Offsets that the logs no longer hold are left out with a warning. Offsets that are lost later fail the read.
    batch = {**without(settings, (*STREAM_OPTIONS, _FAIL_ON_DATA_LOSS)), _FAIL_ON_DATA_LOSS: "false"}
    options = parse_options(batch, streaming=False)
    with closing(open_log_source(options)) as source:
        lookup = OffsetLookup.of(options, source.offset_reader)
        requested, bounds = batch_ranges(options, lookup), lookup.bounds({}, {})
    logs = ranges_between(bounds.earliest, {partition: bounds.latest[partition] for partition in bounds.earliest})
    return Scope(
        logs,
        {partition: offsets for partition, offsets in requested.items() if partition in logs},
        has_start=gives(settings, STARTS),
        has_end=gives(settings, ENDS),
        assigned=gives(settings, [spark.ASSIGN.name]),
        archive=options.locator is LocatorName.ARCHIVE,
    )


def narrowed(settings: Mapping[str, str], ranges: Ranges) -> dict[str, str]:
    """Return the options of a batch query that reads exactly `ranges`, and fails if a record is lost.

    Args:
        settings: options of the source. Options for topics, starts and ends, options for streaming only, and
            `failOnDataLoss` are left out.
        ranges: offset ranges to read, by partition.
    """
    return batch_options(without(settings, [_FAIL_ON_DATA_LOSS]), ranges)


def _start_has_moved(settings: Mapping[str, str]) -> bool:
    """Return True if `startingOffsets` is `latest` or a consumer group, whose offsets move after the ingest has begun.

    In this case, only the table shows where the ingest began.
    """
    values = {name.lower(): value for name, value in settings.items()}
    start = values.get(spark.STARTING_OFFSETS.name.lower(), "").strip().lower()
    return start == "latest" or start.startswith(spark.GROUP)
