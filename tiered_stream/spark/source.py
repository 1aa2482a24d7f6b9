"""Data source `tiered_stream` for Spark, with its batch reader and its stream reader.

This module only implements Spark's interfaces; other packages do the work. Planning runs in one Python process of the
driver. Reading runs in the executors' workers, which get the pickled reader with its options. Modules for planning and
for reading are imported when they are needed, so that Spark's lookup of the source stays fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql import datasource
from pyspark.sql.types import ArrayType, StructType

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.given_options import GivenOptions
from tiered_stream.options.parsing import Options, check_for_any_query, parse_options
from tiered_stream.options.remote_options import COLUMNS, FILTER_PUSHDOWN, SETTINGS_FILE
from tiered_stream.options.settings_files import naming_lines
from tiered_stream.process.logs import show_log
from tiered_stream.spark.split_partition import SplitPartition, read_partition
from tiered_stream.spark.stream_reader import StreamReader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from tiered_stream.plan.pruning import Pruning

_CATALOG_OPTIONS = {"path", "serialization.format"}
"""Options that Spark itself adds for a table of its catalog."""

_HEADER = StructType().add("key", "string").add("value", "binary")


def spark_schema(include_headers: bool, columns: Sequence[str] | None = None) -> StructType:
    """Return the schema of Spark's `kafka` source, with `headers` last if `include_headers` is True.

    If `columns` is not None, the schema has only these columns, in the order of `columns`.
    """
    schema = StructType().add("key", "binary").add("value", "binary").add("topic", "string").add("partition", "integer")
    schema.add("offset", "long").add("timestamp", "timestamp").add("timestampType", "integer")
    if include_headers:
        schema.add("headers", ArrayType(_HEADER))
    return schema if columns is None else StructType([schema[name] for name in columns])


class TieredStreamDataSource(datasource.DataSource):
    """Spark data source like `kafka` that reads tiered segments from object storage (KIP-405, KIP-1248, KIP-1254)."""

    @classmethod
    def name(cls) -> str:
        return "tiered_stream"

    def schema(self) -> StructType:
        with naming_lines(self.options.get(SETTINGS_FILE.name)):
            if self.options.keys() - _CATALOG_OPTIONS:
                check_for_any_query(self.options)  # at `load()`, like Spark's source; more checks follow in `_parsed`
            columns = GivenOptions(self.options).read(COLUMNS)
        headers = self.options.get("includeHeaders", "false").lower() == "true" or "headers" in (columns or ())
        return spark_schema(headers, columns)

    def reader(self, schema: StructType) -> datasource.DataSourceReader:
        options = self._parsed(schema, streaming=False)
        if options.filter_pushdown and not hasattr(datasource.DataSourceReader, "pushFilters"):
            raise ConfigurationError(
                f"{FILTER_PUSHDOWN.name}=true: this Spark ({pyspark.__version__}) passes no filters to Python "
                "sources; 4.1 and newer do. Remove the option, or limit the query by startingOffsets and endingOffsets"
            )
        return PruningBatchReader(options) if options.filter_pushdown else BatchReader(options)

    def streamReader(self, schema: StructType) -> datasource.DataSourceStreamReader:  # noqa: N802 - Spark's name
        try:
            return StreamReader(self._parsed(schema, streaming=True))
        except ConfigurationError as error:
            return RefusedStreamReader(error)

    def _parsed(self, schema: StructType, *, streaming: bool) -> Options:
        if not self.options.keys() - _CATALOG_OPTIONS:
            raise ConfigurationError(
                "tiered_stream was given no options. Spark drops the options of CREATE TABLE … USING tiered_stream "
                "OPTIONS (…): write CREATE TEMPORARY VIEW … USING tiered_stream OPTIONS (…), which keeps them"
            )
        with naming_lines(self.options.get(SETTINGS_FILE.name)):
            return _checked(schema, parse_options(self.options, streaming=streaming))


def register(spark: SparkSession) -> None:
    """Register `format("tiered_stream")` in the session; calling this again is harmless.

    The driver then plans with the Python that runs this program. Tasks use the Python of an environment that was packed
    by `make dist` and shipped with `--archives`. Without such an environment, tasks use the Python that
    `PYSPARK_PYTHON` names. If `spark.sql.execution.pyspark.python` is set, tasks use that Python.

    Without this call, Spark looks up sources itself, once per driver. If the Python process for this lookup takes
    longer than 10 s to start, the lookup fails for the driver's whole life (Spark: `DataSourceManager`,
    `PythonWorkerFactory`).
    """
    from tiered_stream.spark.executor_python import register_source
    from tiered_stream.spark.report_addresses import reporting_options

    reporting = reporting_options(spark)
    register_source(spark, _reporting(reporting) if reporting else TieredStreamDataSource)


def _reporting(reporting: Mapping[str, str]) -> type[datasource.DataSource]:
    """Return a subclass of the data source that adds `reporting` (from `reporting_options`) to a query's options.

    Spark pickles the class by value, because it is defined inside a function and not found in a module.
    """

    class ReportingDataSource(TieredStreamDataSource):
        def __init__(self, options: dict[str, str]) -> None:
            from tiered_stream.spark.report_addresses import with_reporting

            super().__init__(datasource.CaseInsensitiveDict(with_reporting(reporting, options)))

    return ReportingDataSource


def _checked(schema: StructType, options: Options) -> Options:
    """Return `options` if `schema`, which Spark passes, is the source's own schema.

    In a batch query, `schema` may also have only some of the source's columns. These columns become `columns` of the
    returned options.

    Raises:
        ConfigurationError: `schema` is another schema.
    """
    source_schema = spark_schema(options.include_headers, options.columns)
    if schema == source_schema:
        return options
    if not options.streaming and _selects_columns(schema, source_schema):
        return replace(options, columns=tuple(schema.names))
    fix = "name columns in the option columns" if options.streaming else "name some of its columns, as they are there"
    raise ConfigurationError(
        f"tiered_stream has a schema of its own, {source_schema.simpleString()}; take .schema(…) away, or {fix}"
    )


def _selects_columns(schema: StructType, source_schema: StructType) -> bool:
    fields = {field.name: field for field in source_schema}
    distinct = 0 < len(schema.names) == len(set(schema.names))
    return distinct and all(fields.get(field.name) == field for field in schema)


class BatchReader(datasource.DataSourceReader):
    """Spark's reader of one batch query: plans its input partitions on the driver, and reads one of them in a task."""

    pruning: Pruning | None = None

    def __init__(self, options: Options) -> None:
        self.options = options

    def partitions(self) -> Sequence[datasource.InputPartition]:
        from tiered_stream.locate.log_source import open_log_source
        from tiered_stream.plan.batch import plan_batch

        show_log()
        with naming_lines(self.options.settings_file), closing(open_log_source(self.options)) as source:
            splits = plan_batch(self.options, source, self.pruning)
        # Without any input partition, Spark would make up one and read it.
        return [SplitPartition(split) for split in splits] or [datasource.InputPartition(None)]

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self.options) if isinstance(partition, SplitPartition) else iter(())


class PruningBatchReader(BatchReader):
    """Batch reader that skips topics, partitions, offsets and times that the query's filters exclude."""

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options}  # executors need no planner

    def pushFilters(self, filters: list[datasource.Filter]) -> Iterable[datasource.Filter]:  # noqa: N802 - Spark's name
        """Use the filters for planning, and return all of them, so that Spark evaluates them again on the rows."""
        from tiered_stream.spark.pushdown import pruning_of

        self.pruning = pruning_of(filters).within(self.options.times)
        self.options = replace(self.options, times=self.pruning.times)
        return filters


class RefusedStreamReader(datasource.DataSourceStreamReader):
    """Stream reader for invalid options, which raises their ConfigurationError when Spark first calls it.

    If `streamReader` raised the error, pyspark's runner would try to stop the missing reader, and its
    UnboundLocalError would hide the reason.
    """

    def __init__(self, error: ConfigurationError) -> None:
        self._error = error

    def _refuse(self, *_args: Any, **_named: Any) -> Any:
        raise self._error

    initialOffset = latestOffset = partitions = read = _refuse  # noqa: N815 - Spark's names
