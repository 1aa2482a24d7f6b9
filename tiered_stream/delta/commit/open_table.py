"""Tables opened for commits in the direct lane: missing tables are created, and new columns are added.

In the direct lane, tasks write the table's files themselves. A table is opened only if it suits the direct lane, and if
tasks can reach its storage.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from tiered_stream.delta.catalog.address import (
    CREATION_WAITS,
    TableAddress,
    cluster_table,
    replace_columns,
    set_properties,
)
from tiered_stream.delta.catalog.java_errors import spark_errors
from tiered_stream.delta.commit.commit_library import (
    choose_committer,
    lock_for_creation,
    lock_for_deltalake,
    open_for_commits,
    why_not_in_session,
)
from tiered_stream.delta.commit.compaction import Compaction, compaction_of
from tiered_stream.delta.commit.delta_spark_commit import has_delta_spark
from tiered_stream.delta.commit.table_log import TableLog
from tiered_stream.delta.commit.transaction import CatalogManagedError, CommitTable
from tiered_stream.delta.requirements.lane import TableDescription, check_fit, unmet_requirements, why_not_direct
from tiered_stream.delta.requirements.merge_requirements import check_merge, fitted_rows, rules_for_tasks
from tiered_stream.delta.requirements.session_requirements import (
    check_created_by_deltalake,
    is_created_by_spark,
    lacking_properties,
    new_table_properties,
    session_defaults,
)
from tiered_stream.delta.requirements.writer_requirements import CLUSTERING, Handling, is_wider
from tiered_stream.delta.schema.row_schema import check_new_columns, shared_columns, struct_type
from tiered_stream.delta.schema.sql_types import sql_name, sql_type
from tiered_stream.delta.settings.ingest_settings import COMMIT_BY_DELTALAKE, COMMIT_BY_SPARK, TYPE_WIDENING, TableSpec
from tiered_stream.delta.settings.row_settings import SCHEMA_EVOLUTION
from tiered_stream.errors import ConfigurationError, TableAccessError, TableError
from tiered_stream.formats.rows.row_choices import Evolution
from tiered_stream.formats.rows.row_format import RowFormat
from tiered_stream.formats.rows.table_rules import NO_RULES, FieldPath, TableRules

if TYPE_CHECKING:
    from deltalake import DeltaTable


log = logging.getLogger(__name__)

_creation = threading.Lock()
"""Lock for the creation of a table in a local folder.

Two names may lead to one folder, and there Spark overwrites the table that another thread has just created.
"""
_TypedPath = tuple[FieldPath, DataType]
Grow = Callable[[Sequence[Mapping[str, Any]], StructType], bool]
"""Function that adds to a table the columns and nested fields of a schema that it lacks, or widens columns.

The arguments are the table's columns in Spark's JSON, and the schema. The function returns whether it changed the
table.
"""
NO_DELTALAKE = "the package deltalake is not installed (pip install 'tiered-stream[delta]')"


@dataclass(frozen=True)
class OpenTable:
    """Existing table, opened for the commits of one query by delta-spark or by deltalake."""

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
    """Planned row formats, by topic, with the table's types and rules; empty if the tasks have planned the rows."""
    grow: Grow | None = None
    """Function that adds or widens columns of the table, so that new files fit; None: the columns never change."""
    compaction: Compaction | None = None

    def accepts(self, description: TableDescription, checked_rules: TableRules | None) -> str | None:
        """Return a text that says why the table, as it is now, cannot get files that tasks write; None: it can.

        Args:
            description: the table's metadata and protocol now.
            checked_rules: table rules by which tasks have checked the rows; None: the rows are not checked yet.
        """
        if self.spec.keys:  # Delta itself checks the rows that it merges, and a MERGE finds out what the table requires
            return None
        return why_not_direct(description, self.spec.day_column, self.spec.schema, checked_rules, self.by)


def open_or_create(
    spark: SparkSession,
    address: TableAddress,
    spec: TableSpec,
    create: Callable[[TableAddress], None],
    rows: Mapping[str, RowFormat] | None = None,
    *,
    checked: bool = False,
    keeps_table: bool = False,
) -> OpenTable | str:
    """Open the table for commits if it suits the direct lane; create a missing table if it would suit the direct lane.

    In the direct lane, tasks write the table's files. Before the check, the table gets the columns that the rows need,
    if `ingest.schemaEvolution` allows it.

    Args:
        spark: the session.
        address: address of the table.
        spec: specification of the table by the user.
        create: function by which Spark creates the table at an address.
        rows: planned row formats, by topic, which are fitted to the table. None: tasks have already written the rows
            to files, with the columns of `spec`.
        checked: true if tasks have checked the written rows by the table's rules. Not used if `rows` is given.
        keeps_table: true if a table without rows keeps its columns (`QueryRun.keeps_table`).

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

    table = _opened(spark, address, spec, create, keeps_table=keeps_table)
    if isinstance(table, str):
        return table
    description = describe(table)
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
    commits, rules = open_for_commits(spark, address, spec, by, description), rules_for_tasks(description, spec)
    compaction = compaction_of(spark, address, spec, by)
    opened = OpenTable(spec, commits, description, by, reason, rules, rows or {}, grow, compaction)
    return opened.accepts(description, None if rows or checked else NO_RULES) or opened


def _opened(
    spark: SparkSession,
    address: TableAddress,
    spec: TableSpec,
    create: Callable[[TableAddress], None],
    *,
    keeps_table: bool,
) -> DeltaTable | str:
    """Return the table, which is created if it is missing, or a text that says why Spark must write to it.

    `create` is a function by which Spark creates the table at an address. If `keeps_table` is false, a table without
    rows is replaced if its columns differ (`replace_unused`).
    """
    from tiered_stream.delta.commit.deltalake_commit import describe, open_table

    try:
        known = open_table(spec)
        if known is not None and (keeps_table or not replace_unused(spark, address, spec, describe(known))):
            return known
        with _creation if urlsplit(spec.uri).scheme == "file" else nullcontext():
            return open_table(spec) or _create(spark, address, spec, create)
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

    So a user can correct the settings of a failed first run, and run the job again. The table also gets the properties
    and the clustering of the settings. If another writer has changed the table, the table stays as it is. `description`
    is the table's metadata and protocol.

    Returns:
        True if the table was replaced.

    Raises:
        ConfigurationError: the columns or the properties are not allowed.
        TableError: the table's log cannot be read, or the table cannot be replaced.
    """
    # Compared first, because the log is in a store that may be slow.
    if _layout(description) == _layout(_planned_description(spec)) or not TableLog(spec).is_unused():
        return False
    properties = new_table_properties(spark, spec)
    check_new_columns(spec.schema, properties)
    log.info("the table %s has no rows, and gets the columns and properties that the settings ask for now", address)
    if not has_delta_spark(spark):
        from tiered_stream.delta.commit.deltalake_commit import create_table

        check_created_by_deltalake(session_defaults(spark, spec.properties), spec.properties)
        create_table(spec, spec.schema, properties, replaces=True)
        return True
    if CLUSTERING in description.writer_features:  # Delta refuses to remove a column by which it clusters
        cluster_table(spark, address, ())
        if not TableLog(spec).is_unused():  # another driver has landed rows meanwhile
            return False
    replace_columns(spark, address, spec)
    if spec.cluster_by:
        cluster_table(spark, address, spec.cluster_by)
    if lacking := lacking_properties(properties, description.configuration, description.writer_features):
        set_properties(spark, address, lacking)
    return True


def _layout(description: TableDescription) -> tuple[dict[str, Any], tuple[str, ...]]:
    return {field["name"]: field["type"] for field in description.fields}, tuple(description.partition_columns)


def _found_soon(spec: TableSpec) -> DeltaTable | None:
    """Return the table that Spark was asked to create, or None if the table does not appear within 3 s.

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

    If the new table could not get files that tasks write, no table is created, and the reason is returned as a text.

    Raises:
        ConfigurationError: the columns or the settings are not allowed.
        TableError: the table cannot be created, or is not at `spec.uri` afterwards.
    """
    from tiered_stream.delta.commit.deltalake_commit import create_table, describe, open_table

    properties = new_table_properties(spark, spec)
    check_new_columns(spec.schema, properties)
    features = frozenset([CLUSTERING] if spec.cluster_by else [])
    expected = replace(_planned_description(spec), configuration=properties, writer_features=features)
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
        for seconds in (*CREATION_WAITS, None):  # another query may have created the table, and still complete it
            created = open_table(spec)
            if created is None:
                raise
            known = describe(created)
            lacking = lacking_properties(properties, known.configuration, known.writer_features)
            if not lacking and features <= known.writer_features:
                break
            if seconds is None:
                raise
            time.sleep(seconds)
    table = _found_soon(spec)
    if table is None:
        raise TableAccessError(
            f"Spark was asked to make the table {address}, but tasks do not find it at {spec.uri}: either other files "
            "are in its folder, or the session reaches another store than they do"
        )
    return table


def _why_session_needs_spark(spark: SparkSession, spec: TableSpec) -> str | None:
    """Return a line that says why the session needs Spark's Delta sink to write the table, or None if it does not.

    The sink is needed if deltalake is not installed, or if the session has a setting that only the sink follows. For a
    table with key columns, settings do not count.
    """
    if find_spec("deltalake") is None:
        return NO_DELTALAKE
    return None if spec.keys else why_not_in_session(spark, Handling.SPARK_LANE)


def _planned_description(spec: TableSpec) -> TableDescription:
    """Return the columns and partition columns of the planned rows as a table's description."""
    partition_columns = (spec.day_column,) if spec.day_column else ()
    return TableDescription(tuple(spec.schema.jsonValue()["fields"]), partition_columns)


def _check_widening(address: TableAddress, spec: TableSpec, description: TableDescription) -> None:
    """Raise ConfigurationError if `ingest.schemaEvolution` is `widen`, but the table does not allow wider columns."""
    is_enabled = description.configuration.get(TYPE_WIDENING, "").lower() == "true"
    if spec.rows.schema_evolution is Evolution.WIDEN and not is_enabled:
        raise ConfigurationError(
            f"{SCHEMA_EVOLUTION.name} is {Evolution.WIDEN}, but columns of the table {address} cannot become wider: "
            f"ALTER TABLE {address.sql_name} SET TBLPROPERTIES ('{TYPE_WIDENING}' = 'true'), where all of its "
            f"readers know that feature of Delta; or set {SCHEMA_EVOLUTION.name}={Evolution.ADD}"
        )


# Schema evolution: commits that add columns and nested fields to a table, or widen columns, before rows are committed.
#
# New columns are null in rows of older files. If two queries need the same new column, only the first query adds it.


def growth_of(spark: SparkSession, address: TableAddress, spec: TableSpec, by: str) -> Grow | None:
    """Return a function that adds columns to the table, and widens columns, as `ingest.schemaEvolution` allows.

    The result is None if the setting allows neither. The library `by`, which commits, adds columns. Spark widens
    columns, whichever library commits. The function raises TableError if the table refuses the columns.
    """
    evolution = spec.rows.schema_evolution

    def grow(fields: Sequence[Mapping[str, Any]], schema: StructType) -> bool:
        table = struct_type(fields)
        paths = list(_missing_or_leaf_fields(table, schema, ()))
        missing = [(path, kind) for path, old, kind in paths if old is None]
        widens = evolution is Evolution.WIDEN
        wider = [(path, kind) for path, old, kind in paths if widens and old is not None and is_wider(kind, old)]
        if missing:
            _check_names(address, missing)
            log.info("%s: new columns: %s", address, _names(missing))
            _add(missing, schema)
        if wider:
            log.info("%s: wider columns: %s", address, _names(wider))
            with spark_errors(str(address), "changed"):
                for path, kind in wider:
                    spark.sql(f"ALTER TABLE {address.sql_name} ALTER COLUMN {sql_name(path)} TYPE {sql_type(kind)}")
        return bool(missing or wider)

    def _add(missing: Sequence[_TypedPath], schema: StructType) -> None:
        if by == COMMIT_BY_SPARK:
            columns = ", ".join(f"{sql_name(path)} {sql_type(kind)}" for path, kind in missing)
            with spark_errors(str(address), "changed"):
                spark.sql(f"ALTER TABLE {address.sql_name} ADD COLUMNS ({columns})")
        else:
            from tiered_stream.delta.commit.deltalake_commit import add_columns

            tops = {path[0].lower() for path, _ in missing}
            added = StructType([field for field in schema if field.name.lower() in tops])
            add_columns(spec, added, lock_for_deltalake(spark, address, spec))

    return None if evolution is Evolution.NONE else grow


def _check_names(address: TableAddress, missing: Sequence[_TypedPath]) -> None:
    """Raise TableError if Delta does not allow one of the new fields `missing`; deltalake would add any field."""
    try:
        for path, kind in missing:
            check_new_columns(StructType().add(path[-1], kind), path=".".join(path[:-1]))
    except ConfigurationError as error:
        raise TableError(f"the table {address} cannot be changed: {error}") from error


def _missing_or_leaf_fields(
    table: DataType, schema: DataType, path: FieldPath
) -> Iterator[tuple[FieldPath, DataType | None, DataType]]:
    """Yield path, old type and new type of fields of `schema` that `table` lacks, and of leaf fields that both have.

    The old type is the field's type in `table`, or None if `table` lacks the field. The new type is the field's type in
    `schema`. A leaf field has no fields within it. In a path, `element` stands for the elements of a list, and `value`
    for the values of a map, as in Delta. Fields within a missing field are not yielded.
    """
    match table, schema:
        case StructType(), StructType():
            known = {field.name.lower(): field for field in table}
            for field in schema:
                if (old := known.get(field.name.lower())) is None:
                    yield (*path, field.name), None, field.dataType
                else:
                    yield from _missing_or_leaf_fields(old.dataType, field.dataType, (*path, old.name))
        case ArrayType(), ArrayType():
            yield from _missing_or_leaf_fields(table.elementType, schema.elementType, (*path, "element"))
        case MapType(), MapType():
            yield from _missing_or_leaf_fields(table.valueType, schema.valueType, (*path, "value"))
        case (StructType() | ArrayType() | MapType(), _) | (_, StructType() | ArrayType() | MapType()):
            pass
        case _:
            yield path, table, schema


def _names(fields: Sequence[_TypedPath]) -> str:
    return ", ".join(".".join(path) for path, _ in fields)
