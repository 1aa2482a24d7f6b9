"""Checks of an ingest job's tables: the store, Spark's access to it, the Delta table, and the query's checkpoint."""

from __future__ import annotations

import os
import uuid
from collections.abc import Collection
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from botocore import exceptions as aws

from tiered_stream import errors
from tiered_stream.delta.catalog.session_checks import GCS_CONNECTOR, GS_SETTINGS
from tiered_stream.delta.checkpoint.spark_checkpoint import SparkCheckpoint, micro_batch_offsets
from tiered_stream.delta.checkpoint.stored_folder import StoredFolder
from tiered_stream.delta.requirements.lane import check_fit, columns_left_null, table_schema, why_not_direct
from tiered_stream.delta.requirements.store_access import find_access
from tiered_stream.delta.settings.ingest_settings import (
    BUCKET_SCHEMES,
    COMMIT,
    COMMIT_BY_DELTALAKE,
    S3_SCHEMES,
    TableSpec,
    table_spec,
)
from tiered_stream.delta.settings.row_settings import makes_rows
from tiered_stream.delta.write.file_systems import path_uri
from tiered_stream.doctor.bucket import Bucket, check_credentials, check_listing, list_one_key, s3_config
from tiered_stream.doctor.cloud_tables import list_folder, write_object
from tiered_stream.doctor.cluster_checks import Cluster
from tiered_stream.doctor.environment import Job
from tiered_stream.doctor.finding import Examination, FaultError, Fixes, Known, NotNeededError, Result
from tiered_stream.doctor.landed_records import Checkpoint, check_landed
from tiered_stream.doctor.spark_conf import SparkConf
from tiered_stream.locate.log_source import LogSource
from tiered_stream.model import PartitionRanges
from tiered_stream.options.given import GivenOptions
from tiered_stream.process.logs import muted
from tiered_stream.storage.cloud_endpoints import GOOGLE_SCHEME, TABLES
from tiered_stream.storage.s3_client import LOGGERS_WITH_SECRETS, table_session

_USE = replace(TABLES, prefix="spark.hadoop.fs.s3a or ingest.storage.")
"""Words for a table's bucket. Settings may be Spark's, so the advice names both prefixes."""
_REFUSED_CONDITION = (409, 412)
_NOT_COMMITTED = "nothing is committed in it yet: the query begins"
_NEW_CHECKPOINT = "with a new checkpoint the query lands everything again, so that it needs a new table, too"
_FIXES: Fixes = {
    errors.TableAccessError: "correct spark.hadoop.fs.s3a.* or ingest.storage.*, and grant s3:GetObject, s3:PutObject, "
    "s3:DeleteObject and s3:ListBucket on the bucket",
    errors.TableError: "repair the table's log, or name another table",
}


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
    check(f"offsets of the {name}", _check_positions, job, known, cluster.ranges, cluster.source)
    landed = f"records of other queries in the table {table}"
    check(landed, check_landed, job, files, known, cluster.ranges, cluster.source, fixes=_FIXES)


def _check_hadoop_aws(table: str | None, checkpoint: str | None, spark: SparkConf) -> Result[bool]:
    """Check that Spark has hadoop-aws and a file system for the URL scheme, if the table or the checkpoint is in S3.

    Raises:
        NotNeededError: neither the table nor the checkpoint is in S3.
        FaultError: hadoop-aws or the file system is missing.
    """
    paths = [path for path in (table, checkpoint) if path and urlsplit(path).scheme in S3_SCHEMES]
    if not paths:
        raise NotNeededError("neither table nor checkpoint is in S3")
    others = [path for path in paths if urlsplit(path).scheme != "s3a"]
    if others and not spark.hadoop(f"fs.{urlsplit(others[0]).scheme}.impl"):
        raise FaultError(f"Spark knows no file system for {others[0]}", "write s3a:// in place of it")
    if not spark.has_library("hadoop-aws"):
        raise _missing_jar(f"{paths[0]} needs hadoop-aws", spark.hadoop_package("hadoop-aws"), spark)
    return Result(True, f"{_whence('hadoop-aws', spark)} for s3a:// paths")


def _connectors(schemes: Collection[str], spark: SparkConf) -> dict[str, str]:
    """Return the jars that Spark needs for paths in Azure's or Google's storage, with their Maven coordinates."""
    azure = {"hadoop-azure": spark.hadoop_package("hadoop-azure")} if {"abfs", "abfss"} & set(schemes) else {}
    return azure | ({"gcs-connector": GCS_CONNECTOR} if GOOGLE_SCHEME in schemes else {})


def _check_connector(name: str, package: str, spark: SparkConf) -> Result[bool]:
    """Check that Spark has the jar `name`, or for Google's storage Hadoop's own connector.

    Raises:
        FaultError: the jar is missing.
    """
    names = ("gcs-connector", "hadoop-gcp") if name == "gcs-connector" else (name,)
    if not any(map(spark.has_library, names)):
        raise _missing_jar(f"Spark needs {name}", package, spark)
    is_set = all(map(spark.hadoop, ("fs.gs.impl", "fs.gs.block.size")))
    if names[-1] == "hadoop-gcp" and not spark.has_library("hadoop-gcp") and not is_set:
        return Result(True, "there, but Hadoop 3.5 has defaults for its own connector", f"set {GS_SETTINGS}")
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


def _reach_table(job: Job, table: str | None, spark: SparkConf) -> Result[TableSpec]:
    if not table:
        raise FaultError("there is a checkpoint, but no table", "set ingest.table")
    if "/" not in table:
        raise NotNeededError("it is a name in Spark's catalog, and no Spark is started to look it up")
    uri = path_uri(table, spark.default_fs)
    return Result(*_reach(job, uri, spark))


def _reach(job: Job, uri: str, spark: SparkConf) -> tuple[TableSpec, str, str]:
    """Check that the folder at `uri`, of a table or a checkpoint, can be reached.

    Return the URI with its access settings, a description, and advice. The advice is empty if there is nothing to fix.

    Raises:
        FaultError: the folder's store cannot be reached or refuses access, or the user cannot write to a local folder.
        NotNeededError: only Spark can reach the store.
    """
    parts, files = urlsplit(uri), table_spec(job.settings)
    if parts.scheme == "file":
        nearest = _nearest(uri)
        if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
            raise FaultError(
                f"{nearest} is not a folder that this user may write to", "correct the path, or its permissions"
            )
        return TableSpec(uri, files.storage, files.day_column), f"{nearest} is a folder of this machine", ""
    if parts.scheme not in BUCKET_SCHEMES:
        raise NotNeededError(f"only Spark can reach {parts.scheme}://: it is not looked at")
    storage, why_not = find_access(files.storage, uri, spark.hadoop_settings())
    if why_not:
        raise NotNeededError(f"only Spark can reach it: {why_not}")
    if parts.scheme != "s3":
        listed = list_folder(TableSpec(uri, storage, files.day_column))
        return listed.value, listed.description, listed.fix
    name = storage.s3_access_point or parts.netloc
    bucket = Bucket(name, parts.path.strip("/"), storage, _USE)
    check_credentials(bucket)
    answer = list_one_key(bucket).value
    result = check_listing(bucket, answer)
    return TableSpec(uri, storage, files.day_column), result.description, result.fix


def _nearest(uri: str) -> Path:
    """Return the folder at a `file:` URI, or its nearest parent folder that exists."""
    folder = Path(unquote(urlsplit(uri).path))
    return next(parent for parent in (folder, *folder.parents) if parent.exists())


def _check_table_fits(job: Job, files: TableSpec) -> Result[bool]:
    """Check that the table's columns fit the job's rows, and describe the lane in which the rows will be written.

    The check succeeds if the table does not exist yet. If the job decodes values, the columns are not checked.

    Raises:
        FaultError: the table's columns do not fit, or the package deltalake is missing.
    """
    try:
        from tiered_stream.delta.commit.deltalake_commit import describe, open_table
    except ImportError:
        raise FaultError("the package deltalake is missing", "pip install 'tiered-stream[delta]'") from None
    table = open_table(files)
    schema = table_schema(job.options.include_headers, files.day_column)
    if table is None:
        return Result(True, "is not there yet: the first run makes it")
    description = describe(table)
    if makes_rows(job.settings):
        return Result(True, f"version {table.version()}; whether decoded columns fit, the first run says")
    try:
        check_fit(files.uri, description, schema, files.day_column)
    except errors.ConfigurationError as error:
        raise FaultError(str(error), "name another table in ingest.table, or change this one by ALTER TABLE") from None
    why_not = why_not_direct(description, files.day_column, schema)
    lane = f"the Spark lane, as {why_not}" if why_not else "the direct lane"
    left_out_columns = columns_left_null(description, schema)
    null_columns = f"; NULL in {', '.join(left_out_columns)}" if left_out_columns else ""
    return Result(True, f"version {table.version()}, its columns fit; {lane}{null_columns}")


def _write_object(job: Job, files: TableSpec, *, write: bool) -> Result[bool]:
    """Check that the user can write to the table's folder: create an empty object or file in it, and delete it.

    The name of the object or file begins with a dot, so that Delta ignores it.

    Raises:
        FaultError: the object or file cannot be created or deleted.
        NotNeededError: `write` is False.
    """
    if not write:
        raise NotNeededError("nothing is written without --write")
    name = f".tiered-stream-doctor-{uuid.uuid4().hex}"
    if urlsplit(files.uri).scheme == "s3":
        return _try_s3(job, files, name)
    if urlsplit(files.uri).scheme in BUCKET_SCHEMES:
        return _written(job, conditional=write_object(files, name), condition="a conditional put")
    file = _nearest(files.uri) / name  # in a parent folder if the table's folder is missing
    try:
        file.write_bytes(b"")
        file.unlink()
    except OSError as error:
        raise FaultError(f"{file.parent} cannot be written to: {error.strerror}", "correct its permissions") from None
    return Result(True, f"a file was made in {file.parent} and deleted")


def _try_s3(job: Job, files: TableSpec, name: str) -> Result[bool]:
    """Put an empty object into the table's bucket, try to put it again with `If-None-Match: *`, and delete it.

    If the service does not refuse the second put, the result is a warning.

    Raises:
        FaultError: a request is refused; or the second put succeeds, and `ingest.commit` is `deltalake`.
    """
    parts, storage = urlsplit(files.uri), files.storage
    bucket = storage.s3_access_point or parts.netloc
    key = "/".join(filter(None, (parts.path.strip("/"), name)))
    object_settings: Any = storage.put_object_arguments()
    acl = ", s3:PutObjectAcl" if storage.acl else ""
    grant = f"grant s3:PutObject{acl} and s3:DeleteObject on arn:aws:s3:::{parts.netloc}/*"
    with (
        muted(*LOGGERS_WITH_SECRETS),
        closing(table_session(storage, parts.netloc).client(s3_config())) as client,
    ):
        try:
            client.put_object(Bucket=bucket, Key=key, Body=b"", **object_settings)
            try:
                conditional = _refuses_second(client, bucket, key)
            finally:
                client.delete_object(Bucket=bucket, Key=key)
        except aws.ClientError as error:
            code = error.response["Error"].get("Code", "")
            raise FaultError(f"s3://{parts.netloc}/{key}: {error.operation_name} is refused ({code})", grant) from None
        except aws.BotoCoreError as error:
            raise FaultError(
                f"s3://{parts.netloc}/{key}: {type(error).__name__}", "see the check of the store"
            ) from None
    return _written(job, conditional=conditional, condition="If-None-Match")


def _written(job: Job, *, conditional: bool, condition: str) -> Result[bool]:
    """Return the result of a written object; `conditional` is true if the service has honoured the `condition`.

    If it has not, the result is a warning.

    Raises:
        FaultError: the service has not honoured the condition, and `ingest.commit` is `deltalake`.
    """
    if conditional:
        return Result(True, f"an object was put and deleted; {condition} is honoured")
    description = (
        f"an object was put and deleted; but {condition} is not honoured, so deltalake cannot exclude other writers"
    )
    fix = f"set {COMMIT.name}=spark, let no other job write to the table, or use a service with conditional puts"
    if GivenOptions(job.settings).read(COMMIT) == COMMIT_BY_DELTALAKE:
        raise FaultError(description, fix)
    return Result(True, description, fix)


def _refuses_second(client: object, bucket: str, key: str) -> bool:
    """Return True if the store refuses to put an object under a key that exists already (`If-None-Match: *`)."""
    try:
        client.put_object(Bucket=bucket, Key=key, Body=b"", IfNoneMatch="*")  # type: ignore[attr-defined]
    except aws.ClientError as error:
        return error.response["ResponseMetadata"]["HTTPStatusCode"] in _REFUSED_CONDITION
    return False


def _read_checkpoint(job: Job, checkpoint: str | None, spark: SparkConf) -> Result[Checkpoint]:
    """Return the offsets at which the query continues, by partition, from its checkpoint, and the query's id.

    If no micro-batch is committed yet, they are the planned one's, or empty.

    Raises:
        FaultError: the settings have no checkpoint, or the checkpoint cannot be read, or belongs to another query.
    """
    if not checkpoint:
        raise FaultError("there is a table, but no checkpoint", "set ingest.checkpointLocation")
    uri = path_uri(checkpoint, spark.default_fs)
    files, description, fix = _reach(job, uri, spark)
    try:
        stored = SparkCheckpoint(StoredFolder(checkpoint, files.uri, files.storage))
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
        return Result(Checkpoint(planned.starts, query_id), f"{_NOT_COMMITTED} {start} ({description})", fix)
    if committed is None:
        return Result(Checkpoint({}, query_id), f"{_NOT_COMMITTED} at startingOffsets ({description})", fix)
    batch, ends = committed
    if not ends.positions:
        raise FaultError(f"offsets/{batch} has no topic's offsets: the checkpoint is of another query",
                         "set ingest.checkpointLocation to the checkpoint of this query")  # fmt: skip
    return Result(
        Checkpoint(ends.positions, query_id, is_committed=True), f"batch {batch} is the last that is committed", fix
    )


def _check_positions(job: Job, checkpoint: Checkpoint, ranges: PartitionRanges, source: LogSource) -> Result[bool]:
    """Check that the logs still have the offsets at which the query continues.

    If the job does not read a partition in the checkpoint any more, the result is a warning.

    Args:
        ranges: range from the start to the end of the log, for each partition that the job reads.

    Raises:
        FaultError: an offset is below the log start offset or above the high watermark.
    """
    positions = checkpoint.positions
    known = {partition: at for partition, at in positions.items() if partition in ranges}
    lost = {partition: at for partition, at in known.items() if at < ranges[partition].start}
    beyond = {partition: at for partition, at in known.items() if at > ranges[partition].end}
    if beyond:  # a checkpoint of Spark's own source can be above the last stable offset, up to the high watermark
        high_watermarks = source.offset_reader.high_watermarks(beyond)
        beyond = {partition: at for partition, at in beyond.items() if at > high_watermarks[partition]}
    not_read = sorted(positions.keys() - ranges.keys())
    if lost:
        partition, at = min(lost.items())
        start = ranges[partition].start
        raise FaultError(
            f"{partition} goes on at offset {at}, but its log starts at {start}: {start - at} offsets are lost"
            f"{f' (and of {len(lost) - 1} more partitions)' if len(lost) > 1 else ''}",
            "set failOnDataLoss=false to go on without them, and give the topic a longer retention.ms"
            if job.options.fail_on_data_loss
            else "nothing brings them back: give the topic a longer retention.ms",
        )
    if beyond:
        partition, at = min(beyond.items())
        raise FaultError(
            f"{partition} goes on at offset {at}, but its log ends at {high_watermarks[partition]}",
            "see whether the topic was deleted and made again: then begin with a new checkpoint (and a new table)",
        )
    if not_read:
        shown = ", ".join(map(str, not_read[:5]))
        return Result(True, f"partitions of the checkpoint are not read any more: {shown}",
                    "see whether a topic was deleted, or is missing in subscribe")  # fmt: skip
    unread = sum(max(ranges[partition].end - at, 0) for partition, at in positions.items())
    return Result(True, f"within the logs; {unread:,} offsets are to be read" if positions else "none yet")
