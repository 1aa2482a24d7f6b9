"""Dry run of a replay: an estimate of its offsets, bytes and requests, with or without a Spark session.

The dry run plans all micro-batches as a run of the replay would, and reads no record. Without Spark, it reads only
checkpoint files: the plan of an earlier run of the replay, and the progress of the ingest job's query.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from dataclasses import replace as with_fields
from typing import Any, cast
from urllib.parse import urlsplit

from tiered_stream.delta.checkpoint.folder_without_spark import StoredFolder
from tiered_stream.delta.checkpoint.query_tables import Folder
from tiered_stream.delta.requirements.hadoop_settings import HadoopSettings
from tiered_stream.delta.requirements.store_access import storage_without_spark
from tiered_stream.delta.settings import ingest_settings as ingest
from tiered_stream.delta.settings.query_settings import check_settings
from tiered_stream.delta.write.file_systems import path_uri
from tiered_stream.errors import ConfigurationError, StorageError
from tiered_stream.locate.log_source import LogSource, open_log_source
from tiered_stream.model import PartitionOffsets, Split
from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.options.settings_files import without
from tiered_stream.plan.read_cost import Prices, ReadCost, total_costs
from tiered_stream.plan.splits import splits_for
from tiered_stream.plan.stream import StreamPlanner
from tiered_stream.replays.limit_to_landed import limit_to_landed
from tiered_stream.replays.replay_checkpoint import stored_plan
from tiered_stream.replays.replay_plan import ReplayArguments, ReplayPlan, check_name
from tiered_stream.replays.target import byte_rate, check_lane, checkpoint_in, in_batches, kind_and_place
from tiered_stream.replays.times import parse_range, show_range
from tiered_stream.replays.times_to_offsets import new_plan, subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate(ReadCost):
    """Estimated cost of a whole replay: the replay's plan, the cost of each partition, and sums, time and price.

    An exact replay (`--exact`) does not read offsets whose records are older than `--from`. The field `skipped` of a
    partition's cost is the number of these offsets.
    """

    plan: ReplayPlan = field(repr=False)

    def figures(self) -> dict[str, Any]:
        """Return the replay's name, times and target, and all figures of `ReadCost`, as a dictionary for JSON."""
        plan = self.plan
        return {
            "name": plan.name,
            "times": show_range(plan.times),
            **asdict(plan.times),
            "exact": plan.arguments.exact,
            "target": plan.arguments.target,
            **ReadCost.figures(self),
        }


def estimate(
    plan: ReplayPlan, settings: Mapping[str, str], tasks: int, max_bytes_per_second: int | None, prices: Prices
) -> Estimate:
    """Return the estimated cost of reading the offset ranges of a plan; write nothing.

    Args:
        plan: the plan of the replay.
        settings: settings of the streaming query that would run the plan, as `Target.settings` returns them.
        tasks: number of parallel tasks.
        max_bytes_per_second: maximum bytes per second that all tasks fetch together, or None for no limit.
        prices: prices of requests and bytes, for the estimated cost.

    Raises:
        DataLossError: a log or an archive does not hold the plan's offsets.
        BrokerError, StorageError: offsets or segments cannot be looked up.
    """
    options = parse_options(ingest.source_options(settings), streaming=True)
    with closing(open_log_source(options, warns=False)) as source:  # the look-up of the offsets has warned
        partitions = total_costs(plan.ranges, _splits(options, source), options, source)
    return Estimate(
        plan=plan, partitions=partitions, tasks=tasks, max_bytes_per_second=max_bytes_per_second, prices=prices
    )


def _splits(options: Options, source: LogSource) -> Iterator[Split]:
    """Plan all micro-batches of the replay, and yield their splits: the offsets of one partition that a task reads."""
    planner = StreamPlanner(options, source.offset_reader, source.locator)
    planner.available_now = True
    start: PartitionOffsets = planner.initial()
    while (end := planner.next_end(start, limited=True)) != start:
        yield from splits_for(planner.ranges(start, end), options, source.locator, planner.topic_ids)
        start = end


_ANY_TOPIC = "0any0topic0"
"""Placeholder for `{topic}` in a table's path while the path is converted to a URI, which would escape the braces."""


def why_spark(settings: Mapping[str, str], into: str, checkpoint: str | None, *, replace: bool) -> str | None:
    """Return why a dry run needs a Spark session, or None if it needs none.

    Args:
        settings: the user's settings: options of the source, and settings of an ingest job, if there is one.
        into: the target: `kafka:TOPIC`, `parquet:FOLDER`, or a Delta table by its path or name.
        checkpoint: path of the replay's checkpoint folder, or None for the target's default folder.
        replace: True if the replay removes rows of the table (`--replace`).

    Raises:
        ConfigurationError: no name follows the prefix `kafka:` or `parquet:`.
    """
    kind, place = kind_and_place(into)
    if kind == "table" and "/" not in into:
        return f"the table {into} is found by Spark's catalog"
    if replace:
        return f"--replace depends on the columns and properties of the table {into}"
    job = ingest.job_settings(settings)
    if kind == "table" and ingest.CHECKPOINT in job and ingest.TABLE in job:
        by_topic = any(ingest.TABLE in own for own in ingest.topic_overrides(settings).values())
        if by_topic or "/" not in job[ingest.TABLE]:
            return f"the job's own tables ({job[ingest.TABLE]}) are found by Spark's catalog"
    folders = [checkpoint or ("" if kind == "topic" else place), job.get(ingest.CHECKPOINT, "")]
    for folder in filter(None, folders):
        if urlsplit(path_uri(folder)).scheme not in ("file", *ingest.BUCKET_SCHEMES):
            return f"{folder} is in a file system that only Spark reads"
    return None


def estimate_without_spark(
    settings: Mapping[str, str], into: str, *, from_time: str, to_time: str | None, name: str | None,
    checkpoint: str | None, exact: bool, lane: str, tasks: int, max_bytes_per_second: int | None, prices: Prices,
    now_ms: int, hadoop: HadoopSettings | None = None,
) -> Estimate:  # fmt: skip
    """Return the estimated cost of a replay without a Spark session; write nothing.

    Call this function only if `why_spark` returns None. The function does not check the target table or topic.

    Args:
        settings: the user's settings: options of the source, and settings of an ingest job, if there is one.
        into, from_time, to_time, name, checkpoint, exact, lane: arguments of the function `replay`.
        tasks: number of parallel tasks.
        max_bytes_per_second: maximum bytes per second that all tasks fetch together, or None for no limit.
        prices: prices of requests and bytes.
        now_ms: the current time in milliseconds since the epoch.
        hadoop: Hadoop settings from Spark's files, for access to checkpoints in an object store. If it is None, only
            the settings `ingest.storage.*` are used.

    Raises:
        ConfigurationError: an argument or a setting is wrong, a checkpoint cannot be read, or it belongs to another
            replay.
        TieredStreamError: the replay cannot be planned.
    """
    options = without(settings, ingest.JOB_SETTINGS)
    kind, place = kind_and_place(into)
    check_lane(into, lane)
    if max_bytes_per_second is not None:
        byte_rate(max_bytes_per_second, tasks)
    arguments = ReplayArguments(subscription(options), from_time, to_time, f"{kind} {place}", exact)
    name = check_name(name or arguments.default_name())
    folder = checkpoint or (None if kind == "topic" else checkpoint_in(place, name))

    def open_folder(path: str) -> Folder:
        # Nothing is written to the folder, although the type has methods that write.
        return cast(Folder, StoredFolder(path, path_uri(path), storage_without_spark(settings, path, hadoop)))

    with _readable_checkpoints():
        stored = stored_plan(open_folder(folder)) if folder else None
    if folder and stored:
        stored.check_same(name, arguments, folder)
    plan = stored or new_plan(options, name, arguments, parse_range(from_time, to_time, now_ms))
    if kind == "table":
        options = ingest.settings_of_topics(options, {partition.topic for partition in plan.ranges})
        query = _own_checkpoint(settings, into)
        if query is not None and not stored and not ingest.table_spec(options).is_upsert:
            with _readable_checkpoints():
                plan = with_fields(plan, ranges=limit_to_landed(open_folder, query, plan.ranges))
        check_settings(plan.stream_options(options), lane)
    reading = ingest.source_options(in_batches(plan.stream_options(options), tasks))
    return estimate(plan, reading, tasks, max_bytes_per_second, prices)


@contextmanager
def _readable_checkpoints() -> Iterator[None]:
    """Convert OSError and StorageError in the `with` block, which reads a checkpoint, to ConfigurationError."""
    try:
        yield
    except (OSError, StorageError) as error:
        raise ConfigurationError(
            f"a checkpoint cannot be read without Spark: {error}. Give Spark's settings by --properties-file, or "
            "ingest.storage.*, as for a table"
        ) from error


def _own_checkpoint(settings: Mapping[str, str], into: str) -> str | None:
    """Return the path of the ingest job's checkpoint if the job lands in the table `into`, else None."""
    job = ingest.job_settings(settings)
    if ingest.CHECKPOINT not in job or ingest.TABLE not in job:
        return None
    own = path_uri(job[ingest.TABLE].replace(ingest.TOPIC, _ANY_TOPIC)).rstrip("/")
    pattern = re.escape(own).replace(_ANY_TOPIC, "[^/]+")
    return job[ingest.CHECKPOINT] if re.fullmatch(pattern, path_uri(into).rstrip("/")) else None
