"""Where a table is: a path, or a name that Spark's catalog knows; and the tables that Spark has to make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tiered_stream.errors import ConfigurationError, TableError

_S3_SCHEMES = ("s3", "s3a", "s3n")


@dataclass(frozen=True, slots=True)
class TableAddress:
    """A table as the user named it, by `path` or by `name`, and the URI of its folder: None where it has none yet."""

    path: str | None
    name: str | None
    uri: str | None

    def __str__(self) -> str:
        return self.path or self.name or ""

    @property
    def sql_name(self) -> str:
        """What SQL calls it."""
        return self.name or f"delta.`{spark_path(self)}`"


def find_address(spark: SparkSession, table: str) -> TableAddress:
    """Where a table is: `table` is a path if it has a slash in it.

    Raises:
        ConfigurationError: the catalog has something else than a Delta table by that name.
        TableError: Spark cannot reach the catalog, or the table.
    """
    if "/" in table:
        return TableAddress(table, None, table_uri(spark, table))
    with spark_errors(table, "found"):
        if not spark.catalog.tableExists(table):
            return TableAddress(None, table, None)
        detail = spark.sql(f"DESCRIBE DETAIL {table}").first()
    if detail is None or detail["format"] != "delta":
        raise ConfigurationError(f"{table} is no Delta table: name another one, or a path")
    return TableAddress(None, table, table_uri(spark, detail["location"]))


def table_location(spark: SparkSession, address: TableAddress) -> str:
    """The folder of a table that exists, as Hadoop's file systems have it."""
    if address.path is not None:
        return spark_path(address)
    detail = spark.sql(f"DESCRIBE DETAIL {address.name}").first()
    assert detail is not None
    return str(detail["location"])


def table_uri(spark: SparkSession, path: str) -> str:
    """`file:///folder`, `s3://bucket/prefix`, or what another scheme has."""
    parts = urlsplit(path)
    if parts.scheme in _S3_SCHEMES:
        return parts._replace(scheme="s3").geturl().rstrip("/")
    if parts.scheme == "file":
        return Path(parts.path).as_uri()  # Hadoop takes a path's letters as they are: %20 is no blank
    if parts.scheme:
        return path
    home = spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS", "file:///")
    return Path(path).absolute().as_uri() if home.startswith("file:") else f"{home.rstrip('/')}/{path.lstrip('/')}"


def make_by_spark(
    spark: SparkSession, address: TableAddress, schema: StructType, day_column: str | None, given: Mapping[str, str]
) -> None:
    """Let Spark make the table, unless it is there.

    Raises:
        TableError: Spark cannot.
    """
    partitioned = f" PARTITIONED BY (`{day_column}`)" if day_column else ""
    properties = ", ".join(f"{_quoted(name)} = {_quoted(value)}" for name, value in given.items())
    with_properties = f" TBLPROPERTIES ({properties})" if properties else ""
    with spark_errors(str(address), "made"):
        table = f"{address.sql_name} ({schema.toDDL()}) USING delta"
        spark.sql(f"CREATE TABLE IF NOT EXISTS {table}{partitioned}{with_properties}")


@contextmanager
def spark_errors(table: str, done: str) -> Iterator[None]:
    """Errors of Spark and of what it calls as `TableError`: the table could not be `done`."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        raise TableError(f"the table {table} cannot be {done} by Spark: {first_line(error)}") from error


def first_line(error: Py4JJavaError | PySparkException) -> str:
    """What Spark or Java says, without the JVM's stack."""
    text = error.java_exception.toString() if isinstance(error, Py4JJavaError) else error
    return str(text).strip().partition("\n")[0]


def spark_path(address: TableAddress) -> str:
    """The path of a table that is named by one, as Spark takes it: local ones absolute."""
    uri = address.uri or ""
    local = urlsplit(address.path or "").scheme == "" and uri.startswith("file:")
    return unquote(urlsplit(uri).path) if local else address.path or ""


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
