"""Function `verify`, which checks that a Delta table has each record of its topics once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from tiered_stream.delta.catalog.address import find_address
from tiered_stream.delta.catalog.java_errors import spark_errors
from tiered_stream.delta.catalog.session_checks import check_delta, check_table
from tiered_stream.delta.commit.commit_library import find_table, with_access
from tiered_stream.delta.commit.table_log import LandedOffsets, landed_offsets
from tiered_stream.delta.requirements.lane import TableDescription, check_fit
from tiered_stream.delta.requirements.merge_requirements import fitted_rows, merged_columns
from tiered_stream.delta.schema.routing import Route, Routing
from tiered_stream.delta.schema.row_plan import plan_topics, record_columns
from tiered_stream.delta.schema.row_schema import shared_columns, time_zone
from tiered_stream.delta.settings import ingest_settings as ingest
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.delta.settings.query_settings import QuerySettings, check_settings, query_settings
from tiered_stream.delta.settings.row_settings import MODE, SCHEMA_EVOLUTION, UPSERT, WHERE
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.rows.change_records import named_column
from tiered_stream.formats.rows.row_choices import Evolution
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.offset_ranges import Ranges
from tiered_stream.options.parsing import parse_subscription
from tiered_stream.options.positions import TimeRange
from tiered_stream.options.settings_files import ENDS, without
from tiered_stream.records.row_hash import HASHED
from tiered_stream.spark.executor_python import register_source
from tiered_stream.spark.session import refuse_connect
from tiered_stream.spark.source import register
from tiered_stream.verification import latest_comparison as latest
from tiered_stream.verification.latest_rows_source import LatestRowsDataSource
from tiered_stream.verification.record_comparison import Compared, Sides, compare, first_differences, table_ends
from tiered_stream.verification.scope import Scope, latest_version, look_up_scope, open_verified
from tiered_stream.verification.statistics_comparison import check_statistics
from tiered_stream.verification.sums_source import SOURCE, HashesDataSource, SumsDataSource
from tiered_stream.verification.verify_report import ComparedOffsets, LatestReport, PartitionReport, VerifyReport


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
    records set, and the report is a `LatestReport`. Without starting and ending options, the compared offsets are the
    offsets that the table's commits name.

    The statistics in the table's log, by which readers skip files, are compared with the rows of the newest files.

    Args:
        options: options of `format("tiered_stream")`, as the ingest had them. `ingest.kafkaColumns` and the formats of
            keys and values define which of the table's columns hold the record; other `ingest.*` settings are ignored.
            All records between starting and ending options must be in the table. Without these options, a partition is
            compared from the table's lowest to its highest offset. `startingOffsets` counts as not given if it is
            `latest` or names a consumer group.
        table: a path (it has a slash in it), or a name in the catalog.
        ranges: the offset ranges to compare, by partition, in place of the starting and ending options.
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
    spark: SparkSession, options: Mapping[str, str], table: str, ranges: Ranges | None, times: TimeRange | None
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
    register_source(spark, HashesDataSource)
    sides = Sides(spark, settings, verified, times)
    sums, offsets = _compared(sides, scope) if scope.requested else ({}, {})
    firsts = first_differences(sides, scope.table_bounds(), sums, offsets)
    return VerifyReport(
        table=verified.name,
        version=verified.version,
        columns=verified.columns,
        left_out=tuple(name for name in HASHED if name not in verified.columns),
        partitions=tuple(
            PartitionReport(each, scope.logs[each], offsets[each], *sums.get(each, Compared()), firsts.get(each))
            for each in sorted(scope.requested)
        ),
        not_read=tuple(
            (partition, sums[partition].table_outside) for partition in sorted(sums.keys() - scope.requested.keys())
        ),
    )


def _topics(options: Mapping[str, str], ranges: Ranges | None) -> set[str]:
    """Return the topics of `ranges`. If `ranges` is None, return the topics that the options name.

    With `subscribePattern`, the result has only those matching topics that have their own settings (`ingest.topic.*`).
    """
    if ranges is not None:
        return {partition.topic for partition in ranges}
    subscription = parse_subscription(options)
    return {
        *subscription.topics,
        *(partition.topic for partition in subscription.assigned),
        *filter(subscription.names, ingest.topic_overrides(options)),
    }


def _record_columns(options: Mapping[str, str], topics: set[str]) -> dict[str, str]:
    """Return a dictionary from Kafka's columns (`key`, `value` and so on) to the names of the table's columns.

    Raises:
        ConfigurationError: `ingest.where` is set, or topics have their records in columns of different names.
    """
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
    """Compare the topics with the table by sums of row hashes.

    Return the results and the compared offset ranges, both by partition.
    """
    table = sides.table_sums(scope)
    if scope.needs_table:
        table.persist()  # the few sums are needed twice, but the table is read only once
    try:
        offsets = scope.compared(table_ends(table) if scope.needs_table else {})
        return compare(sides.topic_rows(offsets, SOURCE), table), offsets
    finally:
        table.unpersist()


def verify_latest(
    spark: SparkSession, settings: Mapping[str, str], table: str, ranges: Ranges | None, times: TimeRange | None
) -> LatestReport:
    """Compare a table of the latest state with the last records of all keys in its topics; return a report.

    The arguments and errors are the same as in `verify`. `settings` are the options of `verify`, with the settings that
    the table's topics have of their own (`ingest.topic.*`) applied.

    Raises:
        ConfigurationError: a key has records in several partitions and `ingest.orderBy` is not set, or a setting is
            wrong.
    """
    refuse_connect(spark, f"verify with {MODE.name}={UPSERT}")
    settings = ingest.with_overrides(settings, {SCHEMA_EVOLUTION.name: Evolution.NONE})
    query, source = check_settings(without(settings, ENDS), "auto")
    check_delta(spark)
    address = find_address(spark, table)
    check_table(spark, address.path)
    with spark_errors(table, "read"):
        version, rows = latest_version(spark, address)
        landed = landed_offsets(spark, address.sql_name, version)
    routing, description = _routing(spark, query, source.subscription.topics, table)
    scope = look_up_scope(ingest.source_options(settings), ranges)
    compared = scope.compared(_to_compare(landed, scope.requested))
    check_fit(table, description, shared_columns(routing.rows.values(), None), None)
    names = {name.lower() for name in merged_columns(description, routing.spec.own_columns).names}
    files = query.spec
    sides = latest.LatestSides(
        spark, routing, query.options, rows, tuple(each for each in rows.schema if each.name.lower() in names),
        tuple(named_column(rows.schema, key) or key for key in files.keys),
        None if files.order_by is None else named_column(rows.schema, files.order_by) or files.order_by,
        _kafka_columns(files, rows), compared, times,
        is_whole=times is None and _is_whole(landed, compared),
        is_part=times is not None or _is_part(landed, compared, scope),
    )  # fmt: skip
    register_source(spark, LatestRowsDataSource)
    report = LatestReport(
        table=str(address),
        version=version,
        keys=sides.keys,
        columns=tuple(each.name for each in sides.fields),
        left_out=tuple(name for name in rows.columns if name.lower() not in names),
        partitions=tuple(ComparedOffsets(each, scope.logs[each], compared[each]) for each in sorted(compared)),
    )
    return latest.compare(sides, report) if compared else report


def _routing(
    spark: SparkSession, query: QuerySettings, topics: Sequence[str], table: str
) -> tuple[Routing, TableDescription]:
    """Return a routing by which tasks decode the records of all topics to rows of the table, and its description.

    The description is the table's metadata and protocol.

    Raises:
        ConfigurationError: there is no such Delta table.
    """
    address = find_address(spark, table)
    files, _ = with_access(spark, replace(query.spec, uri=address.uri or ""))
    transaction = find_table(spark, address, files) if address.uri else None
    if transaction is None:
        raise ConfigurationError(f"there is no Delta table {address}")
    description = transaction.state.description
    if files.rows.infers:
        # Imported late, because the import loads the record readers (0.4 s).
        from tiered_stream.delta.landing.inferred_schema import with_inferred

        files = with_inferred(files, query.options, description, include_headers=query.include_headers)
    planned = plan_topics(files, topics, query.include_headers, time_zone(spark))
    rows = fitted_rows(planned, description, files)
    route = Route(".*", str(address), files.uri)
    return Routing(files, (route,), rows=rows, has_rules=True), description


def _to_compare(landed: LandedOffsets, requested: Ranges) -> dict[TopicPartition, OffsetRange]:
    """Return, by partition, the offsets to compare if the options name neither start nor end.

    These are the offsets that the table's commits name. If the table's history is not complete, the offsets begin at
    the requested start, and a partition that the commits do not name is compared up to the requested end.
    """
    found = {}
    for partition, offsets in requested.items():
        known = landed.ranges.get(partition)
        if known is None and landed.is_complete:
            continue
        start = known.start if known and landed.is_complete else offsets.start
        found[partition] = OffsetRange(start, known.end if known else offsets.end)
    return found


def _is_whole(landed: LandedOffsets, compared: Ranges) -> bool:
    """Return whether the compared offsets begin where the table begins, in every partition."""
    starts = {partition: offsets.start for partition, offsets in landed.ranges.items()} if landed.is_complete else {}
    return all(offsets.start <= starts.get(partition, 0) for partition, offsets in compared.items() if len(offsets))


def _is_part(landed: LandedOffsets, compared: Ranges, scope: Scope) -> bool:
    """Return whether the table may have rows of records that are later than the compared records."""
    if not landed.is_complete:
        return scope.has_end
    nothing = OffsetRange(0, 0)
    return any(offsets.end > compared.get(partition, nothing).end for partition, offsets in landed.ranges.items())


def _kafka_columns(spec: TableSpec, rows: DataFrame) -> dict[str, str]:
    """Return a dictionary from Kafka's columns `topic`, `partition` and `offset` to the names of the table's columns.

    A column of Kafka that the table does not have is left out.
    """
    names = record_columns(spec)
    found = {name: named_column(rows.schema, names[name]) for name in ("topic", "partition", "offset") if name in names}
    return {name: column for name, column in found.items() if column is not None}
