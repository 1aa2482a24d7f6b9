"""Decision whether a table suits the direct lane, and how tasks reach the table's store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import orjson
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tiered_stream.delta.catalog.address import TableAddress
from tiered_stream.delta.commit.committer import Committer, choose_committer, lock_for_making
from tiered_stream.delta.commit.delta_spark_commit import has_delta_spark
from tiered_stream.delta.commit.table_growth import Grow, growth_of
from tiered_stream.delta.requirements import type_widening
from tiered_stream.delta.requirements.lane import (
    TableDescription,
    check_fit,
    left_to_spark,
    table_rules,
    why_not_direct,
)
from tiered_stream.delta.requirements.new_table_properties import is_made_by_spark, new_table_properties
from tiered_stream.delta.requirements.requirement import Handling
from tiered_stream.delta.requirements.s3a import find_storage, session_settings
from tiered_stream.delta.requirements.session_requirements import settings_in_list
from tiered_stream.delta.requirements.table_requirements import CLUSTERING
from tiered_stream.delta.requirements.writer_requirements import asked_by_session
from tiered_stream.delta.schema.row_schema import check_new_columns, fit_to_table, shared_columns
from tiered_stream.delta.settings.ingest_settings import (
    COMMIT,
    COMMIT_BY_SPARK,
    TYPE_WIDENING,
    TableFiles,
    TableStorage,
    table_storage,
)
from tiered_stream.delta.settings.row_settings import SCHEMA_EVOLUTION, evolution_of
from tiered_stream.errors import ConfigurationError, TableAccessError, TableError
from tiered_stream.formats.rows.row_choices import Evolution
from tiered_stream.formats.rows.row_format import RowFormat
from tiered_stream.formats.rows.table_rules import NO_RULES
from tiered_stream.options.given import GivenOptions
from tiered_stream.spark.session import is_connect

if TYPE_CHECKING:
    from deltalake import DeltaTable

_NO_JVM = "with Spark Connect nobody can commit files that tasks have written: that takes the driver's own JVM"
NO_DELTALAKE = "the package deltalake is not installed (pip install 'tiered-stream[delta]')"


@dataclass(frozen=True, slots=True)
class Suitability:
    """Result of the check whether a table suits the direct lane."""

    table: TableDescription | None
    """Description of the table as deltalake reads it; None: deltalake cannot read it, so Spark writes the table."""
    why_not: str | None
    """Reason that keeps the table from the direct lane; None: the table suits the direct lane."""
    committer: Committer | None = None
    rows: Mapping[str, RowFormat] = field(default_factory=dict)
    """Planned row formats, by topic, fitted to the table and with its rules."""
    make: Callable[[], Suitability] | None = None
    """Function that lets Spark create a missing table, and returns the created table's suitability.

    While the table is missing, `table` describes the table as it is expected to become. None: nothing to create.
    """


def reach(spark: SparkSession, uri: str, settings: Mapping[str, str]) -> tuple[TableStorage, str | None]:
    """Return how tasks reach the table's store, and the reason if they cannot (else None).

    Raises:
        ConfigurationError: a storage setting is wrong, or there are no credentials.
        TableAccessError: the region of the table's bucket cannot be found.
    """
    if is_connect(spark):
        return table_storage(settings), _NO_JVM
    parts = urlsplit(uri)
    if parts.scheme == "s3":
        return find_storage(settings, session_settings(spark, parts.netloc))
    return table_storage(settings), None if parts.scheme == "file" else f"{uri} is neither a local folder nor in S3"


def look_at(
    spark: SparkSession,
    address: TableAddress,
    settings: Mapping[str, str],
    files: TableFiles,
    schema: StructType,
    make: Callable[[TableAddress], None],
    rows: Mapping[str, RowFormat] | None = None,
    *,
    checked: bool = False,
) -> Suitability:
    """Open the table and check if it suits the direct lane; create a missing table if deltalake commits to it.

    `rows` are planned row formats, by topic, which are fitted to the table. Without `rows`, the rows are in files
    already and have `schema`; `checked` says whether they were checked by the table's rules.

    Raises:
        ConfigurationError: the rows do not fit into the table, or `ingest.commit` names a library that cannot commit.
        TableAccessError: the table's store refuses access, or does not respond.
    """
    if find_spec("deltalake") is None:
        return Suitability(None, NO_DELTALAKE)
    if (why_not := _left_to_spark_by_session(spark)) is not None:
        return Suitability(None, why_not)
    from tiered_stream.delta.commit.deltalake_commit import describe, make_table, open_table

    look = partial(look_at, spark, address, settings, files, schema, make, rows, checked=checked)
    try:
        table = open_table(files)
        properties = {} if table else new_table_properties(spark, settings)
        found = describe(table) if table else _to_be_made(files, schema, properties)
        committer = choose_committer(spark, GivenOptions(settings).read(COMMIT), files, found)
        if table is None and (why_not := left_to_spark(found) or committer.why_not_direct(found)):
            return Suitability(None, why_not)
        by_spark = table is None and is_made_by_spark(spark, settings, has_delta=has_delta_spark(spark))
        if table is None and committer.by != COMMIT_BY_SPARK and not by_spark:
            table = make_table(files, schema, properties, lock_for_making(spark, files))
            found = describe(table)
    except TableAccessError:
        raise  # the store would refuse Spark too, or Spark would find another table
    except TableError as error:
        return Suitability(None, str(error))
    if rows:
        rows = fitted(rows, found)
        schema = shared_columns(rows.values(), files.day_column)
    grow = growth_of(spark, address, files, committer, evolution_of(settings))
    _check_widening(address, settings, found)
    found = _grown(table, found, grow, schema)
    check_fit(files.uri, found, schema, files.day_column)
    why_not = why_not_direct(found, files.day_column, schema, None if rows or checked else NO_RULES)
    why_not = why_not or committer.why_not_direct(found)
    suits = Suitability(found, why_not, committer, rows or {})
    if table is not None:
        return suits
    return replace(suits, make=partial(_make_and_look, address, files, make, look))


def _left_to_spark_by_session(spark: SparkSession) -> str | None:
    """Return the session's requirement that only the Spark lane meets, in one line; None: there is none.

    Raises:
        ConfigurationError: the session has a requirement that no lane meets.
    """
    asked = list(asked_by_session(settings_in_list(spark)))
    for each in asked:
        if each.requirement.handling is Handling.REFUSED:
            raise ConfigurationError(f"{each.reason}: {each.requirement.note}")
    left = (each.reason for each in asked if each.requirement.handling is Handling.SPARK_LANE)
    return next(left, None)


def _make_and_look(
    address: TableAddress, files: TableFiles, make: Callable[[TableAddress], None], look: Callable[[], Suitability]
) -> Suitability:
    # Spark also writes the version's checksum. Without a checksum Delta's first commit reads the table's whole state.
    make(address)
    made = look()
    if made.make is not None:
        raise TableAccessError(
            f"Spark was asked to make the table {address}, but tasks do not find it at {files.uri}: either other files "
            "are in its folder, or the session reaches another store than they do"
        )
    return made


def _grown(
    table: DeltaTable | None, found: TableDescription, grow: Grow | None, schema: StructType
) -> TableDescription:
    if table is None or grow is None or not grow(found.fields, schema):
        return found
    from tiered_stream.delta.commit.deltalake_commit import describe

    table.update_incremental()
    return describe(table)


def _to_be_made(files: TableFiles, schema: StructType, properties: Mapping[str, str]) -> TableDescription:
    """Return the expected description of a table to create. Raise ConfigurationError if Delta refuses a column."""
    check_new_columns(schema, properties)
    partition_columns = (files.day_column,) if files.day_column else ()
    features = frozenset([CLUSTERING] if files.cluster_by else [])
    return TableDescription(tuple(orjson.loads(schema.json())["fields"]), partition_columns, properties, features)


def fitted(rows: Mapping[str, RowFormat], table: TableDescription) -> dict[str, RowFormat]:
    """Return the row formats, by topic, fitted to the table's types and with the table's rules."""
    rules = table_rules(table)
    return {topic: replace(fit_to_table(how, table.fields), rules=rules) for topic, how in rows.items()}


def _check_widening(address: TableAddress, settings: Mapping[str, str], found: TableDescription) -> None:
    """Raise ConfigurationError if the settings want columns to become wider and the table does not allow it."""
    if evolution_of(settings) is Evolution.WIDEN and not type_widening.is_enabled(found.configuration):
        raise ConfigurationError(
            f"{SCHEMA_EVOLUTION.name} is {Evolution.WIDEN}, but columns of the table {address} cannot become wider: "
            f"ALTER TABLE {address.sql_name} SET TBLPROPERTIES ('{TYPE_WIDENING}' = 'true'), where all of its "
            f"readers know that feature of Delta; or set {SCHEMA_EVOLUTION.name}={Evolution.ADD}"
        )
