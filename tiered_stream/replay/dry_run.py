"""Dry run of a replay without a Spark session. The target's folder is read only for the plan of an earlier run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace as with_fields
from typing import cast
from urllib.parse import urlsplit

from tiered_stream.delta.checkpoint.query_tables import Folder
from tiered_stream.delta.checkpoint.stored_folder import StoredFolder
from tiered_stream.delta.requirements.hadoop_settings import HadoopSettings
from tiered_stream.delta.requirements.store_access import storage_without_spark
from tiered_stream.delta.settings.ingest_settings import (
    BUCKET_SCHEMES,
    CHECKPOINT,
    JOB_SETTINGS,
    TABLE,
    TOPIC,
    job_settings,
    settings_of_topics,
    source_options,
    topic_overrides,
)
from tiered_stream.delta.settings.query_settings import check_settings
from tiered_stream.delta.settings.upsert_settings import is_upsert
from tiered_stream.delta.write.file_systems import path_uri
from tiered_stream.errors import ConfigurationError, StorageError
from tiered_stream.options.settings_files import gives, without
from tiered_stream.options.spark_options import INCLUDE_HEADERS, MAX_BYTES_PER_TRIGGER, MAX_OFFSETS_PER_TRIGGER
from tiered_stream.plan.read_cost import Prices
from tiered_stream.replay.estimate import Estimate, estimate
from tiered_stream.replay.left_to_query import limit_to_landed
from tiered_stream.replay.replay_plan import ReplayArguments, ReplayPlan, check_name
from tiered_stream.replay.run_replay import check_same, new_plan, subscription
from tiered_stream.replay.store import PLAN
from tiered_stream.replay.target import OFFSETS_PER_TASK, checkpoint_in
from tiered_stream.replay.targets import PARQUET
from tiered_stream.replay.targets import TOPIC as KAFKA
from tiered_stream.replay.times import parse_range

_ANY_TOPIC = "0any0topic0"
"""Text in place of `{topic}` while a path becomes a URI, which would escape the braces."""


def why_spark(settings: Mapping[str, str], into: str, checkpoint: str | None, *, replace: bool) -> str | None:
    """Return why a dry run needs a Spark session; None: it needs none.

    Args:
        into: the target, as for `target_of`.
        checkpoint: the replay's own checkpoint; None: the target's default.
    """
    is_table = not into.startswith((KAFKA, PARQUET))
    if is_table and "/" not in into:
        return f"the table {into} is found by Spark's catalog"
    if replace:
        return f"--replace depends on the columns and properties of the table {into}"
    job = job_settings(settings)
    if is_table and CHECKPOINT in job and TABLE in job:
        by_topic = any(TABLE in own for own in topic_overrides(settings).values())
        if by_topic or "/" not in job[TABLE]:
            return f"the job's own tables ({job[TABLE]}) are found by Spark's catalog"
    folders = [checkpoint or ("" if into.startswith(KAFKA) else into.removeprefix(PARQUET)), job.get(CHECKPOINT, "")]
    for folder in filter(None, folders):
        if urlsplit(path_uri(folder)).scheme not in ("file", *BUCKET_SCHEMES):
            return f"{folder} is in a file system that only Spark reads"
    return None


def estimate_without_spark(
    settings: Mapping[str, str], into: str, *, from_time: str, to_time: str | None, name: str | None,
    checkpoint: str | None, exact: bool, lane: str, tasks: int, max_bytes_per_second: int | None, prices: Prices,
    now_ms: int, hadoop: HadoopSettings | None = None,
) -> Estimate:  # fmt: skip
    """Return the estimated cost of a replay, whose arguments are as in `replay`; `why_spark` must return None for them.

    The table itself, or the target topic, is not checked. `hadoop` is as for `storage_without_spark`.

    Raises:
        ConfigurationError: an argument or a setting is wrong, a checkpoint cannot be read, or it belongs to another
            replay.
        TieredStreamError: the replay cannot be planned.
    """
    options = without(settings, JOB_SETTINGS)
    kind, place = _kind_and_place(into)
    arguments = ReplayArguments(subscription(options), from_time, to_time, f"{kind} {place}", exact)
    name = check_name(name or arguments.default_name())
    folder = checkpoint or (None if kind == "topic" else checkpoint_in(place, name))

    def open_folder(path: str) -> StoredFolder:
        return StoredFolder(path, path_uri(path), storage_without_spark(settings, path, hadoop))

    with _readable_checkpoints():
        text = open_folder(folder).read(PLAN) if folder else None
    plan = ReplayPlan.from_json(text) if text is not None else None
    if plan is not None:
        check_same(plan, arguments)
    else:
        plan = new_plan(options, name, arguments, parse_range(from_time, to_time, now_ms))
        if (
            kind == "table"
            and not _keeps_latest(options, plan)
            and (query := _own_checkpoint(settings, into)) is not None
        ):
            with _readable_checkpoints():  # only read, although the type can write, too
                ranges = limit_to_landed(lambda path: cast(Folder, open_folder(path)), query, plan.ranges)
            plan = with_fields(plan, ranges=ranges)
    reading = plan.stream_options(options)
    if kind == "table":
        check_settings(reading, lane)
    if kind == "topic":
        reading = {**reading, INCLUDE_HEADERS.name: "true"}
    if not gives(reading, [MAX_OFFSETS_PER_TRIGGER.name, MAX_BYTES_PER_TRIGGER.name]):
        reading = {**reading, MAX_OFFSETS_PER_TRIGGER.name: str(tasks * OFFSETS_PER_TASK)}
    return estimate(plan, source_options(reading), tasks, max_bytes_per_second, prices)


def _keeps_latest(options: Mapping[str, str], plan: ReplayPlan) -> bool:
    """Return whether the table of the plan's topics has the latest row of each key (`ingest.mode=upsert`)."""
    return is_upsert(settings_of_topics(options, {partition.topic for partition in plan.ranges}))


def _kind_and_place(into: str) -> tuple[str, str]:
    for prefix, kind in ((KAFKA, "topic"), (PARQUET, "parquet")):
        if into == prefix:
            raise ConfigurationError(f"the target {into!r} has no name: write {prefix}NAME")
        if into.startswith(prefix):
            return kind, into.removeprefix(prefix)
    return "table", into


@contextmanager
def _readable_checkpoints() -> Iterator[None]:
    """Raise ConfigurationError if a checkpoint cannot be read in the `with` block."""
    try:
        yield
    except (OSError, StorageError) as error:
        raise ConfigurationError(
            f"a checkpoint cannot be read without Spark: {error}. Give Spark's settings by --properties-file, or "
            "ingest.storage.*, as for a table"
        ) from error


def _own_checkpoint(settings: Mapping[str, str], into: str) -> str | None:
    """Return the ingest job's checkpoint if the job lands in the table `into`; None: it does not."""
    job = job_settings(settings)
    if CHECKPOINT not in job or TABLE not in job:
        return None
    pattern = re.escape(path_uri(job[TABLE].replace(TOPIC, _ANY_TOPIC)).rstrip("/")).replace(_ANY_TOPIC, "[^/]+")
    return job[CHECKPOINT] if re.fullmatch(pattern, path_uri(into).rstrip("/")) else None
