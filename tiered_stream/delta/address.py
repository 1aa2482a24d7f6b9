"""Where a table is: a path, or a name that Spark's catalog knows; and the tables that Spark has to make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tiered_stream.delta.file_systems import local_uri, normal_path, uri_of
from tiered_stream.delta.java_errors import spark_errors
from tiered_stream.delta.row_schema import check_new_columns
from tiered_stream.delta.session_checks import check_table
from tiered_stream.delta.sql_types import sql_columns
from tiered_stream.errors import ConfigurationError, TableError
from tiered_stream.spark_session import is_connect


@dataclass(frozen=True, slots=True)
class TableAddress:
    """A table as the user named it, by `path` or by `name`, and the URI of its folder: None where it has none yet."""

    path: str | None
    name: str | None
    uri: str | None

    def __str__(self) -> str:
        return self.path or self.name or ""

    def sql_path(self, spark: SparkSession) -> str:
        """What SQL calls its folder, whether or not the catalog has the table."""
        place = unquote(known_scheme(spark, self.uri or "")).replace("`", "``")
        return f"delta.`{place}`"

    @property
    def sql_name(self) -> str:
        """What SQL calls it."""
        return self.name or f"delta.`{spark_path(self)}`"


def find_address(spark: SparkSession, table: str) -> TableAddress:
    """Where a table is: `table` is a path if it has a slash in it.

    Raises:
        ConfigurationError: the catalog has something else than a Delta table by that name, or as `normal_path`.
        TableError: Spark cannot reach the catalog, or the table.
    """
    if "/" in table:
        return path_address(table, table_uri(spark, table))
    with spark_errors(table, "found"):
        if not spark.catalog.tableExists(table):
            return TableAddress(None, table, None)
        detail = spark.sql(f"DESCRIBE DETAIL {table}").first()
    if detail is None or detail["format"] != "delta":
        raise ConfigurationError(f"{table} is no Delta table: name another one, or a path")
    return TableAddress(None, table, table_uri(spark, detail["location"]))


def path_address(path: str, uri: str) -> TableAddress:
    """Return the address of a table that is named by a path; errors as `normal_path`."""
    return TableAddress(normal_path(path), None, uri)


def table_location(spark: SparkSession, address: TableAddress) -> str:
    """The folder of a table that exists, as Hadoop's file systems have it."""
    if address.path is not None:
        return spark_path(address)
    detail = spark.sql(f"DESCRIBE DETAIL {address.name}").first()
    assert detail is not None
    return str(detail["location"])


def table_uri(spark: SparkSession, path: str) -> str:
    """`file:///folder`, `s3://bucket/prefix`, or what another scheme has."""
    if is_connect(spark):
        return uri_of(path) or path  # what it stands for, the server knows
    return path_uri(path, lambda: spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS", "file:///"))


def path_uri(path: str, default_fs: Callable[[], str]) -> str:
    """As `table_uri`; `default_fs` gives Hadoop's `fs.defaultFS`, where the path has no scheme.

    Raises:
        ConfigurationError: as `normal_path`.
    """
    if (uri := uri_of(path)) is not None:
        return uri
    home = default_fs()
    return local_uri(path) if home.startswith("file:") else normal_path(f"{home.rstrip('/')}/{path.lstrip('/')}")


def make_by_spark(
    spark: SparkSession,
    address: TableAddress,
    schema: StructType,
    day_column: str | None,
    given: Mapping[str, str],
    cluster_by: Sequence[str] = (),
) -> None:
    """Let Spark make the table, unless it is there.

    Raises:
        ConfigurationError: the session lacks what it takes, or as `check_new_columns`.
        TableError: Spark cannot.
    """
    check_table(spark, address.path)
    layout = f" PARTITIONED BY ({_quoted_name(day_column)})" if day_column else ""
    layout = f" CLUSTER BY ({_columns(cluster_by)})" if cluster_by else layout
    with_properties = f" TBLPROPERTIES ({_properties(given)})" if given else ""
    table = f"{address.sql_name} ({sql_columns(schema)}) USING delta"
    try:
        with spark_errors(str(address), "made"):
            spark.sql(f"CREATE TABLE IF NOT EXISTS {table}{layout}{with_properties}")
    except TableError:
        check_new_columns(schema, given)  # says more of what Delta refuses
        raise


def set_properties(spark: SparkSession, address: TableAddress, given: Mapping[str, str]) -> None:
    """Give properties to a table that is in its folder, whether or not the catalog has it yet.

    Raises:
        TableError: Spark cannot.
    """
    with spark_errors(str(address), "changed"):
        spark.sql(f"ALTER TABLE {address.sql_path(spark)} SET TBLPROPERTIES ({_properties(given)})")


def cluster_table(spark: SparkSession, address: TableAddress, columns: Sequence[str]) -> None:
    """Let `OPTIMIZE` cluster a table that is in its folder, whether or not the catalog has it yet.

    Raises:
        TableError: Spark cannot.
    """
    with spark_errors(str(address), "clustered"):
        spark.sql(f"ALTER TABLE {address.sql_path(spark)} CLUSTER BY ({_columns(columns)})")


def register_table(spark: SparkSession, address: TableAddress) -> None:
    """Let the catalog have the table in the folder by its name, unless it has.

    Raises:
        TableError: Spark cannot, or has another by that name.
    """
    with spark_errors(str(address), "entered into the catalog"):
        place = unquote(known_scheme(spark, address.uri or ""))
        spark.sql(f"CREATE TABLE IF NOT EXISTS {address.name} USING delta LOCATION {_quoted(place)}")


def known_scheme(spark: SparkSession, path: str) -> str:
    """`s3://` and `s3n://` as `s3a://`, unless the session has a file system for them."""
    scheme, _, place = path.partition("://")
    hadoop = spark._jsparkSession.sessionState().newHadoopConf()
    return f"s3a://{place}" if scheme in ("s3", "s3n") and hadoop.get(f"fs.{scheme}.impl") is None else path


def spark_path(address: TableAddress) -> str:
    """The path of a table that is named by one, as Spark takes it: local ones absolute."""
    uri = address.uri or ""
    local = urlsplit(address.path or "").scheme == "" and uri.startswith("file:")
    return unquote(urlsplit(uri).path) if local else address.path or ""


def _columns(names: Sequence[str]) -> str:
    """As SQL has them; a dot leads to a field of a column."""
    return ", ".join(".".join(map(_quoted_name, name.split("."))) for name in names)


def _quoted_name(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def _properties(given: Mapping[str, str]) -> str:
    return ", ".join(f"{_quoted(name)} = {_quoted(value)}" for name, value in given.items())


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
