"""Function `verify`, which checks that a Delta table has each record of its topics once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import SparkSession

from tiered_stream.delta.schema.row_plan import record_columns
from tiered_stream.delta.settings import ingest_settings as ingest
from tiered_stream.delta.settings.query_settings import query_settings
from tiered_stream.delta.settings.row_settings import WHERE
from tiered_stream.errors import ConfigurationError
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.offset_ranges import Ranges
from tiered_stream.options.parsing import parse_subscription
from tiered_stream.options.positions import TimeRange
from tiered_stream.records.row_hash import HASHED
from tiered_stream.spark.executor_python import register_source
from tiered_stream.spark.source import register
from tiered_stream.verification.record_comparison import Compared, Sides, compare, first_differences, table_ends
from tiered_stream.verification.scope import Scope, look_up_scope, open_verified
from tiered_stream.verification.statistics_comparison import check_statistics
from tiered_stream.verification.sums_source import SumsDataSource
from tiered_stream.verification.verify_latest import verify_latest
from tiered_stream.verification.verify_report import LatestReport, PartitionReport, VerifyReport


def verify(
    spark: SparkSession,
    *,
    options: Mapping[str, str],
    table: str,
    ranges: Ranges | None = None,
    times: TimeRange | None = None,
    repair: bool = False,
) -> VerifyReport | LatestReport:
    """Compare a Delta table with the topics that it was ingested from, whatever tool ingested it; return a report.

    Topic and table are each read once, in parallel, into sums of row hashes for every 65,536 offsets of a partition.
    Rows are read again only where the sums differ. A row hash covers the offset, and timestamp, key, value and headers
    if the table has these columns.

    A table of the latest state (`ingest.mode=upsert`) is compared with the last record of each key, by all columns that
    records have, and the report is a `LatestReport`. Without starting and ending options, the offsets are compared that
    the table's commits name.

    The statistics in the table's log, by which readers skip files, are compared with the rows of the newest files.

    Args:
        options: options of `format("tiered_stream")`, as the ingest had them. `ingest.kafkaColumns` and the formats of
            keys and values define which of the table's columns hold the record; other `ingest.*` settings are ignored.
            All records between starting and ending options must be in the table. Without these options, a partition is
            compared from the table's lowest to its highest offset. `startingOffsets` counts as not given if it is
            `latest` or names a consumer group.
        table: a path (it has a slash in it), or a name in the catalog.
        ranges: the offset ranges to compare, in place of the options' positions.
        times: compare only records with timestamps in this range. If it is None, all records are compared.
        repair: if a statistic in the table's log is wrong, compute the statistics of all files again, in one commit.

    Raises:
        ConfigurationError: an option is wrong, the table does not exist, or it lacks columns.
        BrokerError, StorageError: the topics' offsets cannot be looked up.
        PySparkException: reading the topic or the table failed in Spark.
    """
    topics = _topics(options, ranges)
    report: VerifyReport | LatestReport
    query = query_settings(options)
    if any(query.spec_of(topic).is_upsert for topic in topics or [""]):
        report = verify_latest(spark, ingest.settings_of_topics(options, topics), table, ranges, times)
    else:
        report = _verify_records(spark, options, table, ranges, times)
    return replace(report, statistics=check_statistics(spark, table, repair=repair))


def _verify_records(
    spark: SparkSession,
    options: Mapping[str, str],
    table: str,
    ranges: Ranges | None,
    times: TimeRange | None,
) -> VerifyReport:
    """Compare a table that has a row for each record; the arguments and errors are the same as in `verify`."""
    verified = open_verified(spark, table, _record_columns(options, _topics(options, ranges)))
    if times is not None and "timestamp" not in verified.columns:
        raise ConfigurationError(
            f"the table {table} has no column with the records' timestamp, by which records are to be chosen"
        )
    settings = ingest.source_options(options)
    scope = look_up_scope(settings, ranges)
    register(spark)
    register_source(spark, SumsDataSource)
    sides = Sides(spark, settings, verified, times)
    sums, offsets = _compared(sides, scope) if scope.requested else ({}, {})
    firsts = first_differences(sides, scope.table_bounds(), sums, offsets)

    def report(partition: TopicPartition) -> PartitionReport:
        figures, log, compared = sums.get(partition, Compared()), scope.logs[partition], offsets[partition]
        counts = figures.topic_records, figures.table_records, figures.table_outside, figures.differing
        return PartitionReport(partition, log, compared, *counts, figures.differing_offsets, firsts.get(partition))

    return VerifyReport(
        table=verified.name,
        version=verified.version,
        columns=verified.columns,
        left_out=tuple(name for name in HASHED if name not in verified.columns),
        partitions=tuple(map(report, sorted(scope.requested))),
        not_read=tuple(
            (partition, sums[partition].table_outside) for partition in sorted(sums.keys() - scope.requested.keys())
        ),
    )


def _topics(options: Mapping[str, str], ranges: Ranges | None) -> set[str]:
    """Return the topics to compare; for `subscribePattern`, only matching topics with `ingest.topic.*` settings."""
    if ranges is not None:
        return {partition.topic for partition in ranges}
    subscription = parse_subscription(options)
    return {
        *subscription.topics,
        *(partition.topic for partition in subscription.assigned),
        *filter(subscription.names, ingest.topic_overrides(options)),
    }


def _record_columns(options: Mapping[str, str], topics: set[str]) -> dict[str, str]:
    """Return the names of the table's columns that hold a record's key, value and so on, by Kafka's column name."""
    query = query_settings(options)
    specs = {topic: query.spec_of(topic) for topic in sorted(topics)} or {"": query.spec}
    for spec in specs.values():
        if spec.rows.where is not None:
            raise ConfigurationError(
                f"{WHERE.name} is set: a record that it left out looks like a lost record, so the table cannot be "
                "verified"
            )
    by_topic = {topic: record_columns(spec) for topic, spec in specs.items()}
    first = next(iter(by_topic))
    other = next((topic for topic, columns in by_topic.items() if columns != by_topic[first]), None)
    if other is not None:
        raise ConfigurationError(
            f"topics {first} and {other} have records in columns of different names ({ingest.TOPIC_PREFIX}NAME.*): "
            "verify each topic by itself"
        )
    return by_topic[first]


def _compared(sides: Sides, scope: Scope) -> tuple[dict[TopicPartition, Compared], dict[TopicPartition, OffsetRange]]:
    """Compare the topics' sums with the table's sums; return results and compared offset ranges, by partition."""
    table = sides.table_sums(scope)
    if scope.needs_table:
        table.persist()  # the few sums are needed twice, but the table is read only once
    try:
        offsets = scope.compared(table_ends(table) if scope.needs_table else {})
        return compare(sides.topic_hashed(offsets, by_row=False), table), offsets
    finally:
        table.unpersist()
