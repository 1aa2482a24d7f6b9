"""Reader of rows for parked tables, which are tables that could not be written.

While a table is parked, tasks of the streaming query do not write its rows. When the table is caught up, a batch query
reads these rows again. `ParkedRows` implements `many_tables.ParkedRowsReader`.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import orjson
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tiered_stream.delta.catalog.java_errors import own_error
from tiered_stream.delta.checkpoint.idle_workers import without_idle_limit
from tiered_stream.delta.landing.data_files_source import SOURCE
from tiered_stream.delta.schema.routing import Routing, routing_options
from tiered_stream.delta.settings.ingest_settings import ONLY_TABLE, PARKED_FILE, TRANSACTION
from tiered_stream.delta.write.data_files import DataFile, data_files
from tiered_stream.errors import DataLossError, TableError, TieredStreamError
from tiered_stream.model import PartitionRanges
from tiered_stream.options.given_options import OPTIONS
from tiered_stream.options.offset_json import offsets_to_json
from tiered_stream.options.offset_ranges import ends_of, starting_at
from tiered_stream.options.settings_files import POSITIONS, without
from tiered_stream.options.spark_options import ENDING_OFFSETS
from tiered_stream.options.types import Queries

_OF_STREAMS = [option.name for option in OPTIONS if option.queries is Queries.STREAMING]
_MAX_NAMED = 5


class ParkedRows:
    """Reader of rows for the parked tables of one query, with a temporary file that has the keys of these tables.

    A parked table is one that could not be written, and without which the streaming query continues. The source's
    planner runs in its own process on the driver's machine, and reads the keys from the file. The file is deleted
    together with this object.
    """

    def __init__(self, spark: SparkSession, routing: Routing) -> None:
        self._spark = spark
        self._routing = routing
        folder = tempfile.mkdtemp(prefix="tiered-stream-parked-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._file = Path(folder, "tables.json")
        self.report_parked(())

    @property
    def options(self) -> dict[str, str]:
        """Options to add to the query's source: the path of the file with the keys of parked tables (`PARKED_FILE`).

        Parked tables are tables that could not be written.
        """
        return {PARKED_FILE.name: str(self._file)}

    def report_parked(self, parked: Sequence[str]) -> None:
        self._file.parent.mkdir(exist_ok=True)  # a cleanup of temporary files may have deleted the folder
        written = self._file.with_suffix(".new")
        written.write_bytes(orjson.dumps(list(parked)))
        written.replace(self._file)

    def files(self, key: str, ranges: PartitionRanges, query_id: str, batch_id: int) -> list[DataFile]:
        settings = {
            **without(self._routing.settings, (*POSITIONS, *_OF_STREAMS)),
            **starting_at(ranges),
            ENDING_OFFSETS.name: offsets_to_json(ends_of(ranges)),
            ONLY_TABLE.name: key,
            TRANSACTION.name: f"{batch_id}/{query_id}",
        }
        options = routing_options(replace(self._routing, settings=settings))
        try:
            rows = without_idle_limit(self._spark).read.format(SOURCE).options(**options).load()
            return data_files(rows.collect())
        except PySparkException as error:
            raise _reading_error(str(error), ranges) from error


def _reading_error(text: str, ranges: PartitionRanges) -> TieredStreamError:
    """Return the error for a failed read of the offset ranges; `text` is the text of the exception that Spark raised.

    The error is a DataLossError if the text ends in a DataLossError of the planner or of a task, else a TableError.
    """
    named = sorted(ranges.items())[:_MAX_NAMED]
    described = ", ".join(f"{partition} from {offsets.start} to {offsets.end}" for partition, offsets in named)
    name, why = own_error(text)
    kind = DataLossError if DataLossError.__name__ in name else TableError
    return kind(f"its rows ({described}) cannot be read again: {why}")
