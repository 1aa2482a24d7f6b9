"""Choice of the committer, which writes the versions of a table's log: delta-spark or deltalake (`ingest.commit`).

Writers of one table have to exclude each other. Otherwise a writer may overwrite the commit of another writer.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from py4j.clientserver import ClientServer
from pyspark.sql import SparkSession

from tiered_stream.delta.catalog.address import TableAddress
from tiered_stream.delta.catalog.session_platform import platform_of
from tiered_stream.delta.commit.delta_spark_commit import DeltaSparkTable, has_delta_spark
from tiered_stream.delta.requirements import type_widening
from tiered_stream.delta.requirements.hadoop_settings import hadoop_settings
from tiered_stream.delta.requirements.lane import TableDescription
from tiered_stream.delta.requirements.merge_requirements import why_not_merged_by_deltalake
from tiered_stream.delta.requirements.requirement import Handling
from tiered_stream.delta.requirements.s3a_requirements import ACL, S3A_PREFIX, STORAGE_CLASS
from tiered_stream.delta.requirements.session_requirements import settings_in_list
from tiered_stream.delta.requirements.store_access import missing_connector
from tiered_stream.delta.requirements.writer_requirements import requirements_of_session, requirements_of_table
from tiered_stream.delta.settings import ingest_settings as ingest
from tiered_stream.delta.settings.ingest_settings import S3_SCHEMES, TableFiles, TableStorage
from tiered_stream.delta.settings.upsert_settings import MERGE_ON, MODE, UPSERT
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.given_options import GivenOptions

if TYPE_CHECKING:
    from tiered_stream.delta.commit.transaction import CommitTable, DeltaTransaction, Lock


@dataclass(frozen=True, slots=True)
class Committer:
    """Choice of the library that commits to a table (`by`), and the reason for the choice in one line of text.

    `by` is `COMMIT_BY_SPARK` or `COMMIT_BY_DELTALAKE`.
    """

    by: str
    reason: str

    def why_not_direct(self, description: TableDescription) -> str | None:
        """Return a text that says why this committer cannot commit to the table; None: the committer can.

        The text names the requirements of the table that only delta-spark meets.
        """
        if self.by == ingest.COMMIT_BY_DELTALAKE and (names := _requirements_for_spark(description)):
            return f"the table has {names}, which {ingest.COMMIT.name}={ingest.COMMIT_BY_SPARK} alone honours"
        return None

    def open(self, spark: SparkSession, address: TableAddress, files: TableFiles) -> CommitTable:
        """Return the table, opened for commits by the chosen library."""
        if self.by == ingest.COMMIT_BY_SPARK:
            return DeltaSparkTable(spark, address)
        from tiered_stream.delta.commit.deltalake_commit import DeltalakeTable

        return DeltalakeTable(files, lock_for_deltalake(spark, address, files))


def find_table(spark: SparkSession, address: TableAddress, files: TableFiles) -> DeltaTransaction | None:
    """Return a transaction on the table's newest version; None: there is no table.

    deltalake begins it if the session's delta-spark cannot reach the table, such as a table in a store for which the
    session has no connector.

    Raises:
        TableError: the table cannot be reached, or its log cannot be read.
    """
    if _why_not_spark(spark, files) is None:
        return DeltaSparkTable(spark, address).find()
    from tiered_stream.delta.commit.deltalake_commit import DeltalakeTable, open_table

    return DeltalakeTable(files).begin() if open_table(files) else None


def lock_for_deltalake(spark: SparkSession, address: TableAddress, files: TableFiles) -> Lock:
    """Return the lock that deltalake holds during its commits, so that the session's delta-spark cannot overwrite them.

    If the table has no lock of delta-spark (`excluded_delta_spark`), such as a table in S3, the returned lock does
    nothing.
    """
    excluded = excluded_delta_spark(spark, address, files)
    return excluded.lock if excluded else nullcontext


def excluded_delta_spark(spark: SparkSession, address: TableAddress, files: TableFiles) -> DeltaSparkTable | None:
    """Return an object with delta-spark's lock of the table, which excludes delta-spark while deltalake commits.

    None: no lock can be used. A lock can be used only for a table in a local folder, if the session has delta-spark and
    each Python thread has its own JVM thread.
    """
    # Java's lock belongs to a thread, so each Python thread needs its own JVM thread (pinned threads, Spark's default).
    lockable = isinstance(spark.sparkContext._gateway, ClientServer) and _is_local(files) and has_delta_spark(spark)
    return DeltaSparkTable(spark, address) if lockable else None


def lock_for_creation(spark: SparkSession, files: TableFiles) -> Lock:
    """Return the lock that deltalake holds while it creates a table at `files.uri`, as `lock_for_deltalake` does."""
    return lock_for_deltalake(spark, TableAddress(unquote(urlsplit(files.uri).path), None, files.uri), files)


def choose_committer(spark: SparkSession, setting: str, files: TableFiles, description: TableDescription) -> Committer:
    """Return the committer that `setting`, the value of `ingest.commit`, names.

    For `auto`, return a committer that suits the session and the table, and that cannot overwrite commits of the
    session's other queries.

    Args:
        spark: the session.
        setting: value of `ingest.commit`.
        files: location of the table, and access to its storage.
        description: the table's metadata and protocol.

    Raises:
        ConfigurationError: `setting` asks for delta-spark, but the session has no delta-spark or no file system for
            the table. Or deltalake is to commit, but an ACL or a storage class is set.
    """
    why_not_spark = _why_not_spark(spark, files)
    if setting == ingest.COMMIT_BY_SPARK and why_not_spark:
        name, value = ingest.COMMIT.name, ingest.COMMIT_BY_SPARK
        raise ConfigurationError(f"{name} is {value}, but {why_not_spark}: set it to {ingest.AUTO}")
    if setting == ingest.COMMIT_BY_DELTALAKE or why_not_spark:
        _check_object_settings(files.storage, why_not_spark or f"{ingest.COMMIT.name} is {setting}")
    if setting != ingest.AUTO:
        return Committer(setting, f"{ingest.COMMIT.name} asks for it")
    if why_not_spark:
        return Committer(ingest.COMMIT_BY_DELTALAKE, why_not_spark)
    if not _is_local(files):
        return Committer(ingest.COMMIT_BY_SPARK, "as the session's other queries do")
    if names := _requirements_for_spark(description):
        return Committer(ingest.COMMIT_BY_SPARK, f"the table has {names}")
    for requirement in requirements_of_session(settings_in_list(spark)):
        if requirement.entry.handling is Handling.BY_SPARK:
            return Committer(ingest.COMMIT_BY_SPARK, requirement.reason)
    return Committer(
        ingest.COMMIT_BY_DELTALAKE, "in a local folder, under the lock of the session's Delta, it is the quicker one"
    )


def choose_merger(
    spark: SparkSession, settings: Mapping[str, str], files: TableFiles, description: TableDescription
) -> Committer:
    """Return the committer that merges rows into a table of the latest state, by `ingest.commit` in `settings`.

    For `auto`, return a committer as `choose_committer` does, but delta-spark if only Spark's MERGE suits the table.

    Raises:
        ConfigurationError: as for `choose_committer`, or the table needs Spark's MERGE, which is not to be used.
    """
    options = GivenOptions(settings)
    setting = options.read(ingest.COMMIT)
    committer = choose_committer(spark, setting, files, description)
    if committer.by == ingest.COMMIT_BY_SPARK:
        return committer
    why_not = why_not_merged_by_deltalake(description, options.read(MERGE_ON)) or _session_setting_for_spark(spark)
    if why_not is None:
        return committer
    if setting == ingest.AUTO and merges_by_spark(spark, files):
        return Committer(ingest.COMMIT_BY_SPARK, why_not)
    raise ConfigurationError(
        f"{MODE.name}={UPSERT} needs Spark's MERGE, because {why_not}; but {committer.reason}. Take a session with "
        f"delta-spark (conf/spark-defaults.conf has its settings), and {ingest.COMMIT.name}={ingest.AUTO}"
    )


def merges_by_spark(spark: SparkSession, files: TableFiles) -> bool:
    """Return whether the session's delta-spark can merge rows into the table."""
    return _why_not_spark(spark, files) is None


def _session_setting_for_spark(spark: SparkSession) -> str | None:
    return next((requirement.reason for requirement in requirements_of_session(settings_in_list(spark))), None)


def why_no_committer(spark: SparkSession, setting: str, uri: str) -> str | None:
    """Return why no library may commit to a table in the folder `uri`; None: one may commit.

    `setting` is the value of `ingest.commit`. A user who sets it to deltalake has to exclude the platform's writers.
    """
    platform = platform_of(spark)
    if platform is None or not platform.commits_to_s3_itself or urlsplit(uri).scheme not in S3_SCHEMES:
        return None
    if setting == ingest.COMMIT_BY_DELTALAKE:
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


def _why_not_spark(spark: SparkSession, files: TableFiles) -> str | None:
    if not has_delta_spark(spark):
        return "the session has no delta-spark"
    return None if _is_local(files) else missing_connector(files.uri, hadoop_settings(spark))


def _is_local(files: TableFiles) -> bool:
    return urlsplit(files.uri).scheme == "file"


def _requirements_for_spark(description: TableDescription) -> str:
    """Return the names of the table's requirements that only delta-spark meets, joined by "and".

    The text is empty if there are none.
    """
    unmet = requirements_of_table(description.writer_features, description.configuration, description.fields)
    names = dict.fromkeys(requirement.name for requirement in unmet if requirement.entry.handling is Handling.BY_SPARK)
    if ingest.TYPE_WIDENING in names:
        names = dict.fromkeys(name for name in names if name not in type_widening.FEATURES)
    return " and ".join(names)
