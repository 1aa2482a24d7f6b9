"""Check if a table suits the direct lane, and if tasks can reach the table's storage."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tiered_stream.delta.catalog.address import CREATION_WAITS, TableAddress, replace_columns
from tiered_stream.delta.catalog.session_platform import platform_of
from tiered_stream.delta.commit.committer import (
    Committer,
    choose_committer,
    choose_merger,
    lock_for_creation,
    lock_for_deltalake,
    merges_by_spark,
    why_no_committer,
)
from tiered_stream.delta.commit.compaction import compaction_of
from tiered_stream.delta.commit.delta_spark_commit import has_delta_spark
from tiered_stream.delta.commit.table_growth import Grow, growth_of
from tiered_stream.delta.commit.table_log import TableLog
from tiered_stream.delta.commit.transaction import CatalogManagedError
from tiered_stream.delta.requirements.hadoop_settings import NoCredentialsError, hadoop_settings
from tiered_stream.delta.requirements.lane import (
    TableDescription,
    check_fit,
    table_rules,
    unmet_requirements,
    why_not_direct,
)
from tiered_stream.delta.requirements.merge_requirements import (
    check_merge,
    merge_rules,
    merged_fields,
    rules_before_merge,
)
from tiered_stream.delta.requirements.new_table_properties import is_created_by_spark, new_table_properties
from tiered_stream.delta.requirements.requirement import Handling
from tiered_stream.delta.requirements.session_requirements import settings_in_list
from tiered_stream.delta.requirements.store_access import find_access
from tiered_stream.delta.requirements.table_requirements import CLUSTERING
from tiered_stream.delta.requirements.writer_requirements import requirements_of_session
from tiered_stream.delta.schema.routing import TableTarget
from tiered_stream.delta.schema.row_plan import record_columns
from tiered_stream.delta.schema.row_schema import check_new_columns, fit_to_table, shared_columns
from tiered_stream.delta.settings import ingest_settings as ingest
from tiered_stream.delta.settings.ingest_settings import TableFiles, TableStorage, table_storage
from tiered_stream.delta.settings.row_settings import SCHEMA_EVOLUTION, evolution_of
from tiered_stream.delta.settings.upsert_settings import MERGE_ON, MODE, UPSERT
from tiered_stream.errors import ConfigurationError, TableAccessError, TableError
from tiered_stream.formats.rows.row_choices import Evolution
from tiered_stream.formats.rows.row_format import RowFormat
from tiered_stream.formats.rows.table_rules import NO_RULES, certain_rules
from tiered_stream.options.given_options import GivenOptions
from tiered_stream.spark.session import is_connect

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from tiered_stream.delta.checkpoint.query_tables import Landed
    from tiered_stream.delta.commit.batch_commit import OnGap, TableCommits

log = logging.getLogger(__name__)

_creation = threading.Lock()
"""Lock for the creation of a table in a local folder.

Two names may lead to one folder, and there Spark overwrites the table that another thread has just created.
"""
_NO_JVM = (
    "with Spark Connect, files that tasks have written cannot be committed, because the driver has no JVM of its own"
)
NO_DELTALAKE = "the package deltalake is not installed (pip install 'tiered-stream[delta]')"


@dataclass(frozen=True, slots=True)
class Suitability:
    """Result of the check if a table suits the direct lane.

    `committer` is the committer that was chosen for the table; None: the table was not opened.
    """

    table: TableDescription | None
    """Description of the table; None: the table was not opened, or could not be read."""
    why_not: str | None
    """Reason that keeps the table from the direct lane; None: the table suits the direct lane."""
    committer: Committer | None = None
    rows: Mapping[str, RowFormat] = field(default_factory=dict)
    """Planned row formats, by topic, fitted to the table and with its rules.

    Empty: `assess_table` got no row formats, or did not open the table.
    """
    grow: Grow | None = None
    """Function that adds or widens columns of the table so that rows fit; None: the columns never change."""


def resolve_storage(spark: SparkSession, uri: str, settings: Mapping[str, str]) -> tuple[TableStorage, str | None]:
    """Return the settings by which tasks access the folder `uri`, and a reason why tasks cannot write to the folder.

    The reason is None if tasks can write to the folder.

    Raises:
        ConfigurationError: a storage setting is wrong, or there are no credentials.
        TableAccessError: the region of the table's bucket cannot be found.
    """
    if is_connect(spark):
        return table_storage(settings), _NO_JVM
    if urlsplit(uri).scheme == "file":
        return table_storage(settings), None
    if (why_not := why_no_committer(spark, GivenOptions(settings).read(ingest.COMMIT), uri)) is not None:
        return table_storage(settings), why_not
    try:
        return find_access(settings, uri, hadoop_settings(spark))
    except NoCredentialsError as error:
        platform = platform_of(spark)
        if platform is None or not platform.gives_credentials:
            raise
        return table_storage(settings), f"{platform.name} gives credentials to Spark alone: {error}"


def check_merges(spark: SparkSession) -> None:
    """Raise ConfigurationError if the session cannot merge rows into tables of the latest state."""
    if is_connect(spark):
        raise ConfigurationError(
            f"{MODE.name}={UPSERT} does not work with Spark Connect: run the job with a session of its own"
        )


def _choose(
    spark: SparkSession, settings: Mapping[str, str], files: TableFiles, description: TableDescription
) -> Committer:
    if files.keys:
        return choose_merger(spark, settings, files, description)
    return choose_committer(spark, GivenOptions(settings).read(ingest.COMMIT), files, description)


def assess_table(
    spark: SparkSession,
    address: TableAddress,
    target: TableTarget,
    create: Callable[[TableAddress], None],
    rows: Mapping[str, RowFormat] | None = None,
    *,
    checked: bool = False,
) -> Suitability:
    """Open the table and check if it suits the direct lane; create a missing table if it would suit the direct lane.

    Before the check, the table gets the columns that the rows need, if `ingest.schemaEvolution` allows it.

    Args:
        spark: the session.
        address: address of the table.
        target: the table's files, columns and settings.
        create: function by which Spark creates the table.
        rows: planned row formats, by topic, which are fitted to the table. None: tasks have already written the rows
            to files, with the columns of `target`.
        checked: true if tasks have checked these rows by the table's rules. Not used if `rows` is given.

    Raises:
        ConfigurationError: the rows do not fit into the table, or the table cannot be created or widened as the
            settings ask. Or a catalog manages the table, and the user gave its path. Or the session cannot commit as
            `ingest.commit` asks.
        TableAccessError: the table's store refuses access, or does not respond.
    """
    if (why_not := _why_session_needs_spark(spark, target.files)) is not None:
        return Suitability(None, why_not)
    from tiered_stream.delta.commit.deltalake_commit import describe

    files, settings, schema = target.files, target.settings, target.schema
    opened = _opened(spark, address, target, create)
    if isinstance(opened, str):
        return Suitability(None, opened)
    table, description = opened
    committer = _choose(spark, settings, files, description)
    if rows:
        rows = fitted_rows(rows, description, files)
        schema = shared_columns(rows.values(), files.day_column)
    grow = growth_of(spark, address, files, committer, evolution_of(settings))
    _check_widening(address, settings, description)
    if grow is not None and grow(description.fields, schema):
        table.update_incremental()
        description = describe(table)
    check_fit(files.uri, description, schema, files.day_column)
    if files.keys:
        check_merge(str(address), description, files)
    else:  # a MERGE meets what the table requires, or its committer was not chosen
        why_not = why_not_direct(description, files.day_column, schema, None if rows or checked else NO_RULES)
        why_not = why_not or committer.why_not_direct(description)
    return Suitability(description, why_not, committer, rows or {}, grow)


def _opened(
    spark: SparkSession, address: TableAddress, target: TableTarget, create: Callable[[TableAddress], None]
) -> tuple[DeltaTable, TableDescription] | str:
    """Return the table, which is created if it is missing, or a text that says why Spark must write to it."""
    from tiered_stream.delta.commit.deltalake_commit import describe, open_table

    try:
        known = open_table(target.files)
        if known is not None:
            description = describe(known)
            if not replace_unused(spark, address, target, description):
                return known, description
        with _creation if urlsplit(target.files.uri).scheme == "file" else nullcontext():
            table = open_table(target.files) or _create(spark, address, target, create)
        return table if isinstance(table, str) else (table, describe(table))
    except CatalogManagedError as error:
        if address.path is None:
            return str(error)
        raise ConfigurationError(f"{error}. Name the table by its name in the catalog, not by its path") from error
    except TableAccessError:
        raise  # the store would refuse Spark too, or Spark would find another table
    except TableError as error:
        return str(error)


def replace_unused(
    spark: SparkSession, address: TableAddress, target: TableTarget, description: TableDescription
) -> bool:
    """Replace a table that an earlier run has created with other columns, and that has never got rows.

    So a run whose settings were wrong does not keep the corrected one from its table. A table that anything else has
    changed stays as it is. `description` describes the table.

    Returns:
        True if the table was replaced.

    Raises:
        TableError: the table's log cannot be read, or the table cannot be replaced.
    """
    # Compared first, because the log is in a store that may be slow.
    day = (target.files.day_column,) if target.files.day_column else ()
    if _layout(description) == _layout(TableDescription(tuple(target.schema.jsonValue()["fields"]), day)):
        return False
    if not TableLog(target.files).is_unused():
        return False
    properties = new_table_properties(spark, target.settings)
    check_new_columns(target.schema, properties)
    log.info("the table %s has no rows, and is created again with the columns that the settings ask for now", address)
    if has_delta_spark(spark):
        replace_columns(spark, address, target)
    else:
        from tiered_stream.delta.commit.deltalake_commit import create_table

        create_table(target.files, target.schema, properties, replaces=True)
    return True


def _layout(description: TableDescription) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the types of the columns, by name, and the partition columns."""
    return {field["name"]: field["type"] for field in description.fields}, tuple(description.partition_columns)


def _found_soon(files: TableFiles) -> DeltaTable | None:
    """Return the table that Spark was asked to create, or None after 3 s without it.

    Spark creates nothing if another query has begun to create the table, whose first version may come a little later.
    """
    from tiered_stream.delta.commit.deltalake_commit import open_table

    for seconds in CREATION_WAITS:
        if (table := open_table(files)) is not None:
            return table
        time.sleep(seconds)
    return open_table(files)


def _create(
    spark: SparkSession, address: TableAddress, target: TableTarget, create: Callable[[TableAddress], None]
) -> DeltaTable | str:
    """Create the missing table, by deltalake or by Spark (`create`), and return it.

    If the direct lane could not write to the new table, no table is created, and the reason is returned as a text.

    Raises:
        ConfigurationError: Delta refuses a column, or the session cannot commit as `ingest.commit` asks.
        TableAccessError: Spark has created the table where tasks do not find it.
        TableError: the table cannot be created.
    """
    from tiered_stream.delta.commit.deltalake_commit import create_table, open_table

    files, settings = target.files, target.settings
    properties = new_table_properties(spark, settings)
    expected = _expected_description(files, target.schema, properties)
    committer = _choose(spark, settings, files, expected)
    why_not = None if files.keys else unmet_requirements(expected) or committer.why_not_direct(expected)
    if why_not:
        return why_not
    by_spark = is_created_by_spark(spark, settings, has_delta=has_delta_spark(spark))
    if committer.by != ingest.COMMIT_BY_SPARK and not by_spark:
        return create_table(files, target.schema, properties, lock_for_creation(spark, files))
    # Spark also writes the version's checksum. Without a checksum Delta's first commit reads the table's whole state.
    try:
        create(address)
    except TableError:
        if open_table(files) is None:  # else another query has just created it
            raise
    table = _found_soon(files)
    if table is None:
        raise TableAccessError(
            f"Spark was asked to make the table {address}, but tasks do not find it at {files.uri}: either other files "
            "are in its folder, or the session reaches another store than they do"
        )
    return table


def open_commits(
    spark: SparkSession,
    address: TableAddress,
    target: TableTarget,
    suitability: Suitability,
    on_gap: OnGap,
    landed: Landed | None = None,
    *,
    fail_on_data_loss: bool,
    rules_by_file: bool = False,
) -> TableCommits:
    """Return the table, opened for a query's commits by the committer in `suitability`.

    `suitability` must show that the table suits the direct lane. `TableCommits` documents `on_gap` and `landed`, and
    `LandingTable` documents `fail_on_data_loss` and `rules_by_file`.
    """
    # Imported late, because the import loads the modules that plan micro-batches, which most drivers do not need.
    from tiered_stream.delta.commit.batch_commit import LandingTable, TableCommits

    table, committer, files = suitability.table, suitability.committer, target.files
    assert table is not None
    assert committer is not None
    why_not = _never if files.keys else committer.why_not_direct
    rules = rules_before_merge(table, target.rows, files) if files.keys and target.rows else table_rules(table)
    planned = LandingTable(
        files, target.schema, table.table_id, why_not, fail_on_data_loss, rules,
        suitability.grow, compaction_of(spark, address, files, committer), rules_by_file,
        GivenOptions(target.settings).read(ingest.ON_LANDED_OFFSETS) == ingest.LAND,
    )  # fmt: skip
    if not files.keys:
        return TableCommits(committer.open(spark, address, files), planned, on_gap, landed)
    # Imported late, because the import loads Arrow and NumPy, which a driver that appends does not need.
    from tiered_stream.delta.commit.merge import MergedTable

    merge_on, kafka = GivenOptions(target.settings).read(MERGE_ON), record_columns(target.settings)
    merged = MergedTable(spark, address, files, merge_on, kafka)
    merged.check(table)
    if committer.by == ingest.COMMIT_BY_SPARK:
        return TableCommits(merged, planned, on_gap, landed)
    from tiered_stream.delta.commit.deltalake_commit import DeltalakeTable
    from tiered_stream.delta.commit.deltalake_merge import DeltalakeMergedTable

    opened = DeltalakeTable(files, lock_for_deltalake(spark, address, files))
    by_spark = GivenOptions(target.settings).read(ingest.COMMIT) == ingest.AUTO and merges_by_spark(spark, files)
    return TableCommits(DeltalakeMergedTable(opened, merged, by_spark), planned, on_gap, landed)


def _never(_: TableDescription) -> None:
    """Return None: a merge itself finds out what the table requires."""


def _why_session_needs_spark(spark: SparkSession, files: TableFiles) -> str | None:
    """Return in one line why the session needs the Spark lane; None: it does not.

    It needs the Spark lane without deltalake, or for a setting that only Spark follows. If Spark merges the rows, no
    setting counts.
    """
    if find_spec("deltalake") is None:
        return NO_DELTALAKE
    if files.keys:
        return None
    requirements = requirements_of_session(settings_in_list(spark))
    left = (requirement.reason for requirement in requirements if requirement.entry.handling is Handling.SPARK_LANE)
    return next(left, None)


def _expected_description(files: TableFiles, schema: StructType, properties: Mapping[str, str]) -> TableDescription:
    """Return the description that a new table will have, before it is created.

    Raises:
        ConfigurationError: Delta refuses a column.
    """
    check_new_columns(schema, properties)
    partition_columns = (files.day_column,) if files.day_column else ()
    features = frozenset([CLUSTERING] if files.cluster_by else [])
    return TableDescription(tuple(schema.jsonValue()["fields"]), partition_columns, properties, features)


def fitted_rows(rows: Mapping[str, RowFormat], table: TableDescription, files: TableFiles) -> dict[str, RowFormat]:
    """Return the row formats, by topic, fitted to the table's types and with the table's rules.

    For a table of the latest state, rules that tasks cannot check are left out, because Delta checks them.
    """
    if not files.keys:
        rules = table_rules(table)
        return {topic: replace(fit_to_table(each, table.fields), rules=rules) for topic, each in rows.items()}
    rules, fields = merge_rules(table), merged_fields(table, files.own_columns)
    fitted = {topic: fit_to_table(each, fields) for topic, each in rows.items()}
    return {topic: replace(each, rules=certain_rules(rules, each.written)) for topic, each in fitted.items()}


def _check_widening(address: TableAddress, settings: Mapping[str, str], description: TableDescription) -> None:
    """Raise ConfigurationError if `ingest.schemaEvolution` is `widen`, but the table does not allow wider columns."""
    is_enabled = description.configuration.get(ingest.TYPE_WIDENING, "").lower() == "true"
    if evolution_of(settings) is Evolution.WIDEN and not is_enabled:
        raise ConfigurationError(
            f"{SCHEMA_EVOLUTION.name} is {Evolution.WIDEN}, but columns of the table {address} cannot become wider: "
            f"ALTER TABLE {address.sql_name} SET TBLPROPERTIES ('{ingest.TYPE_WIDENING}' = 'true'), where all of its "
            f"readers know that feature of Delta; or set {SCHEMA_EVOLUTION.name}={Evolution.ADD}"
        )
