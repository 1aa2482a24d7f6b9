"""Tables that are there, opened for commits in the direct lane, and created if they are missing.

A table is opened only if it suits the direct lane, and if tasks can reach its storage.
"""

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

from tiered_stream.delta.catalog.address import CREATION_WAITS, TableAddress, replace_columns
from tiered_stream.delta.catalog.session_checks import platform_of
from tiered_stream.delta.commit.commit_library import (
    choose_committer,
    lock_for_creation,
    open_for_commits,
    why_no_committer,
)
from tiered_stream.delta.commit.compaction import Compaction, compaction_of
from tiered_stream.delta.commit.delta_spark_commit import has_delta_spark
from tiered_stream.delta.commit.table_growth import Grow, growth_of
from tiered_stream.delta.commit.table_log import TableLog
from tiered_stream.delta.commit.transaction import CatalogManagedError, CommitTable
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
from tiered_stream.delta.requirements.session_requirements import (
    is_created_by_spark,
    new_table_properties,
)
from tiered_stream.delta.requirements.store_access import find_access
from tiered_stream.delta.requirements.writer_requirements import CLUSTERING, Handling, requirements_of_session
from tiered_stream.delta.schema.row_schema import check_new_columns, fit_to_table, shared_columns
from tiered_stream.delta.settings.ingest_settings import COMMIT_BY_DELTALAKE, COMMIT_BY_SPARK, TYPE_WIDENING, TableSpec
from tiered_stream.delta.settings.row_settings import MODE, SCHEMA_EVOLUTION, UPSERT
from tiered_stream.errors import ConfigurationError, TableAccessError, TableError
from tiered_stream.formats.rows.row_choices import Evolution
from tiered_stream.formats.rows.row_format import RowFormat
from tiered_stream.formats.rows.table_rules import NO_RULES, TableRules, certain_rules
from tiered_stream.spark.session import is_connect

if TYPE_CHECKING:
    from deltalake import DeltaTable


log = logging.getLogger(__name__)

_creation = threading.Lock()
"""Lock for the creation of a table in a local folder.

Two names may lead to one folder, and there Spark overwrites the table that another thread has just created.
"""
_NO_JVM = (
    "with Spark Connect, files that tasks have written cannot be committed, because the driver has no JVM of its own"
)
NO_DELTALAKE = "the package deltalake is not installed (pip install 'tiered-stream[delta]')"


@dataclass(frozen=True)
class OpenTable:
    """Table that is there, opened for the commits of one query by delta-spark or by deltalake."""

    spec: TableSpec
    """Specification of the table, whose columns are the columns of the planned rows."""
    table: CommitTable
    description: TableDescription
    """Description of the table as it was when the query was planned."""
    by: str = COMMIT_BY_DELTALAKE
    """Library that commits: `COMMIT_BY_SPARK` or `COMMIT_BY_DELTALAKE`."""
    reason: str = ""
    """Reason for the choice of the library, in one line."""
    rules: TableRules = NO_RULES
    """Rules of the table (NOT NULL, CHECK constraints, lengths of texts) by which the tasks check the rows."""
    rows: Mapping[str, RowFormat] = field(default_factory=dict)
    """Planned row formats, by topic, fitted to the table and with its rules. Empty: tasks have planned the rows."""
    grow: Grow | None = None
    """Function that adds or widens columns of the table so that the files fit; None: the columns never change."""
    compaction: Compaction | None = None

    def accepts(self, description: TableDescription, checked_rules: TableRules | None) -> str | None:
        """Return a text that says why the direct lane cannot write the table as it is now, or None if it can.

        Args:
            description: the table's metadata and protocol now.
            checked_rules: rules by which tasks have checked the rows already; None: they have not checked them yet.
        """
        if self.spec.keys:  # Delta itself checks the rows that it merges, and a MERGE finds out what the table requires
            return None
        return why_not_direct(description, self.spec.day_column, self.spec.schema, checked_rules, self.by)


def with_access(spark: SparkSession, spec: TableSpec) -> tuple[TableSpec, str | None]:
    """Return the table with the access to its folder (`spec.uri`), and a reason why tasks cannot write to the folder.

    The reason is None if tasks can write to the folder.

    Raises:
        ConfigurationError: there are no credentials, or the session reaches another store than `ingest.storage.*`.
        TableAccessError: the region of the table's bucket cannot be found.
    """
    if is_connect(spark):
        return spec, _NO_JVM
    if urlsplit(spec.uri).scheme == "file":
        return spec, None
    if (why_not := why_no_committer(spark, spec)) is not None:
        return spec, why_not
    try:
        storage, why_not = find_access(spec.storage, spec.uri, hadoop_settings(spark))
    except NoCredentialsError as error:
        platform = platform_of(spark)
        if platform is None or not platform.gives_credentials:
            raise
        return spec, f"{platform.name} gives credentials to Spark alone: {error}"
    return replace(spec, storage=storage), why_not


def check_merges(spark: SparkSession) -> None:
    """Raise ConfigurationError if the session cannot merge rows into tables of the latest state."""
    if is_connect(spark):
        raise ConfigurationError(
            f"{MODE.name}={UPSERT} does not work with Spark Connect: run the job with a session of its own"
        )


def open_or_create(
    spark: SparkSession,
    address: TableAddress,
    spec: TableSpec,
    create: Callable[[TableAddress], None],
    rows: Mapping[str, RowFormat] | None = None,
    *,
    checked: bool = False,
) -> OpenTable | str:
    """Open the table for commits if it suits the direct lane; create a missing table if it would suit the direct lane.

    Before the check, the table gets the columns that the rows need, if `ingest.schemaEvolution` allows it.

    Args:
        spark: the session.
        address: address of the table.
        spec: specification of the table by the user.
        create: function by which Spark creates the table.
        rows: planned row formats, by topic, which are fitted to the table. None: tasks have already written the rows
            to files, with the columns of `spec`.
        checked: true if tasks have checked these rows by the table's rules. Not used if `rows` is given.

    Returns:
        The table, or a text that says why the table does not suit the direct lane.

    Raises:
        ConfigurationError: the rows do not fit into the table, or the table cannot be created or widened as the
            settings ask. Or a catalog manages the table, and the user gave its path. Or the session cannot commit as
            `ingest.commit` asks.
        TableAccessError: the table's store refuses access, or does not respond.
    """
    if (why_not := _why_session_needs_spark(spark, spec)) is not None:
        return why_not
    from tiered_stream.delta.commit.deltalake_commit import describe

    found = _opened(spark, address, spec, create)
    if isinstance(found, str):
        return found
    table, description = found
    by, reason = choose_committer(spark, spec, description)
    if rows:
        rows = fitted_rows(rows, description, spec)
        spec = replace(spec, columns=shared_columns(rows.values(), spec.day_column))
    grow = growth_of(spark, address, spec, by)
    _check_widening(address, spec, description)
    if grow is not None and grow(description.fields, spec.schema):
        table.update_incremental()
        description = describe(table)
    check_fit(spec.uri, description, spec.schema, spec.day_column)
    if spec.keys:
        check_merge(str(address), description, spec)
    commits, rules = open_for_commits(spark, address, spec, by, description), _rules_of(spec, description)
    compaction = compaction_of(spark, address, spec, by)
    opened = OpenTable(spec, commits, description, by, reason, rules, rows or {}, grow, compaction)
    return opened.accepts(description, None if rows or checked else NO_RULES) or opened


def _rules_of(spec: TableSpec, description: TableDescription) -> TableRules:
    if spec.keys and spec.row_format:
        return rules_before_merge(description, spec.row_format, spec)
    return table_rules(description)


def _opened(
    spark: SparkSession, address: TableAddress, spec: TableSpec, create: Callable[[TableAddress], None]
) -> tuple[DeltaTable, TableDescription] | str:
    """Return the table, which is created if it is missing, or a text that says why Spark must write to it.

    `create` is a function by which Spark creates the table at an address.
    """
    from tiered_stream.delta.commit.deltalake_commit import describe, open_table

    try:
        known = open_table(spec)
        if known is not None:
            description = describe(known)
            if not replace_unused(spark, address, spec, description):
                return known, description
        with _creation if urlsplit(spec.uri).scheme == "file" else nullcontext():
            table = open_table(spec) or _create(spark, address, spec, create)
        return table if isinstance(table, str) else (table, describe(table))
    except CatalogManagedError as error:
        if address.path is None:
            return str(error)
        raise ConfigurationError(f"{error}. Name the table by its name in the catalog, not by its path") from error
    except TableAccessError:
        raise  # the store would refuse Spark too, or Spark would find another table
    except TableError as error:
        return str(error)


def replace_unused(spark: SparkSession, address: TableAddress, spec: TableSpec, description: TableDescription) -> bool:
    """Replace a table that an earlier run has created with other columns, and that has never got rows.

    So a user can correct the settings of a failed first run, and run the job again. If anything else has changed the
    table, the table stays as it is. `description` describes the table.

    Returns:
        True if the table was replaced.

    Raises:
        TableError: the table's log cannot be read, or the table cannot be replaced.
    """
    # Compared first, because the log is in a store that may be slow.
    if _layout(description) == _layout(_planned_description(spec)):
        return False
    if not TableLog(spec).is_unused():
        return False
    properties = new_table_properties(spark, spec)
    check_new_columns(spec.schema, properties)
    log.info("the table %s has no rows, and is created again with the columns that the settings ask for now", address)
    if has_delta_spark(spark):
        replace_columns(spark, address, spec)
    else:
        from tiered_stream.delta.commit.deltalake_commit import create_table

        create_table(spec, spec.schema, properties, replaces=True)
    return True


def _layout(description: TableDescription) -> tuple[dict[str, Any], tuple[str, ...]]:
    return {field["name"]: field["type"] for field in description.fields}, tuple(description.partition_columns)


def _found_soon(spec: TableSpec) -> DeltaTable | None:
    """Return the table that Spark was asked to create, or None after 3 s without it.

    Spark creates nothing if another query has begun to create the table, whose first version may come a little later.
    """
    from tiered_stream.delta.commit.deltalake_commit import open_table

    for seconds in CREATION_WAITS:
        if (table := open_table(spec)) is not None:
            return table
        time.sleep(seconds)
    return open_table(spec)


def _create(
    spark: SparkSession, address: TableAddress, spec: TableSpec, create: Callable[[TableAddress], None]
) -> DeltaTable | str:
    """Create the missing table, by deltalake or by Spark (`create`), and return it.

    If the direct lane could not write to the new table, no table is created, and the reason is returned as a text.
    """
    from tiered_stream.delta.commit.deltalake_commit import create_table, open_table

    properties = new_table_properties(spark, spec)
    expected = _expected_description(spec, properties)
    by, _ = choose_committer(spark, spec, expected)
    if not spec.keys and (why_not := unmet_requirements(expected, by)):
        return why_not
    by_spark = is_created_by_spark(spark, spec, has_delta=has_delta_spark(spark))
    if by != COMMIT_BY_SPARK and not by_spark:
        return create_table(spec, spec.schema, properties, lock_for_creation(spark, spec))
    # Spark also writes the version's checksum. Without a checksum Delta's first commit reads the table's whole state.
    try:
        create(address)
    except TableError:
        if open_table(spec) is None:  # else another query has just created it
            raise
    table = _found_soon(spec)
    if table is None:
        raise TableAccessError(
            f"Spark was asked to make the table {address}, but tasks do not find it at {spec.uri}: either other files "
            "are in its folder, or the session reaches another store than they do"
        )
    return table


def _why_session_needs_spark(spark: SparkSession, spec: TableSpec) -> str | None:
    """Return in one line why the session needs the Spark lane, or None if it does not.

    The session needs the Spark lane if deltalake is not installed, or if it has a setting that only the Spark lane
    follows. For a table of the latest state, settings do not count.
    """
    if find_spec("deltalake") is None:
        return NO_DELTALAKE
    if spec.keys:
        return None
    requirements = requirements_of_session(spark)
    left = (requirement.reason for requirement in requirements if requirement.entry.handling is Handling.SPARK_LANE)
    return next(left, None)


def _expected_description(spec: TableSpec, properties: Mapping[str, str]) -> TableDescription:
    """Return the description that a new table will have, before it is created."""
    check_new_columns(spec.schema, properties)
    features = frozenset([CLUSTERING] if spec.cluster_by else [])
    return replace(_planned_description(spec), configuration=properties, writer_features=features)


def _planned_description(spec: TableSpec) -> TableDescription:
    """Return the columns and partition columns of the planned rows as a table's description."""
    partition_columns = (spec.day_column,) if spec.day_column else ()
    return TableDescription(tuple(spec.schema.jsonValue()["fields"]), partition_columns)


def fitted_rows(rows: Mapping[str, RowFormat], table: TableDescription, spec: TableSpec) -> dict[str, RowFormat]:
    """Return the row formats, by topic, fitted to the table's types and with the table's rules.

    For a table of the latest state, rules that tasks cannot check are left out, because Delta checks them.
    """
    if not spec.keys:
        rules = table_rules(table)
        return {topic: replace(fit_to_table(each, table.fields), rules=rules) for topic, each in rows.items()}
    rules, fields = merge_rules(table), merged_fields(table, spec.own_columns)
    fitted = {topic: fit_to_table(each, fields) for topic, each in rows.items()}
    return {topic: replace(each, rules=certain_rules(rules, each.written)) for topic, each in fitted.items()}


def _check_widening(address: TableAddress, spec: TableSpec, description: TableDescription) -> None:
    """Raise ConfigurationError if `ingest.schemaEvolution` is `widen`, but the table does not allow wider columns."""
    is_enabled = description.configuration.get(TYPE_WIDENING, "").lower() == "true"
    if spec.rows.schema_evolution is Evolution.WIDEN and not is_enabled:
        raise ConfigurationError(
            f"{SCHEMA_EVOLUTION.name} is {Evolution.WIDEN}, but columns of the table {address} cannot become wider: "
            f"ALTER TABLE {address.sql_name} SET TBLPROPERTIES ('{TYPE_WIDENING}' = 'true'), where all of its "
            f"readers know that feature of Delta; or set {SCHEMA_EVOLUTION.name}={Evolution.ADD}"
        )
