"""Check if a job's table has records already that the job's query is about to land: a lost checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

from tiered_stream.delta.commit.landed_offsets import landed_before
from tiered_stream.delta.commit.table_log import TableLog
from tiered_stream.delta.settings.ingest_settings import LAND, ON_LANDED_OFFSETS, TableSpec
from tiered_stream.doctor.environment import Job
from tiered_stream.doctor.finding import FaultError, NotNeededError, Result
from tiered_stream.locate.log_source import LogSource
from tiered_stream.model import OffsetRange, PartitionOffsets, PartitionRanges
from tiered_stream.options.given import GivenOptions
from tiered_stream.plan.lookup import OffsetLookup
from tiered_stream.plan.starting import fitted_initial_offsets


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Offsets at which a query continues (empty: nothing is planned yet), and its id (None: it has none yet).

    `is_committed` is true if a micro-batch is committed, and false if at most the first one is planned.
    """

    positions: PartitionOffsets
    query_id: str | None
    is_committed: bool = False


def check_landed(
    job: Job, files: TableSpec, checkpoint: Checkpoint, ranges: PartitionRanges, source: LogSource
) -> Result[bool]:
    """Check that no other query has landed offsets in the table that the job's query is still to land.

    Args:
        ranges: range from the start to the end of the log, for each partition that the job reads.

    Raises:
        FaultError: another query has landed some of them, and the job's query has no committed micro-batch.
        NotNeededError: it is a table of the latest state.
    """
    from tiered_stream.delta.commit.deltalake_commit import open_table

    table = open_table(files)
    if files.keys:
        raise NotNeededError("a table of the latest state may get records again")
    if table is None:
        return Result(True, "there is no table yet")
    lookup = OffsetLookup.of(job.options, source.offset_reader)
    starts = checkpoint.positions or fitted_initial_offsets(job.options, lookup).offsets
    wanted = {
        partition: OffsetRange(start, ranges[partition].end)
        for partition, start in starts.items()
        if partition in ranges and start < ranges[partition].end
    }
    ids = lookup.assignment().topic_ids
    found = landed_before(TableLog(files), "it", checkpoint.query_id, wanted, ids, table.version())
    if found is None:
        return Result(True, "its newest commits have no offsets that this query is still to land")
    if checkpoint.is_committed or GivenOptions(job.settings).read(ON_LANDED_OFFSETS) == LAND:
        return Result(True, f"{found.text}: this query lands them again", "let one query land each topic in a table")
    raise FaultError(found.text, found.advice)
