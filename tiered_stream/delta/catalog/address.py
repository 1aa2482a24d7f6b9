"""Addresses of tables (a path, or a name in Spark's catalog), and the SQL by which Spark creates and alters tables."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession

from tiered_stream.delta.catalog.java_errors import spark_errors
from tiered_stream.delta.catalog.session_checks import check_table
from tiered_stream.delta.schema.routing import PLAIN, name_parts, quoted_name
from tiered_stream.delta.schema.row_schema import check_new_columns
from tiered_stream.delta.schema.sql_types import sql_columns, sql_name, sql_text
from tiered_stream.delta.settings.ingest_settings import CREATION, TableSpec
from tiered_stream.delta.write.file_systems import normal_path, path_uri, uri_of
from tiered_stream.errors import ConfigurationError, TableError
from tiered_stream.spark.session import copied_session, is_connect

_SESSION_CATALOG = "spark_catalog"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_CREATED_MEANWHILE = (
    "DELTA_PROTOCOL_CHANGED", "DELTA_METADATA_CHANGED", "FileAlreadyExistsException",
    "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION",
)  # fmt: skip
"""Words in Delta's errors for a statement that creates a table while another statement creates the same table.

Delta also raises `DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION` if the table's folder has other files.
"""
CREATION_WAITS = (0.1, 0.2, 0.4, 0.8, 1.5)
"""Seconds to wait after each attempt to create or open a table that another run is just creating."""
_LOG, _STAGED_COMMITS = "_delta_log", "_staged_commits"


@dataclass(frozen=True, slots=True)
class TableAddress:
    """Address of a table: the path or the catalog name that the user gave, and the URI of the table's folder.

    Either `path` or `name` is None. `name` is SQL text, with quotes where a part of the name needs them. `uri` is None
    if the user gave a name that the catalog does not have yet.
    """

    path: str | None
    name: str | None
    uri: str | None
    in_catalog: str = field(default="", compare=False)
    """Path of the table's folder as Spark's catalog has it; empty if it is not known, or if the user gave a path."""

    @property
    def location(self) -> str:
        """Path of the table's folder in the form that Hadoop's file systems accept.

        The path is the one that the user gave, or the one in the catalog. A local path without a scheme becomes
        absolute.
        """
        uri = self.uri or ""
        given = self.path or self.in_catalog or unquote(uri)
        is_local = urlsplit(given).scheme == "" and uri.startswith("file:")
        return unquote(urlsplit(uri).path) if is_local else given

    def __str__(self) -> str:
        return self.path or self.name or ""

    def sql_path(self, spark: SparkSession) -> str:
        """Return SQL text that names the table by its folder `uri`, such as delta.`s3a://lake/orders`.

        Spark understands this text even if its catalog does not have the table.
        """
        return f"delta.{sql_name([unquote(known_scheme(spark, self.uri or ''))])}"

    @property
    def sql_name(self) -> str:
        """SQL text that names the table: `name`, or delta.`path` if the user gave a path."""
        return self.name or f"delta.{sql_name([self.location])}"


def find_address(spark: SparkSession, table: str) -> TableAddress:
    """Return the address of a table; `table` is a path if it contains a slash, otherwise a name in Spark's catalog.

    For a name, the address has the URI of the table's folder, or None if the catalog has no table of this name. For a
    path, the function does not check if the table exists.

    Raises:
        ConfigurationError: the name belongs to something other than a Delta table, or is malformed. Or the path leads
            above its root, or is in an object store or HDFS and has one of the characters `?#%`.
        TableError: Spark cannot reach the catalog or the table, or the catalog cannot have a table of this name.
    """
    if "/" in table:
        return TableAddress(normal_path(table), None, table_uri(spark, table))
    parts = name_parts(table)
    name = quoted_name(parts)
    with spark_errors(name, "found"):
        if not spark.catalog.tableExists(name):
            _check_catalog_takes(spark, parts)
            return TableAddress(None, name, None)
        detail = spark.sql(f"DESCRIBE DETAIL {name}").first()
    if detail is None or detail["format"] != "delta":
        raise ConfigurationError(f"{name} is no Delta table: name another one, or a path")
    return TableAddress(None, name, table_uri(spark, detail["location"]), detail["location"])


def _check_catalog_takes(spark: SparkSession, parts: Sequence[str]) -> None:
    """Raise TableError if a table's name is in Spark's own catalog, which does not allow the name.

    `parts` are the parts of the name between its dots. Spark's own catalog `spark_catalog` allows ASCII letters, digits
    and _ (Spark: `SessionCatalog.validateName`).
    """
    catalog = parts[0] if len(parts) > 2 else spark.catalog.currentCatalog()
    if catalog.lower() == _SESSION_CATALOG and not PLAIN.fullmatch(parts[-1]):
        raise TableError(
            f"Spark's catalog {_SESSION_CATALOG} has no tables with names such as {parts[-1]}, only with letters, "
            "digits and _. Name another table, for one topic by ingest.topic.NAME.table, or name tables by a path"
        )


def table_uri(spark: SparkSession, path: str) -> str:
    """Return a path's URI: `file:///folder`, `s3://bucket/prefix`, or the URI of another scheme.

    A path without a scheme is in Hadoop's default file system (`fs.defaultFS`). With Spark Connect, a path without a
    scheme is returned unchanged.

    Raises:
        ConfigurationError: the path leads above its root, or is in an object store or HDFS and has one of the
            characters `?#%`. Or it is relative, and the default file system is not local.
    """
    if is_connect(spark):
        return uri_of(path) or path  # only the server knows the file system of a path without a scheme
    return path_uri(path, lambda: spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS", "file:///"))


def create_by_spark(spark: SparkSession, address: TableAddress, spec: TableSpec) -> None:
    """Let Spark create the table at `address` if it does not exist (`CREATE TABLE IF NOT EXISTS`).

    `spec` has the table's columns, its partition column or clustering columns, and its properties.

    Raises:
        ConfigurationError: the session lacks Delta or the table's file system, or Delta refuses a field of the schema.
        TableError: Spark cannot create the table.
    """
    check_table(spark, address.path)
    if address.path is not None and not is_connect(spark):
        with spark_errors(str(address), "made"):
            _remove_unfinished(spark, address.location)
    layout = f" PARTITIONED BY ({sql_name([spec.day_column])})" if spec.day_column else ""
    layout = f" CLUSTER BY ({_columns(spec.cluster_by)})" if spec.cluster_by else layout
    with_properties = f" TBLPROPERTIES ({_properties(spec.properties)})" if spec.properties else ""
    table = f"{address.sql_name} ({sql_columns(spec.schema)}) USING delta"
    try:
        _run_creation(spark, address, f"CREATE TABLE IF NOT EXISTS {table}{layout}{with_properties}")
    except TableError:
        check_new_columns(spec.schema, spec.properties)  # raises a clearer error if Delta refuses a field
        raise


def replace_columns(spark: SparkSession, address: TableAddress, spec: TableSpec) -> None:
    """Give a table without rows the columns and the partition column of `spec`, in one commit.

    Delta refuses the commit if another writer commits rows meanwhile. (`CREATE OR REPLACE TABLE` cannot replace a table
    that is named by its path.)

    Raises:
        TableError: Spark cannot replace the columns.
    """
    with spark_errors(str(address), "created again"):
        writer = spark.createDataFrame([], spec.schema).write.format("delta").mode("overwrite")
        if spec.day_column:
            writer = writer.partitionBy(spec.day_column)
        writer = writer.option("overwriteSchema", "true").option("userMetadata", CREATION)
        writer.save(known_scheme(spark, address.location))


def _run_creation(spark: SparkSession, address: TableAddress, statement: str) -> None:
    """Run the SQL `statement`, which creates the table; run it again if another run is just creating the table.

    Raises:
        TableError: Spark cannot create the table, even after the waits `CREATION_WAITS`.
    """
    session = _marking(spark)
    for seconds in (*CREATION_WAITS, None):
        try:
            with spark_errors(str(address), "made"):
                session.sql(statement)
            return
        except TableError as error:
            if seconds is None or not any(sign in str(error) for sign in _CREATED_MEANWHILE):
                raise
        time.sleep(seconds)


def _marking(spark: SparkSession) -> SparkSession:
    """Return a copy of the session whose Delta commits have the user metadata `CREATION`.

    With Spark Connect, or if the user has set other user metadata, the session itself is returned.
    """
    if is_connect(spark) or spark.conf.get(USER_METADATA, None) is not None:
        return spark
    return copied_session(spark, {USER_METADATA: CREATION})


def _remove_unfinished(spark: SparkSession, folder: str) -> None:
    """Delete the folder's `_delta_log` if it has no commit, because a driver died while it created the table.

    Without the deletion, Delta would take the folder for an existing table, and create none. Nothing is deleted if the
    folder has any other file. Only temporary files and empty folders are deleted, so a commit that another driver makes
    meanwhile is kept.
    """
    jvm: Any = spark._jvm
    new_path = jvm.org.apache.hadoop.fs.Path
    table, log = new_path(folder), new_path(folder, _LOG)
    files = table.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())

    def names(place: Any) -> list[str]:
        return [status.getPath().getName() for status in files.listStatus(place)] if files.exists(place) else []

    temporary = all(name.startswith(".") or name == _STAGED_COMMITS for name in names(log))
    if names(table) != [_LOG] or not temporary or names(new_path(log, _STAGED_COMMITS)):
        return
    for name in names(log):
        files.delete(new_path(log, name), False)
    files.delete(log, False)


def set_properties(spark: SparkSession, address: TableAddress, properties: Mapping[str, str]) -> None:
    """Set properties of a table (`ALTER TABLE … SET TBLPROPERTIES`).

    The SQL names the table by its folder, because the catalog has no entry of a table that is being created.

    Raises:
        TableError: Spark cannot set the properties.
    """
    with spark_errors(str(address), "changed"):
        _marking(spark).sql(f"ALTER TABLE {address.sql_path(spark)} SET TBLPROPERTIES ({_properties(properties)})")


def cluster_table(spark: SparkSession, address: TableAddress, columns: Sequence[str]) -> None:
    """Set a table's clustering columns (`ALTER TABLE … CLUSTER BY`); without `columns`, the table has none.

    The SQL names the table by its folder, because the catalog has no entry of a table that is being created.

    Raises:
        TableError: Spark cannot change the clustering.
    """
    layout = f"({_columns(columns)})" if columns else "NONE"
    with spark_errors(str(address), "clustered"):
        _marking(spark).sql(f"ALTER TABLE {address.sql_path(spark)} CLUSTER BY {layout}")


def register_table(spark: SparkSession, address: TableAddress) -> None:
    """Register the folder `address.uri` in Spark's catalog as the table `address.name`.

    If the catalog already has a table of this name, that table is kept.

    Raises:
        TableError: Spark cannot register the table.
    """
    with spark_errors(str(address), "entered into the catalog"):
        folder = unquote(known_scheme(spark, address.uri or ""))
        spark.sql(f"CREATE TABLE IF NOT EXISTS {address.name} USING delta LOCATION {sql_text(folder)}")


def known_scheme(spark: SparkSession, path: str) -> str:
    """Return the path with `s3a://` in place of `s3://` or `s3n://`.

    The path is returned unchanged if it has another scheme, or if the session has a file system for its scheme
    (`fs.s3.impl`, `fs.s3n.impl`).
    """
    scheme, _, folder = path.partition("://")
    hadoop = spark._jsparkSession.sessionState().newHadoopConf()
    return f"s3a://{folder}" if scheme in ("s3", "s3n") and hadoop.get(f"fs.{scheme}.impl") is None else path


def _columns(names: Sequence[str]) -> str:
    """Return the column names as a SQL list with quotes; a dot in a name separates a column from its nested field."""
    return ", ".join(sql_name(name.split(".")) for name in names)


def _properties(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{sql_text(name)} = {sql_text(value)}" for name, value in properties.items())
