"""Comparison of a table of the latest state (`ingest.mode=upsert`) with its topics, for the function `verify`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from tiered_stream.delta.catalog.address import find_address
from tiered_stream.delta.catalog.java_errors import spark_errors
from tiered_stream.delta.catalog.session_checks import check_delta, check_table
from tiered_stream.delta.commit.committer import find_table
from tiered_stream.delta.commit.landed_offsets import LandedOffsets, landed_offsets
from tiered_stream.delta.commit.open_table import fitted_rows, with_access
from tiered_stream.delta.requirements.lane import TableDescription, check_fit
from tiered_stream.delta.requirements.merge_requirements import merged_columns
from tiered_stream.delta.schema.routing import Route, Routing
from tiered_stream.delta.schema.row_plan import plan_topics, record_columns
from tiered_stream.delta.schema.row_schema import shared_columns, time_zone
from tiered_stream.delta.settings import ingest_settings as ingest
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.delta.settings.query_settings import QuerySettings, check_settings
from tiered_stream.delta.settings.row_settings import MODE, SCHEMA_EVOLUTION, UPSERT
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.rows.row_choices import Evolution
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.offset_ranges import Ranges
from tiered_stream.options.positions import TimeRange
from tiered_stream.options.settings_files import ENDS, without
from tiered_stream.spark.executor_python import register_source
from tiered_stream.spark.session import refuse_connect
from tiered_stream.verification.latest_comparison import (
    LatestDifferences,
    LatestSides,
    LatestSums,
    compare_sums,
    differences,
)
from tiered_stream.verification.latest_rows_source import LatestRowsDataSource
from tiered_stream.verification.scope import Scope, latest_version, look_up_scope
from tiered_stream.verification.verify_report import ComparedOffsets, LatestReport


def verify_latest(
    spark: SparkSession, settings: Mapping[str, str], table: str, ranges: Ranges | None, times: TimeRange | None
) -> LatestReport:
    """Compare a table of the latest state with the last records of all keys in its topics; return a report.

    The arguments and errors are the same as in `verify`. `settings` are the settings of the table's topics.

    Raises:
        ConfigurationError: a key is in several partitions and no column orders its records, or a setting is wrong.
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
    sides = LatestSides(
        spark, routing, query.options, rows, tuple(each for each in rows.schema if each.name.lower() in names),
        tuple(_as_in_table(rows, key) for key in files.keys),
        None if files.order_by is None else _as_in_table(rows, files.order_by),
        _kafka_columns(files, rows), compared, times,
        is_whole=times is None and _is_whole(landed, compared),
        is_part=times is not None or _is_part(landed, compared, scope),
    )  # fmt: skip
    register_source(spark, LatestRowsDataSource)
    left_out = tuple(name for name in rows.columns if name.lower() not in names)
    return _report(sides, f"{address}", version, left_out, scope)


def _report(sides: LatestSides, table: str, version: int, left_out: tuple[str, ...], scope: Scope) -> LatestReport:
    sums = compare_sums(sides) if sides.offsets else LatestSums(0, {}, ())
    found = differences(sides, sums.differing) if sums.differing else LatestDifferences((), (), 0)
    outside = sum(rows for bucket, rows in sums.outside.items() if bucket not in set(sums.differing))
    return LatestReport(
        table=table,
        version=version,
        keys=sides.keys,
        columns=tuple(each.name for each in sides.fields),
        left_out=left_out,
        partitions=tuple(
            ComparedOffsets(each, scope.logs[each], offsets) for each, offsets in sorted(sides.offsets.items())
        ),
        topic_rows=sums.topic_rows,
        table_outside=outside + found.outside,
        counts=found.counts,
        differences=found.named,
        changed=bool(sums.differing) and not (found.counts or found.outside or found.tied),
    )


def _routing(
    spark: SparkSession, query: QuerySettings, topics: Sequence[str], table: str
) -> tuple[Routing, TableDescription]:
    """Return a routing by which tasks decode records as for the table, and the table's description."""
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
    """Return the offsets to compare of each partition that has any, if the options name neither start nor end."""
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
    """Return whether the table may have rows of later records than the compared ones."""
    if not landed.is_complete:
        return scope.has_end
    nothing = OffsetRange(0, 0)
    return any(offsets.end > compared.get(partition, nothing).end for partition, offsets in landed.ranges.items())


def _kafka_columns(spec: TableSpec, rows: DataFrame) -> dict[str, str]:
    """Return the names of the table's columns with the position of a row's record, by Kafka's name."""
    names = record_columns(spec)
    return {
        name: _as_in_table(rows, names[name])
        for name in ("topic", "partition", "offset")
        if name in names and names[name].lower() in {column.lower() for column in rows.columns}
    }


def _as_in_table(rows: DataFrame, name: str) -> str:
    """Return the name of the column as the table writes it, because Delta ignores case."""
    return next((column for column in rows.columns if column.lower() == name.lower()), name)
