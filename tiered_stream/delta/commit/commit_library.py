"""Access to a table's storage, and the library that commits to it, delta-spark or deltalake (`ingest.commit`).

Writers of one table have to exclude each other. Otherwise a writer may overwrite the commit of another writer.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from py4j.clientserver import ClientServer
from pyspark.sql import SparkSession

from tiered_stream.delta.catalog.address import TableAddress
from tiered_stream.delta.catalog.session_checks import platform_of
from tiered_stream.delta.commit.delta_spark_commit import DeltaSparkTable, has_delta_spark
from tiered_stream.delta.requirements.hadoop_settings import NoCredentialsError, hadoop_settings
from tiered_stream.delta.requirements.lane import TableDescription, requirements_for_spark
from tiered_stream.delta.requirements.merge_requirements import why_not_merged_by_deltalake
from tiered_stream.delta.requirements.s3a import ACL, S3A_PREFIX, STORAGE_CLASS
from tiered_stream.delta.requirements.store_access import find_access, missing_connector
from tiered_stream.delta.requirements.writer_requirements import Handling, requirements_of_session
from tiered_stream.delta.settings import ingest_settings as ingest
from tiered_stream.delta.settings.ingest_settings import S3_SCHEMES, TableSpec, TableStorage
from tiered_stream.delta.settings.row_settings import MODE, UPSERT
from tiered_stream.errors import ConfigurationError
from tiered_stream.spark.session import is_connect

_NO_JVM = (
    "with Spark Connect, files that tasks have written cannot be committed, because the driver has no JVM of its own"
)

if TYPE_CHECKING:
    from tiered_stream.delta.commit.deltalake_commit import DeltalakeTable
    from tiered_stream.delta.commit.transaction import CommitTable, DeltaTransaction, Lock


def open_for_commits(
    spark: SparkSession, address: TableAddress, spec: TableSpec, by: str, description: TableDescription
) -> CommitTable:
    """Return the table, opened for commits by the library `by` (`COMMIT_BY_SPARK` or `COMMIT_BY_DELTALAKE`).

    If `spec` has key columns, a commit merges rows into the table. Otherwise, a commit appends files. `description` is
    the table's metadata and protocol.

    Raises:
        ConfigurationError: `ingest.ownColumns` or `ingest.mergeOn` does not suit the table's columns.
    """
    if not spec.keys:
        return DeltaSparkTable(spark, address) if by == ingest.COMMIT_BY_SPARK else _by_deltalake(spark, address, spec)
    # Imported late, because the import loads Arrow and NumPy, which a driver that appends does not need.
    from tiered_stream.delta.commit.merge import MergedTable

    merged = MergedTable(spark, address, spec)
    merged.check(description)
    if by == ingest.COMMIT_BY_SPARK:
        return merged
    from tiered_stream.delta.commit.deltalake_merge import DeltalakeMergedTable

    by_spark = spec.commit == ingest.AUTO and _why_not_spark(spark, spec) is None
    return DeltalakeMergedTable(_by_deltalake(spark, address, spec), merged, by_spark)


def with_access(spark: SparkSession, spec: TableSpec) -> tuple[TableSpec, str | None]:
    """Return `spec` with the settings for access to the folder `spec.uri`, and a reason why tasks cannot write to it.

    The reason is None if tasks can write to the folder.

    Raises:
        ConfigurationError: there are no credentials, or the session reaches another store than `ingest.storage.*`.
        TableAccessError: the region of the table's bucket cannot be found.
    """
    if is_connect(spark):
        return spec, _NO_JVM
    if urlsplit(spec.uri).scheme == "file":
        return spec, None
    if (why_not := _why_no_committer(spark, spec)) is not None:
        return spec, why_not
    try:
        storage, why_not = find_access(spec.storage, spec.uri, hadoop_settings(spark))
    except NoCredentialsError as error:
        platform = platform_of(spark)
        if platform is None or not platform.gives_credentials:
            raise
        return spec, f"{platform.name} gives credentials to Spark alone: {error}"
    return replace(spec, storage=storage), why_not


def _by_deltalake(spark: SparkSession, address: TableAddress, spec: TableSpec) -> DeltalakeTable:
    from tiered_stream.delta.commit.deltalake_commit import DeltalakeTable

    return DeltalakeTable(spec, lock_for_deltalake(spark, address, spec))


def find_table(spark: SparkSession, address: TableAddress, spec: TableSpec) -> DeltaTransaction | None:
    """Return a transaction on the table's newest version, or None if there is no table.

    The transaction is delta-spark's. It is deltalake's if the session's delta-spark cannot reach the table, such as a
    table in a store for which the session has no connector.

    Raises:
        TableError: the table cannot be reached, or its log cannot be read.
    """
    if _why_not_spark(spark, spec) is None:
        return DeltaSparkTable(spark, address).find()
    from tiered_stream.delta.commit.deltalake_commit import DeltalakeTable, DeltalakeTransaction, open_table

    table = open_table(spec)
    return None if table is None else DeltalakeTransaction(DeltalakeTable(spec), table)


def lock_for_deltalake(spark: SparkSession, address: TableAddress, spec: TableSpec) -> Lock:
    """Return the lock that deltalake holds during its commits, so that the session's delta-spark cannot overwrite them.

    If the table has no lock of delta-spark (`excluded_delta_spark`), such as a table in S3, the returned lock does
    nothing.
    """
    excluded = excluded_delta_spark(spark, address, spec)
    return excluded.lock if excluded else nullcontext


def excluded_delta_spark(spark: SparkSession, address: TableAddress, spec: TableSpec) -> DeltaSparkTable | None:
    """Return an object with delta-spark's lock of the table, which excludes delta-spark while deltalake commits.

    None: no lock can be used. A lock can be used only for a table in a local folder, if the session has delta-spark and
    each Python thread has its own JVM thread.
    """
    # Java's lock belongs to a thread, so each Python thread needs its own JVM thread (pinned threads, Spark's default).
    lockable = isinstance(spark.sparkContext._gateway, ClientServer) and _is_local(spec) and has_delta_spark(spark)
    return DeltaSparkTable(spark, address) if lockable else None


def lock_for_creation(spark: SparkSession, spec: TableSpec) -> Lock:
    """Return the lock that deltalake holds while it creates a table at `spec.uri`.

    If delta-spark has no lock for this table (`excluded_delta_spark`), the returned lock does nothing.
    """
    return lock_for_deltalake(spark, TableAddress(unquote(urlsplit(spec.uri).path), None, spec.uri), spec)


def choose_committer(spark: SparkSession, spec: TableSpec, description: TableDescription) -> tuple[str, str]:
    """Return the library that commits to the table, by `ingest.commit`, and the reason in one line.

    The library is `COMMIT_BY_SPARK` or `COMMIT_BY_DELTALAKE`. For `auto`, the library suits the session and the table,
    and it cannot overwrite commits of the session's other queries. For a table with key columns, it is delta-spark if
    only Spark's MERGE suits the table.

    Raises:
        ConfigurationError: delta-spark must commit, but the session or `ingest.commit` does not allow it. Or deltalake
            must commit, but an ACL or a storage class is set for its objects.
    """
    by, reason = _chosen(spark, spec, description)
    if not spec.keys or by == ingest.COMMIT_BY_SPARK:
        return by, reason
    why_not = why_not_merged_by_deltalake(description, spec.merge_on)
    why_not = why_not or why_not_in_session(spark, *Handling)
    if why_not is None:
        return by, reason
    if spec.commit == ingest.AUTO and _why_not_spark(spark, spec) is None:
        return ingest.COMMIT_BY_SPARK, why_not
    raise ConfigurationError(
        f"{MODE.name}={UPSERT} needs Spark's MERGE, because {why_not}; but {reason}. Take a session with "
        f"delta-spark (conf/spark-defaults.conf has its settings), and {ingest.COMMIT.name}={ingest.AUTO}"
    )


def _chosen(spark: SparkSession, spec: TableSpec, description: TableDescription) -> tuple[str, str]:
    why_not_spark = _why_not_spark(spark, spec)
    if spec.commit == ingest.COMMIT_BY_SPARK and why_not_spark:
        name, value = ingest.COMMIT.name, ingest.COMMIT_BY_SPARK
        raise ConfigurationError(f"{name} is {value}, but {why_not_spark}: set it to {ingest.AUTO}")
    if spec.commit == ingest.COMMIT_BY_DELTALAKE or why_not_spark:
        _check_object_settings(spec.storage, why_not_spark or f"{ingest.COMMIT.name} is {spec.commit}")
    if spec.commit != ingest.AUTO:
        return spec.commit, f"{ingest.COMMIT.name} asks for it"
    if why_not_spark:
        return ingest.COMMIT_BY_DELTALAKE, why_not_spark
    if not _is_local(spec):
        return ingest.COMMIT_BY_SPARK, "as the session's other queries do"
    if names := requirements_for_spark(description):
        return ingest.COMMIT_BY_SPARK, f"the table has {names}"
    if why_not_deltalake := why_not_in_session(spark, Handling.BY_SPARK):
        return ingest.COMMIT_BY_SPARK, why_not_deltalake
    return (
        ingest.COMMIT_BY_DELTALAKE, "in a local folder, under the lock of the session's Delta, it is the quicker one"
    )  # fmt: skip


def why_not_in_session(spark: SparkSession, *handlings: Handling) -> str | None:
    """Return the reason of the session's first setting whose handling is in `handlings`; None: there is none.

    The reason is a text for an error or the log, about the setting and its effect on the table's files.
    """
    requirements = requirements_of_session(spark)
    return next((each.reason for each in requirements if each.entry.handling in handlings), None)


def _why_no_committer(spark: SparkSession, spec: TableSpec) -> str | None:
    """Return a text that says why no library can commit to the table, or None if a library can.

    No library can commit to a table in S3 on a platform that commits through its own service, such as Databricks. If
    `ingest.commit` is `deltalake`, the result is None, because the user then excludes the platform's writers.
    """
    platform = platform_of(spark)
    if platform is None or not platform.commits_to_s3_itself or urlsplit(spec.uri).scheme not in S3_SCHEMES:
        return None
    if spec.commit == ingest.COMMIT_BY_DELTALAKE:
        return None
    return (
        f"{platform.name} commits to tables in S3 through a service of its own, which does not exclude other writers. "
        f"If nothing else writes to the table, {ingest.COMMIT.name}={ingest.COMMIT_BY_DELTALAKE} takes the direct lane"
    )


def _check_object_settings(storage: TableStorage, why: str) -> None:
    """Raise ConfigurationError if an ACL or a storage class is set, because deltalake's objects do not get them.

    `why` says in the error why deltalake commits.
    """
    for name, value in ((ACL, storage.acl), (STORAGE_CLASS, storage.storage_class)):
        if value:
            raise ConfigurationError(
                f"{S3A_PREFIX}{name} is {value}, which deltalake does not follow, and {why}: let delta-spark commit "
                f"({ingest.COMMIT.name}={ingest.AUTO}, in a session with delta-spark and hadoop-aws), or take the "
                "setting away"
            )


def _why_not_spark(spark: SparkSession, spec: TableSpec) -> str | None:
    if not has_delta_spark(spark):
        return "the session has no delta-spark"
    return None if _is_local(spec) else missing_connector(spec.uri, hadoop_settings(spark))


def _is_local(spec: TableSpec) -> bool:
    return urlsplit(spec.uri).scheme == "file"
