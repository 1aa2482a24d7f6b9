"""Plan of an export: the offsets to read of each partition, and the rows that records of each topic become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from uuid import UUID

import pyarrow as pa

from tiered_stream.delta.schema.row_plan import plan_topics
from tiered_stream.delta.settings import ingest_settings as ingest
from tiered_stream.delta.settings.query_settings import check_all_columns, query_settings
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.rows.row_choices import Evolution
from tiered_stream.formats.rows.row_format import RowFormat
from tiered_stream.formats.sql.bound import Columns, bind_condition
from tiered_stream.formats.sql.parser import parse_condition
from tiered_stream.formats.sql.sql_values import Bound
from tiered_stream.locate.log_source import open_log_source
from tiered_stream.model import OffsetRange, Split, TopicPartition
from tiered_stream.options.offset_ranges import Ranges
from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.options.positions import TimeRange
from tiered_stream.options.settings_files import ENDS, STARTS, without
from tiered_stream.plan.batch import batch_offsets
from tiered_stream.plan.splits import splits_for
from tiered_stream.records.arrow import record_schema
from tiered_stream.replays.times_to_offsets import resolve


@dataclass(frozen=True)
class ExportPlan:
    """Plan of an export.

    `options` are the options for reading. `ranges` has the offset range of each partition, and `topic_ids` the topics'
    ids by the topic's name. `where` has SQL conditions that exported rows must meet.
    """

    options: Options = field(repr=False)
    ranges: Ranges
    topic_ids: Mapping[str, UUID]
    rows: Mapping[str, RowFormat]
    """Format of the rows, by topic. Topics whose records are exported unchanged are left out."""
    where: Sequence[str] = ()

    def schema(self, topic: str) -> pa.Schema:
        """Return the Arrow schema of a topic's exported rows."""
        row_format = self.rows.get(topic)
        if row_format is None:
            return record_schema(self.options.include_headers, self.options.columns)
        return pa.schema([(column.name, column.type) for column in row_format.written])

    def conditions(self, topic: str) -> list[Bound]:
        """Return the conditions that a topic's exported rows must meet, bound to the columns of `schema`.

        Raises:
            ConfigurationError: a condition is malformed, or does not fit the columns.
        """
        columns = Columns(self.schema(topic), "UTC")
        try:
            return [bind_condition(text, parse_condition(text), columns) for text in self.where]
        except ConfigurationError as error:
            raise ConfigurationError(
                f"--where: {error}. A condition is SQL, such as amount >= 100, with texts and times in single quotes, "
                "such as key = 'a17'"
            ) from error

    def shared_schema(self) -> pa.Schema:
        """Return the Arrow schema that the exported rows of all topics have.

        Raises:
            ConfigurationError: topics have rows with different columns.
        """
        topics = sorted({partition.topic for partition in self.ranges})
        schema = self.schema(topics[0]) if topics else record_schema(self.options.include_headers, self.options.columns)
        for topic in topics[1:]:
            if not self.schema(topic).equals(schema):
                raise ConfigurationError(
                    f"the topics {topics[0]} and {topic} have different columns, which one file cannot hold: export "
                    "them into a folder"
                )
        return schema

    def splits(self, partitions: Mapping[TopicPartition, OffsetRange]) -> list[Split]:
        """Return the splits (parts of a partition that one thread reads) of offset ranges, by partition and offset.

        Raises:
            BrokerError, StorageError: segments cannot be located.
        """
        with closing(open_log_source(self.options, warns=False)) as source:  # the look-up of the offsets has warned
            return splits_for(partitions, self.options, source.locator, self.topic_ids)

    @property
    def offsets(self) -> int:
        """Number of offsets in `ranges`, which is an upper bound of the number of records."""
        return sum(map(len, self.ranges.values()))


def plan_export(
    settings: Mapping[str, str], times: TimeRange | None = None, *, exact: bool = False, where: Sequence[str] = (),
    stored: tuple[Ranges, Mapping[str, UUID]] | None = None,
) -> ExportPlan:  # fmt: skip
    """Return the plan of an export; nothing is written.

    Args:
        settings: options of the source, and settings of an ingest job, if there is one. An export uses only those
            settings of the job that decide how records become rows.
        times: range of timestamps that replaces the starting and ending options. If it is None, these options are used.
        exact: True to export exactly the records whose timestamps are within `times`. If it is False, a partition is
            read from its first offset at or after the start of `times`, up to its first offset at or after the end.
        where: SQL conditions that exported rows must meet.
        stored: offset ranges and topic ids of an interrupted export to resume. If it is None, they are looked up.

    Raises:
        ConfigurationError: a setting or a condition is wrong.
        TieredStreamError: the read cannot be planned.
    """
    ingest.check_names(settings, ingest.JOB_SETTINGS)
    reading = ingest.source_options(settings)
    options = parse_options(without(reading, (*STARTS, *ENDS)) if times else reading, streaming=False)
    ranges, topic_ids = stored or _look_up(options, times, exact=exact)
    ranges = {partition: ranges[partition] for partition in sorted(ranges)}
    rows = _row_formats(settings, options, sorted({partition.topic for partition in ranges}))
    options = replace(
        options,
        times=times if exact else options.times,
        include_headers=options.include_headers or any(row_format.needs_headers for row_format in rows.values()),
        min_partitions=None,
    )
    plan = ExportPlan(options, ranges, topic_ids, rows, where)
    for topic in {partition.topic for partition in ranges}:
        plan.conditions(topic)
    return plan


def _look_up(options: Options, times: TimeRange | None, *, exact: bool) -> tuple[Ranges, Mapping[str, UUID]]:
    with closing(open_log_source(options)) as source:
        return resolve(options, source, times, exact=exact) if times else batch_offsets(options, source)


def _row_formats(settings: Mapping[str, str], options: Options, topics: Sequence[str]) -> dict[str, RowFormat]:
    """Return, by topic, the row formats of the topics for which `settings` decode records or rename their columns."""
    formats, query = {}, query_settings(settings)
    for topic in topics:
        spec = query.spec_of(topic)
        if spec.rows.makes_rows:
            check_all_columns(options)
            planned = plan_topics(spec, [topic], options.include_headers)
            formats[topic] = replace(planned.get(topic) or planned[""], evolution=Evolution.NONE)
    return formats
