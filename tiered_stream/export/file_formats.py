"""File formats of an export: Parquet, Arrow IPC, JSON lines and CSV, the last two perhaps compressed.

A format has two parts: `prepare`, which many threads may run at once, and a writer, which only one thread uses.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from tiered_stream.delta.write.parquet_properties import open_parquet
from tiered_stream.errors import ConfigurationError
from tiered_stream.export.row_texts import csv_columns, json_lines

_ENDINGS = {
    "parquet": "parquet", "arrow": "arrow", "ipc": "arrow", "feather": "arrow", "jsonl": "jsonl", "ndjson": "jsonl",
    "csv": "csv",
}  # fmt: skip
"""Format by the last part of a file's name."""
_COMPRESSIONS = {"gz": "gzip", "zst": "zstd"}
FORMATS = "parquet, arrow, jsonl, csv, and jsonl.gz, jsonl.zst, csv.gz, csv.zst"


@dataclass(frozen=True, slots=True)
class FileFormat:
    """Format of an export's files: a `kind` (`parquet`, `arrow`, `jsonl`, `csv`), and perhaps a `compression` of texts.

    `ending` is the end of the files' names, without the first dot.
    """

    kind: str
    compression: str | None
    ending: str

    @classmethod
    def of(cls, ending: str) -> FileFormat:
        """Return the format of files whose names end with a dot and `ending`.

        Raises:
            ConfigurationError: there is no such format.
        """
        first, _, last = ending.lower().rpartition(".")
        compression = _COMPRESSIONS.get(last)
        kind = _ENDINGS.get(first if compression else last)
        if kind is None or (compression and kind not in ("jsonl", "csv")):
            raise ConfigurationError(f"{ending!r:.50} is no format of an export; there are {FORMATS}")
        return cls(kind, compression, ending.lower())

    def prepare(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return `rows` as a writer of this format takes them: as texts for JSON lines and CSV, otherwise unchanged."""
        match self.kind:
            case "jsonl":
                return json_lines(rows)
            case "csv":
                return csv_columns(rows)
        return rows

    def open(self, file: BinaryIO, schema: pa.Schema, group_bytes: int) -> RowWriter:
        """Return a writer of prepared rows to the empty `file`. Its `close` leaves `file` open.

        Args:
            schema: columns of the rows before they are prepared.
            group_bytes: size in memory of the rows that become one row group of Parquet.
        """
        sink = pa.PythonFile(os.fdopen(os.dup(file.fileno()), "wb"), "w")  # pyarrow closes it
        if self.compression:
            sink = pa.CompressedOutputStream(sink, self.compression)
        match self.kind:
            case "parquet":
                return _ParquetRows(sink, schema, group_bytes)
            case "jsonl":
                return _Lines(sink)
            case "csv":
                empty = pa.RecordBatch.from_arrays([pa.nulls(0, column.type) for column in schema], schema=schema)
                return _BatchRows(sink, pyarrow.csv.CSVWriter(sink, csv_columns(empty).schema))
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        return _BatchRows(sink, pa.ipc.new_file(sink, schema, options=options))


class RowWriter(ABC):
    """Writer of prepared batches of rows to one file."""

    def __init__(self, sink: pa.NativeFile) -> None:
        self._sink = sink

    @abstractmethod
    def write(self, rows: pa.RecordBatch) -> None:
        """Write the batch."""

    def close(self) -> None:
        """Write the end of the file."""
        self._sink.close()


class _Lines(RowWriter):
    """Writer of JSON lines, which are the only column of the batches."""

    def write(self, rows: pa.RecordBatch) -> None:
        lines = rows.column(0)
        _, ends, texts = lines.buffers()
        bounds = pa.Array.from_buffers(pa.int32(), len(lines) + 1, [None, ends], offset=lines.offset)
        self._sink.write(texts.slice(bounds[0].as_py(), bounds[-1].as_py() - bounds[0].as_py()))


class _BatchRows(RowWriter):
    """Writer of batches by one of pyarrow's writers."""

    def __init__(self, sink: pa.NativeFile, writer: Any) -> None:
        super().__init__(sink)
        self._writer = writer

    def write(self, rows: pa.RecordBatch) -> None:
        self._writer.write_batch(rows)

    def close(self) -> None:
        self._writer.close()
        super().close()


class _ParquetRows(RowWriter):
    """Writer of Parquet, which collects rows until a row group is large enough."""

    def __init__(self, sink: pa.NativeFile, schema: pa.Schema, group_bytes: int) -> None:
        super().__init__(sink)
        self._empty = pa.RecordBatch.from_pylist([], schema)
        self._writer: pq.ParquetWriter | None = None
        self._group_bytes = group_bytes
        self._rows: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, rows: pa.RecordBatch) -> None:
        self._rows.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= self._group_bytes:
            self._flush()

    def _flush(self) -> None:
        if self._writer is None:
            self._writer = open_parquet(self._sink, (self._rows or [self._empty])[0], "zstd", for_spark=False)
        if self._rows:
            table = pa.Table.from_batches(self._rows)
            self._rows, self._bytes = [], 0
            self._writer.write_table(table, row_group_size=table.num_rows)

    def close(self) -> None:
        self._flush()
        if self._writer is not None:
            self._writer.close()
        super().close()
