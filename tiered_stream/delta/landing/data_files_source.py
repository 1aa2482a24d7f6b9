"""Spark data source of the direct lane, in which tasks write the table's files themselves.

For each new query, Spark starts a Python process only to look up the data source. So this module imports little. The
readers, which are needed for planning and writing, are imported in the functions that return them.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from tiered_stream.delta.write.data_files import spark_file_schema

SOURCE = "tiered_stream_files"


class FilesDataSource(DataSource):
    """Spark data source whose tasks write data files of Delta tables, and return rows that name the files.

    Only queries of the package `landing` use this source, because only these queries commit the files.
    """

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> StructType:
        return spark_file_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        from tiered_stream.delta.landing.data_files_readers import FilesBatchReader

        return FilesBatchReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from tiered_stream.delta.landing.data_files_readers import FilesReader

        return FilesReader(self.options)
