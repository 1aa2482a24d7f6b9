"""Writer of record batches to one table's Parquet files, on an executor, in one pass and with bounded memory.

Rows wait in memory until there are enough for a row group. Rows of several days wait until there are enough for
`SEVERAL_DAYS` row groups. When a file has reached its target size, the file is closed, and the next one begins. Files
are invisible to readers until the driver commits them. A failed task may leave files behind, which VACUUM removes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from tiered_stream.delta.schema.row_schema import spark_columns
from tiered_stream.delta.settings.ingest_settings import BUCKET_SCHEMES, TableSpec
from tiered_stream.delta.write.data_files import DataFile, partition_folder
from tiered_stream.delta.write.data_folder import CloudUploads, DataFolder, LocalFolder, UploadThreads
from tiered_stream.delta.write.file_statistics import FileStatistics
from tiered_stream.delta.write.latest_rows import STAGED_FOLDER, LatestRows, placeholder_columns, without_staged
from tiered_stream.delta.write.parquet_properties import FILE_SUFFIXES, file_schema, open_parquet, with_topic_dictionary
from tiered_stream.delta.write.waiting_rows import NULL_DAY, DayRows, WaitingRows
from tiered_stream.errors import TableError
from tiered_stream.formats.columns.conform import is_grown
from tiered_stream.model import TopicPartition
from tiered_stream.storage.throttle import Pace

ROW_GROUP_BYTES = 16 << 20
"""Size of waiting rows in Arrow's memory, in bytes, at which they are written as a row group.

Larger row groups save no time, and the memory for them costs time.
"""
MAX_OPEN_FILES = 16
"""Maximum number of open files in a task.

Before one more file opens, the file that got no rows for longest is closed.
"""


class TableWriter:
    """Writer of one task's data files for one table.

    If the table is partitioned by day, each day has at most one open file; otherwise the table has at most one.
    """

    def __init__(self, spec: TableSpec, task: int, threads: UploadThreads, pace: Pace = lambda size: None) -> None:
        """Open the table's folder.

        Args:
            task: number of the task, which is part of the files' names.
            threads: the task's upload threads, which all its tables share.
            pace: called with the size in bytes of each row group that was written; it may wait, to limit the rate.
        """
        self._spec = spec
        self._task = task
        self._pace = pace
        with _named_errors(spec):
            self._folder = open_data_folder(spec, threads)
        self._file_bytes = min(spec.target_bytes, self._folder.max_bytes)
        self._row_group_bytes = min(ROW_GROUP_BYTES, spec.target_bytes)
        self._waiting = (
            LatestRows(spec.keys, spec.order_by, keeps_deletes=bool(spec.own_columns))
            if spec.keys
            else WaitingRows(by_day=spec.day_column is not None)
        )
        self._open: dict[str | None, _OpenFile] = {}
        self._finished: list[DataFile] = []
        self._files_begun = 0
        self._schema: pa.Schema | None = None

    @property
    def open_files(self) -> int:
        return len(self._open)

    @property
    def held_bytes(self) -> int:
        """Number of bytes in memory of rows that wait to be written, and of open files that are kept in memory."""
        return self._waiting.bytes + sum(file.bytes_in_memory for file in self._open.values())

    def add(self, partition: TopicPartition, batch: pa.RecordBatch) -> None:
        """Add rows of one partition: at least one row, in offset order.

        If the rows have another schema than the rows before them, or Kafka's columns elsewhere, all open files are
        closed first. Raises TableError if the table's folder cannot be written to.
        """
        if self._schema is None or not self._schema.equals(batch.schema, check_metadata=True):
            self.flush()
            self._schema = batch.schema
        self._waiting.add(partition, batch)
        self._write(self._waiting.overflow(self._row_group_bytes))

    def flush(self) -> None:
        """Write all waiting rows to files, and close every file.

        Raises TableError if the table's folder cannot be written to.
        """
        self._write(self._waiting.take())
        with _named_errors(self._spec):
            for day in list(self._open):
                self._finish(day)

    def finish(self) -> list[DataFile]:
        """Write all waiting rows, close every file, and wait until all files are in the table's folder.

        Return the descriptions of all files of this writer, also of files that were closed before.
        """
        self.flush()
        with _named_errors(self._spec):
            self._folder.wait()
        return self._finished

    def close(self) -> None:
        """Discard open files, which exist only if the task or the table has failed, and free the writer's resources.

        The upload threads keep running.
        """
        for file in self._open.values():
            with suppress(OSError):  # nobody needs the rest of the file
                file.close()
        self._folder.close()

    def _write(self, days: list[DayRows]) -> None:
        """Append rows of several days to files, and leave at most `MAX_OPEN_FILES` files open.

        Days with an open file come first. The other days keep their order, in which the days with the most rows come
        first.
        """
        with _named_errors(self._spec):
            for number, rows in enumerate(sorted(days, key=lambda of_day: of_day.day not in self._open)):
                self._append(rows)
                if number + 1 >= MAX_OPEN_FILES:
                    self._finish(rows.day)

    def _append(self, rows: DayRows) -> None:
        for partition, batch in rows.batches:
            file = self._open.pop(rows.day, None) or self._begin(rows.day, batch.schema)
            # Pop and insert keep the dict ordered: its first file is always the one that got no rows for longest.
            self._open[rows.day] = file
            file.append(partition, batch)
            if file.waiting_bytes >= self._row_group_bytes:
                self._write_row_group(rows.day)
        if rows.day in self._open:
            self._write_row_group(rows.day)

    def _write_row_group(self, day: str | None) -> None:
        if self._open[day].write_row_group() >= self._file_bytes:
            self._finish(day)

    def _begin(self, day: str | None, schema: pa.Schema) -> _OpenFile:
        if len(self._open) >= MAX_OPEN_FILES:
            self._finish(next(iter(self._open)))
        suffix = FILE_SUFFIXES[self._spec.codec]
        path = f"part-{self._task:05d}-{uuid4()}-c{self._files_begun:03d}{suffix}"
        self._files_begun += 1
        if self._spec.keys:
            path = f"{STAGED_FOLDER}/{path}"
        if self._spec.day_column is not None:
            path = f"{partition_folder(self._spec.day_column, day or NULL_DAY)}/{path}"
        return _OpenFile(self._folder, path, day, schema, self._spec, self._pace)

    def _finish(self, day: str | None) -> None:
        if day in self._open:
            self._finished.append(self._open[day].finish())
            del self._open[day]  # after an error, `close` discards the file


class _OpenFile:
    """Parquet file that is being written; its rows wait in memory until they are written as a row group."""

    def __init__(
        self, folder: DataFolder, path: str, day: str | None, schema: pa.Schema, spec: TableSpec, pace: Pace
    ) -> None:
        self._spec = spec
        self._folder = folder
        self._path = path
        self._day = day
        self._rows = schema
        self._schema = file_schema(schema)
        self._statistics = FileStatistics()
        self._placeholders: set[str] = set()
        self._waiting: list[pa.RecordBatch] = []
        self.waiting_bytes = 0
        self._sink = folder.open(path)
        self._parquet: pq.ParquetWriter | None = None
        self._pace = pace
        self._paced = 0

    @property
    def bytes_in_memory(self) -> int:
        return self.waiting_bytes + self._folder.waiting_bytes(self._sink)

    def append(self, partition: TopicPartition, batch: pa.RecordBatch) -> None:
        self._statistics.add(partition, batch)
        self._placeholders |= placeholder_columns(batch)
        self._waiting.append(with_topic_dictionary(batch, partition.topic, self._schema))
        self.waiting_bytes += batch.nbytes

    def write_row_group(self) -> int:
        """Write the waiting rows, if there are any, as a row group; return the bytes written to the file so far."""
        if not self._waiting:
            return int(self._sink.tell())
        if self._parquet is None:
            self._parquet = open_parquet(self._sink, self._waiting[0], self._spec.codec)
        rows = pa.Table.from_batches(self._waiting, self._schema)
        self._waiting.clear()
        self.waiting_bytes = 0
        self._parquet.write_table(rows, row_group_size=rows.num_rows)
        self._folder.grown(self._sink)
        size = int(self._sink.tell())
        # A row group's compressed size is known only after it is written, so the wait delays the next row group.
        self._pace(size - self._paced)
        self._paced = size
        return size

    def finish(self) -> DataFile:
        assert self._parquet is not None, "a file is begun with rows"
        self._parquet.close()
        size = int(self._sink.tell())
        self._folder.finish(self._path, self._sink)
        return DataFile(
            self._spec.uri,
            self._path,
            size,
            modification_time=time.time_ns() // 1_000_000,
            day=self._day,
            records=self._statistics.records,
            stats=self._statistics.to_json(),
            offsets=self._statistics.offsets,
            schema=spark_columns(without_staged(self._rows), None).json() if is_grown(self._rows) else None,
            placeholders=sorted(self._placeholders),
        )

    def close(self) -> None:
        """Discard the file, which stays without a footer."""
        if self._parquet is not None:
            self._parquet.is_open = False  # otherwise pyarrow writes the footer when it frees the writer
        self._sink.close()


@contextmanager
def _named_errors(spec: TableSpec) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TableError(f"the table's folder {spec.uri} cannot be written to: {error}") from error


# Choice of the way to write to a table's folder: as a local folder, or by uploads to an object store or to HDFS.


def open_data_folder(spec: TableSpec, threads: UploadThreads) -> DataFolder:
    """Return the table's folder (`spec.uri`), to which one task writes files.

    If the folder is in an object store, `threads` upload its files. A local folder does not use them.
    """
    scheme = urlsplit(spec.uri).scheme
    if scheme == "s3":
        from tiered_stream.delta.write.s3_upload import S3Uploads

        return S3Uploads(spec, threads)
    if scheme in BUCKET_SCHEMES:
        return CloudUploads(spec, threads)
    return LocalFolder(Path(unquote(urlsplit(spec.uri).path)))
