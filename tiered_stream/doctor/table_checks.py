"""Checks of an ingest job's tables: the store, Spark's access to it, the Delta table, and the query's checkpoint.

If a checkpoint is lost, the table may have records already that the job's query is about to land.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tiered_stream import errors
from tiered_stream.delta.catalog.session_checks import GCS_CONNECTOR, GS_ADVICE, GS_SETTINGS
from tiered_stream.delta.checkpoint.folder_without_spark import StoredFolder
from tiered_stream.delta.checkpoint.spark_checkpoint import SparkCheckpoint, micro_batch_offsets, noted_offsets
from tiered_stream.delta.commit.table_log import TableLog, landed_before
from tiered_stream.delta.requirements.lane import check_fit, columns_left_null, table_schema, why_not_direct
from tiered_stream.delta.requirements.store_access import find_access
from tiered_stream.delta.settings import ingest_settings as ingest
from tiered_stream.delta.write.file_systems import path_uri
from tiered_stream.doctor import cloud_bucket, s3_bucket
from tiered_stream.doctor.cluster_checks import Cluster
from tiered_stream.doctor.environment import Job
from tiered_stream.doctor.finding import (
    Examination,
    FaultError,
    Fixes,
    Known,
    NotNeededError,
    Result,
    collected_warnings,
)
from tiered_stream.doctor.spark_conf import SparkConf
from tiered_stream.locate.log_source import LogSource
from tiered_stream.model import OffsetRange, PartitionOffsets, PartitionRanges
from tiered_stream.plan.offset_lookup import OffsetLookup
from tiered_stream.plan.starting import fitted_initial_offsets
from tiered_stream.plan.stream import StreamPlanner
from tiered_stream.storage.cloud_endpoints import GOOGLE_SCHEME

_NOT_COMMITTED = "nothing is committed in it yet: the query begins"
_NEW_CHECKPOINT = "with a new checkpoint the query lands everything again, so it also needs a new table"
_FIXES: Fixes = {
    errors.TableAccessError: "correct spark.hadoop.fs.s3a.* or ingest.storage.*, and grant s3:GetObject, s3:PutObject, "
    "s3:DeleteObject and s3:ListBucket on the bucket",
    errors.TableError: "repair the table's log, or name another table",
    errors.DataLossError: "if a topic was deleted and created again, start with a new checkpoint and a new table. "
    "Otherwise set failOnDataLoss=false to continue without the offsets, and raise the topic's retention.ms",
}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Contents of a query's checkpoint.

    `positions` are the offsets at which the query continues, by partition; they are empty if the query has not planned
    a micro-batch. `query_id` is None if the query was not started yet. `is_committed` is True if a micro-batch is
    committed.
    """

    positions: PartitionOffsets
    query_id: str | None
    is_committed: bool = False


def check_table(examination: Examination, job: Known[Job], cluster: Cluster, spark: SparkConf, *, write: bool) -> None:
    """Run the checks of each table of the job, and of the checkpoint of the query that writes the table.

    If the settings have neither a table nor a checkpoint, report that the check is skipped.

    Args:
        write: True to put an empty object into each table's store and delete it.
    """
    tables = job.value.tables if job.value else ()
    for table, checkpoint in tables:
        _check_pair(examination, job, cluster, spark, table, checkpoint, write=write)
    if not tables:
        examination.skip("table", "the settings have no ingest.table" if job.value else f"because of: {job.check}")


def _check_pair(
    examination: Examination, job: Known[Job], cluster: Cluster, spark: SparkConf, table: str | None,
    checkpoint: str | None, *, write: bool,
) -> None:  # fmt: skip
    """Run the checks of a table, of the store that holds the table, and of the checkpoint of the table's query."""
    check = examination.check
    check("hadoop-aws", lambda _: _check_hadoop_aws(table, checkpoint, spark), job)
    schemes = {urlsplit(path).scheme for path in (table, checkpoint) if path}
    for connector, package in _connectors(schemes, spark).items():
        check(connector, lambda _, name=connector, package=package: _check_connector(name, package, spark), job)
    files = check(f"store of the table {table}", lambda job: _reach_table(job, table, spark), job, fixes=_FIXES)
    check(f"table {table}", _check_table_fits, job, files, fixes=_FIXES)
    check(
        f"writing to the table's store {table}", lambda job, files: _write_object(job, files, write=write), job, files
    )
    name = f"checkpoint {checkpoint}"
    known = check(name, lambda job: _read_checkpoint(job, checkpoint, spark), job, fixes=_FIXES)
    check(
        f"offsets of the {name}", lambda job, known, _, source: _check_positions(job, known, source), job, known,
        cluster.ranges, cluster.source, fixes=_FIXES,
    )  # fmt: skip
    landed = f"records of other queries in the table {table}"
    check(landed, check_landed, job, files, known, cluster.ranges, cluster.source, fixes=_FIXES)


def _check_hadoop_aws(table: str | None, checkpoint: str | None, spark: SparkConf) -> Result[bool]:
    """Check that Spark can access a table or a checkpoint in S3: by the jar hadoop-aws, and by the URL's scheme.

    Raises:
        FaultError: the jar is missing, or Spark has no file system for the scheme, such as `s3`.
        NotNeededError: neither the table nor the checkpoint is in S3.
    """
    paths = [path for path in (table, checkpoint) if path and urlsplit(path).scheme in ingest.S3_SCHEMES]
    if not paths:
        raise NotNeededError("neither table nor checkpoint is in S3")
    others = [path for path in paths if urlsplit(path).scheme != "s3a"]
    if others and not spark.hadoop(f"fs.{urlsplit(others[0]).scheme}.impl"):
        raise FaultError(f"Spark knows no file system for {others[0]}", "write s3a:// in place of it")
    if not spark.has_library("hadoop-aws"):
        raise _missing_jar(f"{paths[0]} needs hadoop-aws", spark.hadoop_package("hadoop-aws"), spark)
    return Result(True, f"{_whence('hadoop-aws', spark)} for s3a:// paths")


def _connectors(schemes: Collection[str], spark: SparkConf) -> dict[str, str]:
    """Return the jars that Spark needs for paths with these URL schemes in Azure's or Google's storage.

    The result has each jar's Maven coordinates by the jar's name.
    """
    azure = {"hadoop-azure": spark.hadoop_package("hadoop-azure")} if {"abfs", "abfss"} & set(schemes) else {}
    return azure | ({"gcs-connector": GCS_CONNECTOR} if GOOGLE_SCHEME in schemes else {})


def _check_connector(name: str, package: str, spark: SparkConf) -> Result[bool]:
    """Check that Spark has the jar `name`. For Google's storage, Hadoop's own connector (`hadoop-gcp`) also suffices.

    Args:
        package: Maven coordinates of the jar, for advice.

    Raises:
        FaultError: the jar is missing.
    """
    names = ("gcs-connector", "hadoop-gcp") if name == "gcs-connector" else (name,)
    if not any(map(spark.has_library, names)):
        raise _missing_jar(f"Spark needs {name}", package, spark)
    is_set = all(map(spark.hadoop, GS_SETTINGS))
    if names[-1] == "hadoop-gcp" and not spark.has_library("hadoop-gcp") and not is_set:
        return Result(True, "there, but Hadoop 3.5 has defaults for its own connector", GS_ADVICE)
    return Result(True, f"{_whence(name, spark)} for Spark's own access")


def _whence(name: str, spark: SparkConf) -> str:
    if spark.fetches(name):
        return "named in spark.jars.packages, so Spark fetches it when it starts, unless Ivy's cache has it;"
    return "there"


def _missing_jar(need: str, package: str, spark: SparkConf) -> FaultError:
    where = f"{spark.home}/jars" if spark.home else "any Spark here"
    return FaultError(
        f"{need}, which is neither in {where} nor in spark.jars.packages",
        f"add {package} to spark.jars.packages in the file for spark-submit --properties-file",
    )


def _reach_table(job: Job, table: str | None, spark: SparkConf) -> Result[ingest.TableSpec]:
    if not table:
        raise FaultError("there is a checkpoint, but no table", "set ingest.table")
    if "/" not in table:
        raise NotNeededError("it is a name in Spark's catalog, and the doctor starts no Spark")
    return _reach(job, path_uri(table, spark.default_fs), spark)


def _reach(job: Job, uri: str, spark: SparkConf) -> Result[ingest.TableSpec]:
    """Check that the folder of a table or a checkpoint at `uri` can be reached.

    The result's value has the URI, and the settings for access to the folder.

    Raises:
        FaultError: a local folder cannot be written.
        NotNeededError: only Spark can reach the folder.
        StorageError: the service refuses the request or does not respond.
    """
    parts, files = urlsplit(uri), ingest.table_spec(job.settings)
    if parts.scheme == "file":
        nearest = _nearest(uri)
        if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
            raise FaultError(
                f"{nearest} is not a folder that this user may write to", "correct the path, or its permissions"
            )
        return Result(replace(files, uri=uri), f"{nearest} is a folder of this machine")
    if parts.scheme not in ingest.BUCKET_SCHEMES:
        raise NotNeededError(f"only Spark can reach {parts.scheme}://: it is not checked")
    storage, why_not = find_access(files.storage, uri, spark.hadoop_settings())
    if why_not:
        raise NotNeededError(f"only Spark can reach it: {why_not}")
    return cloud_bucket.list_folder(replace(files, uri=uri, storage=storage))


def _nearest(uri: str) -> Path:
    """Return the folder at a `file:` URI, or its nearest parent folder that exists."""
    folder = Path(unquote(urlsplit(uri).path))
    return next(parent for parent in (folder, *folder.parents) if parent.exists())


def _check_table_fits(job: Job, files: ingest.TableSpec) -> Result[bool]:
    """Check that the table's columns fit the job's rows, and describe whether tasks or Spark's Delta sink will write.

    The check succeeds if the table does not exist yet. If the job decodes values, the columns are not checked.

    Raises:
        FaultError: the columns do not fit, or the package deltalake is missing.
    """
    try:
        from tiered_stream.delta.commit.deltalake_commit import describe, open_table
    except ImportError:
        raise FaultError("the package deltalake is missing", "pip install 'tiered-stream[delta]'") from None
    table = open_table(files)
    schema = table_schema(job.options.include_headers, files.day_column)
    if table is None:
        return Result(True, "does not exist yet: the first run creates it")
    description = describe(table)
    if files.rows.makes_rows:
        return Result(True, f"version {table.version()}; the first run checks whether decoded columns fit")
    try:
        check_fit(files.uri, description, schema, files.day_column)
    except errors.ConfigurationError as error:
        raise FaultError(str(error), "name another table in ingest.table, or change this one by ALTER TABLE") from None
    why_not = why_not_direct(description, files.day_column, schema)
    lane = f"the Spark lane, as {why_not}" if why_not else "the direct lane"
    left_out_columns = columns_left_null(description, schema)
    null_columns = f"; NULL in {', '.join(left_out_columns)}" if left_out_columns else ""
    return Result(True, f"version {table.version()}, its columns fit; {lane}{null_columns}")


def _write_object(job: Job, files: ingest.TableSpec, *, write: bool) -> Result[bool]:
    """Check that the user can write to the table's folder: create an empty object or file in it, and delete it.

    The name of the object or file begins with a dot, so that Delta ignores it. If `write` is false, the check is
    skipped.
    """
    if not write:
        raise NotNeededError("nothing is written without --write")
    name = f".tiered-stream-doctor-{uuid.uuid4().hex}"
    if urlsplit(files.uri).scheme == "s3":
        return _written(job, conditional=s3_bucket.write_object(files, name), condition="If-None-Match")
    if urlsplit(files.uri).scheme in ingest.BUCKET_SCHEMES:
        return _written(job, conditional=cloud_bucket.write_object(files, name), condition="a conditional put")
    file = _nearest(files.uri) / name  # in a parent folder if the table's folder is missing
    try:
        file.write_bytes(b"")
        file.unlink()
    except OSError as error:
        raise FaultError(f"{file.parent} cannot be written to: {error.strerror}", "correct its permissions") from None
    return Result(True, f"a file was created in {file.parent} and deleted")


def _written(job: Job, *, conditional: bool, condition: str) -> Result[bool]:
    """Return the result of a trial write of an object, which is a warning if `conditional` is False.

    Args:
        conditional: True if the service has refused to write the object a second time under `condition`.
        condition: name of the condition that the object is new, such as `If-None-Match`.

    Raises:
        FaultError: `conditional` is False, and `ingest.commit` is `deltalake`.
    """
    if conditional:
        return Result(True, f"an object was put and deleted; {condition} is honoured")
    description = (
        f"an object was put and deleted; but {condition} is not honoured, so deltalake cannot exclude other writers"
    )
    fix = f"set {ingest.COMMIT.name}=spark, let no other job write to the table, or use a service with conditional puts"
    if job.setting(ingest.COMMIT) == ingest.COMMIT_BY_DELTALAKE:
        raise FaultError(description, fix)
    return Result(True, description, fix)


def _read_checkpoint(job: Job, checkpoint: str | None, spark: SparkConf) -> Result[Checkpoint]:
    """Read the query's id from its checkpoint, and the offsets at which the query continues.

    If no micro-batch is committed yet, the offsets are the start offsets of the planned micro-batch. If none is planned
    either, there are no offsets.

    Raises:
        FaultError: no checkpoint is set, or it cannot be read, is damaged, or belongs to another query.
    """
    if not checkpoint:
        raise FaultError("there is a table, but no checkpoint", "set ingest.checkpointLocation")
    reached = _reach(job, path_uri(checkpoint, spark.default_fs), spark)
    try:
        stored = SparkCheckpoint(StoredFolder(checkpoint, reached.value.uri, reached.value.storage))
        query_id, committed = stored.query_id(), stored.committed()
        planned = micro_batch_offsets(stored, 0) if committed is None else None
    except OSError as error:
        raise FaultError(f"it cannot be read: {type(error).__name__}", _FIXES[errors.TableAccessError]) from None
    except errors.CorruptDataError as error:
        raise FaultError(str(error), f"restore the file from a backup of the checkpoint: {_NEW_CHECKPOINT}") from None
    except errors.UnsupportedDataError as error:
        raise FaultError(str(error), f"update tiered_stream, and keep the checkpoint: {_NEW_CHECKPOINT}") from None
    if planned is not None:
        start = "with the offsets of its planned micro-batch 0, whatever startingOffsets are"
        return Result(Checkpoint(planned.starts, query_id), f"{_NOT_COMMITTED} {start} ({reached.description})")
    if committed is None:
        return Result(Checkpoint({}, query_id), f"{_NOT_COMMITTED} at startingOffsets ({reached.description})")
    batch, ends = committed
    if not ends.positions:
        raise FaultError(f"offsets/{batch} has no topic's offsets: the checkpoint belongs to another query",
                         "set ingest.checkpointLocation to the checkpoint of this query")  # fmt: skip
    # With the topics' ids, by which a topic that was created again is noticed.
    known = Checkpoint(noted_offsets(ends) or ends.positions, query_id, is_committed=True)
    return Result(known, f"batch {batch} is the last that is committed")


def _check_positions(job: Job, checkpoint: Checkpoint, source: LogSource) -> Result[bool]:
    """Check that the logs still have the offsets at which the query continues, by a plan of its next micro-batch.

    If `failOnDataLoss` is false, lost offsets only make the result a warning, because the query continues without them.

    Raises:
        DataLossError: offsets are lost, or the job does not read a partition in the checkpoint any more.
    """
    if not checkpoint.positions:
        return Result(True, "none yet")
    planner = StreamPlanner(job.options, source.offset_reader)
    with collected_warnings() as warned:
        end = planner.next_end(checkpoint.positions, limited=False)
        ranges = planner.ranges(checkpoint.positions, end)
    if lost := [text for text in warned if text.startswith("[KAFKA_DATA_LOSS")]:
        fix = "raise the topic's retention.ms; if the topic was created again, take a new checkpoint and a new table"
        return Result(True, "; ".join(lost), fix)
    return Result(True, f"within the logs; {sum(map(len, ranges.values())):,} offsets are to be read")


def check_landed(
    job: Job, files: ingest.TableSpec, checkpoint: Checkpoint, ranges: PartitionRanges, source: LogSource
) -> Result[bool]:
    """Check that no other query has written records to the table that the job's query will write, too.

    If another query has written such records, the check fails. But the result is only a warning if the job's query has
    a committed micro-batch, or if `ingest.onLandedOffsets` is `land`.

    Args:
        ranges: range from the start to the end of the log, for each partition that the job reads.

    Raises:
        FaultError: the check fails.
        NotNeededError: the table has only the latest row of each key (`ingest.mode=upsert`), so it can get records
            again.
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
    commits = TableLog(files).newest_commits(table.version())
    found = landed_before(commits, "it", checkpoint.query_id, wanted, ids)
    if found is None:
        return Result(True, "its newest commits have no offsets that this query is still to land")
    if checkpoint.is_committed or job.setting(ingest.ON_LANDED_OFFSETS) == ingest.LAND:
        return Result(True, f"{found.text}: this query lands them again", "let one query land each topic in a table")
    raise FaultError(found.text, found.advice)
