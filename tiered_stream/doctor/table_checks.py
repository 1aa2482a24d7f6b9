"""Checks of an ingest job's tables: the store, Spark's access to it, the Delta table, and the query's checkpoint."""

from __future__ import annotations

import os
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from botocore import exceptions as aws

from tiered_stream.delta.catalog.address import path_uri
from tiered_stream.delta.checkpoint.spark_checkpoint import SparkCheckpoint
from tiered_stream.delta.checkpoint.stored_folder import StoredFolder
from tiered_stream.delta.requirements.lane import check_fit, columns_left_null, table_schema, why_not_direct
from tiered_stream.delta.requirements.s3a import find_storage
from tiered_stream.delta.settings.ingest_settings import (
    COMMIT,
    COMMIT_BY_DELTALAKE,
    S3_SCHEMES,
    TableFiles,
    table_files,
)
from tiered_stream.delta.settings.row_settings import makes_rows
from tiered_stream.doctor.bucket import Bucket, ask_bucket, look_at_credentials, look_at_listing, s3_config
from tiered_stream.doctor.cluster_checks import Cluster
from tiered_stream.doctor.environment import Job
from tiered_stream.doctor.finding import Examination, FaultError, Known, NotNeededError, Seen
from tiered_stream.doctor.spark_conf import SparkConf
from tiered_stream.errors import (
    ConfigurationError,
    CorruptDataError,
    TableAccessError,
    TableError,
    UnsupportedDataError,
)
from tiered_stream.locate.log_source import LogSource
from tiered_stream.model import PartitionRanges, TopicPartition
from tiered_stream.options.given import GivenOptions
from tiered_stream.process.logs import muted
from tiered_stream.storage.s3_store import LOGGERS_WITH_SECRETS, s3_client

_OPTION = "ingest.storage."
_REFUSED_CONDITION = (409, 412)
_NEW_CHECKPOINT = "with a new checkpoint the query lands everything again, so that it needs a new table, too"
_MENDS = {
    ConfigurationError: "correct the setting that the message names",
    TableAccessError: "correct spark.hadoop.fs.s3a.* or ingest.storage.*, and grant s3:GetObject, s3:PutObject, "
    "s3:DeleteObject and s3:ListBucket on the bucket",
    TableError: "repair the table's log, or name another table",
}


def check_table(examination: Examination, job: Known[Job], cluster: Cluster, spark: SparkConf, *, write: bool) -> None:
    """Check each pair of table and checkpoint, if the settings describe an ingest job."""
    if job.value is None:
        examination.check("table", lambda _: Seen(True, ""), job)
        return
    for table, checkpoint in job.value.tables:
        examination.check("hadoop-aws", lambda _, t=table, c=checkpoint: _look_for_hadoop_aws(t, c, spark), job)
        _check_one_table(examination, job, table, spark, write=write)
        _check_checkpoint(examination, job, checkpoint, cluster, spark)
    if not job.value.tables:
        examination.check("table", _no_table, job)


def _no_table(_: Job) -> Seen[bool]:
    raise NotNeededError("the settings have no ingest.table")


def _look_for_hadoop_aws(table: str | None, checkpoint: str | None, spark: SparkConf) -> Seen[bool]:
    paths = [path for path in (table, checkpoint) if path and urlsplit(path).scheme in S3_SCHEMES]
    if not paths:
        raise NotNeededError("neither table nor checkpoint is in S3")
    others = [path for path in paths if urlsplit(path).scheme != "s3a"]
    if others and not spark.hadoop(f"fs.{urlsplit(others[0]).scheme}.impl"):
        raise FaultError(f"Spark knows no file system for {others[0]}", "write s3a:// in place of it")
    if not spark.has_hadoop_aws:
        where = f"{spark.home}/jars" if spark.home else "any Spark here"
        raise FaultError(
            f"{paths[0]} needs hadoop-aws, which is neither in {where} nor in spark.jars.packages",
            f"add {spark.missing_package} to spark.jars.packages in the file for spark-submit --properties-file",
        )
    return Seen(True, "there for s3a:// paths")


def _check_one_table(
    examination: Examination, job: Known[Job], table: str | None, spark: SparkConf, *, write: bool
) -> None:
    check, named = examination.check, f" {table}"
    files = check(f"store of the table{named}", lambda job: _reach_table(job, table, spark), job, mends=_MENDS)
    check(f"table{named}", _look_at_table, job, files, mends=_MENDS)
    check(f"writing to the table's store{named}", lambda job, files: _try_to_write(job, files, write=write), job, files)


def _reach_table(job: Job, table: str | None, spark: SparkConf) -> Seen[TableFiles]:
    if not table:
        raise FaultError("there is a checkpoint, but no table", "set ingest.table")
    if "/" not in table:
        raise NotNeededError("it is a name in Spark's catalog, and no Spark is started to look it up")
    uri = path_uri(table, spark.default_fs)
    return Seen(*_reach(job, uri, spark))


def _reach(job: Job, uri: str, spark: SparkConf) -> tuple[TableFiles, str, str]:
    """Check that a folder in a store can be reached; return how to reach it, the finding's text, and advice.

    Raises:
        FaultError: the folder cannot be used.
        NotNeededError: only Spark can reach the store.
    """
    parts, files = urlsplit(uri), table_files(job.settings)
    if parts.scheme == "file":
        folder = Path(unquote(parts.path))
        there = next(each for each in (folder, *folder.parents) if each.exists())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            raise FaultError(
                f"{there} is not a folder that this user may write to", "correct the path, or its permissions"
            )
        return TableFiles(uri, files.storage, files.day_column), f"{there} is a folder of this machine", ""
    if parts.scheme != "s3":
        raise NotNeededError(f"only Spark can reach {parts.scheme}://: it is not looked at")
    storage, why_not = find_storage(job.settings, spark.s3a(parts.netloc))
    if why_not:
        raise NotNeededError(f"only Spark can reach it: {why_not}")
    # Access settings may come from Spark's settings, so the advice names both prefixes.
    bucket = Bucket(
        parts.netloc, parts.path.strip("/"), storage, "spark.hadoop.fs.s3a or ingest.storage.", storage.anonymous
    )
    look_at_credentials(bucket)
    answer = ask_bucket(bucket).value
    seen = look_at_listing(bucket, answer)
    return TableFiles(uri, storage, files.day_column), seen.found, seen.mend


def _look_at_table(job: Job, files: TableFiles) -> Seen[bool]:
    try:
        from tiered_stream.delta.commit.deltalake_commit import describe, open_table
    except ImportError:
        raise FaultError("the package deltalake is missing", "pip install 'tiered-stream[delta]'") from None
    table = open_table(files)
    schema = table_schema(job.options.include_headers, files.day_column)
    if table is None:
        return Seen(True, "is not there yet: the first run makes it")
    found = describe(table)
    if makes_rows(job.settings):
        return Seen(True, f"version {table.version()}; whether decoded columns fit, the first run says")
    try:
        check_fit(files.uri, found, schema, files.day_column)
    except ConfigurationError as error:
        raise FaultError(str(error), "name another table in ingest.table, or change this one by ALTER TABLE") from None
    why_not = why_not_direct(found, files.day_column, schema)
    lane = f"the Spark lane, as {why_not}" if why_not else "the direct lane"
    nulls = columns_left_null(found, schema)
    also = f"; NULL in {', '.join(nulls)}" if nulls else ""
    return Seen(True, f"version {table.version()}, its columns fit; {lane}{also}")


def _try_to_write(job: Job, files: TableFiles, *, write: bool) -> Seen[bool]:
    """Create an empty object in the table's folder and delete it. Delta ignores names that begin with `_` or a dot."""
    if not write:
        raise NotNeededError("nothing is written without --write")
    name = f".tiered-stream-doctor-{uuid.uuid4().hex}"
    if urlsplit(files.uri).scheme == "s3":
        return _try_s3(job, files, name)
    folder = Path(unquote(urlsplit(files.uri).path))
    # A missing table folder is not created here; the nearest existing parent folder is used.
    place = next(each for each in (folder, *folder.parents) if each.is_dir()) / name
    try:
        place.write_bytes(b"")
        place.unlink()
    except OSError as error:
        raise FaultError(f"{place.parent} cannot be written to: {error.strerror}", "mend its permissions") from None
    return Seen(True, f"a file was made in {place.parent} and deleted")


def _try_s3(job: Job, files: TableFiles, name: str) -> Seen[bool]:
    parts, storage = urlsplit(files.uri), files.storage
    key = "/".join(filter(None, (parts.path.strip("/"), name)))
    asked: Any = storage.put_object_arguments()
    acl = ", s3:PutObjectAcl" if storage.acl else ""
    grant = f"grant s3:PutObject{acl} and s3:DeleteObject on arn:aws:s3:::{parts.netloc}/*"
    with (
        muted(*LOGGERS_WITH_SECRETS),
        closing(s3_client(storage, s3_config(storage, anonymous=storage.anonymous))) as client,
    ):
        try:
            client.put_object(Bucket=parts.netloc, Key=key, Body=b"", **asked)
            try:
                conditional = _refuses_second(client, parts.netloc, key)
            finally:
                client.delete_object(Bucket=parts.netloc, Key=key)
        except aws.ClientError as error:
            code = error.response["Error"].get("Code", "")
            raise FaultError(f"s3://{parts.netloc}/{key}: {error.operation_name} is refused ({code})", grant) from None
        except aws.BotoCoreError as error:
            raise FaultError(
                f"s3://{parts.netloc}/{key}: {type(error).__name__}", "see the check of the store"
            ) from None
    if conditional:
        return Seen(True, "an object was put and deleted; If-None-Match is honoured")
    found = (
        "an object was put and deleted; but If-None-Match is not honoured, so deltalake cannot exclude other writers"
    )
    mend = f"set {COMMIT.name}=spark, let no other job write to the table, or use a service with conditional puts"
    if GivenOptions(job.settings).read(COMMIT) == COMMIT_BY_DELTALAKE:
        raise FaultError(found, mend)
    return Seen(True, found, mend)


def _refuses_second(client: object, bucket: str, key: str) -> bool:
    """Return true if the store refuses a put on an existing key that must not be overwritten (`If-None-Match: *`)."""
    try:
        client.put_object(Bucket=bucket, Key=key, Body=b"", IfNoneMatch="*")  # type: ignore[attr-defined]
    except aws.ClientError as error:
        return error.response["ResponseMetadata"]["HTTPStatusCode"] in _REFUSED_CONDITION
    return False


def _check_checkpoint(
    examination: Examination, job: Known[Job], checkpoint: str | None, cluster: Cluster, spark: SparkConf
) -> None:
    name = f"checkpoint {checkpoint}"
    offsets = examination.check(name, lambda job: _read_checkpoint(job, checkpoint, spark), job, mends=_MENDS)
    examination.check(f"offsets of the {name}", _compare, job, offsets, cluster.ranges, cluster.source)


Positions = dict[TopicPartition, int]


def _read_checkpoint(job: Job, checkpoint: str | None, spark: SparkConf) -> Seen[Positions]:
    """Return the offsets at which the query continues by its checkpoint; empty if no micro-batch is committed yet.

    Raises:
        FaultError: the checkpoint is missing in the settings, cannot be read, or belongs to another query.
    """
    if not checkpoint:
        raise FaultError("there is a table, but no checkpoint", "set ingest.checkpointLocation")
    uri = path_uri(checkpoint, spark.default_fs)
    files, found, mend = _reach(job, uri, spark)
    try:
        committed = SparkCheckpoint(StoredFolder(checkpoint, files.uri, files.storage)).committed()
    except OSError as error:
        raise FaultError(f"it cannot be read: {type(error).__name__}", _MENDS[TableAccessError]) from None
    except CorruptDataError as error:
        raise FaultError(str(error), f"restore the file from a backup of the checkpoint: {_NEW_CHECKPOINT}") from None
    except UnsupportedDataError as error:
        raise FaultError(str(error), f"update tiered_stream, and keep the checkpoint: {_NEW_CHECKPOINT}") from None
    if committed is None:
        return Seen({}, f"nothing is committed in it yet: the query begins at startingOffsets ({found})", mend)
    last, ends = committed
    if not ends.positions:
        raise FaultError(f"offsets/{last} has no topic's offsets: the checkpoint is of another query",
                         "set ingest.checkpointLocation to the checkpoint of this query")  # fmt: skip
    return Seen(ends.positions, f"batch {last} is the last that is committed", mend)


def _compare(job: Job, positions: Positions, ranges: PartitionRanges, source: LogSource) -> Seen[bool]:
    """Check that the logs still hold the offsets at which the query continues.

    Raises:
        FaultError: an offset is below the log start offset or above the high watermark.
    """
    lost = {each: at for each, at in positions.items() if each in ranges and at < ranges[each].start}
    beyond = {each: at for each, at in positions.items() if each in ranges and at > ranges[each].end}
    if beyond:  # Spark's own source plans up to the high watermark, above the last stable offset
        high_watermarks = source.offset_reader.high_watermarks(beyond)
        beyond = {each: at for each, at in beyond.items() if at > high_watermarks[each]}
    gone = sorted(positions.keys() - ranges.keys())
    if lost:
        each, at = min(lost.items())
        start = ranges[each].start
        raise FaultError(
            f"{each} goes on at offset {at}, but its log starts at {start}: {start - at} offsets are lost"
            f"{f' (and of {len(lost) - 1} more partitions)' if len(lost) > 1 else ''}",
            "set failOnDataLoss=false to go on without them, and give the topic a longer retention.ms"
            if job.options.fail_on_data_loss
            else "nothing brings them back: give the topic a longer retention.ms",
        )
    if beyond:
        each, at = min(beyond.items())
        raise FaultError(
            f"{each} goes on at offset {at}, but its log ends at {high_watermarks[each]}",
            "see whether the topic was deleted and made again: then begin with a new checkpoint (and a new table)",
        )
    if gone:
        return Seen(True, f"partitions of the checkpoint are not read any more: {', '.join(map(str, gone[:5]))}",
                    "see whether a topic was deleted, or is missing in subscribe")  # fmt: skip
    behind = sum(max(ranges[each].end - at, 0) for each, at in positions.items())
    return Seen(True, f"within the logs; {behind:,} offsets are to be read" if positions else "none yet")
