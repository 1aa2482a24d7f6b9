"""File formats of an export: Parquet, Arrow IPC, JSON lines and CSV. JSON lines and CSV can be compressed.

A format has two parts: `prepare`, which many threads can run at once, and `write`, which one thread runs for a file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
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
"""Kind of format, by the ending of a file's name."""
_COMPRESSIONS = {"gz": "gzip", "zst": "zstd"}
FORMATS = "parquet, arrow, jsonl, csv, and jsonl.gz, jsonl.zst, csv.gz, csv.zst"


@dataclass(frozen=True, slots=True)
class FileFormat:
    """Format of an export's files: its `kind` (`parquet`, `arrow`, `jsonl` or `csv`) and its `compression`.

    `compression` is `gzip`, `zstd` or None, and is always None for Parquet and Arrow. `ending` is the ending of the
    files' names, such as `csv.gz`.
    """

    kind: str
    compression: str | None
    ending: str

    @classmethod
    def of(cls, ending: str) -> FileFormat:
        """Return the format of files whose names end with a dot and `ending`, such as `csv.gz`.

        Raises:
            ConfigurationError: no format has this ending.
        """
        first, _, last = ending.lower().rpartition(".")
        compression = _COMPRESSIONS.get(last)
        kind = _ENDINGS.get(first if compression else last)
        if kind is None or (compression and kind not in ("jsonl", "csv")):
            raise ConfigurationError(f"{ending!r:.50} is no format of an export; there are {FORMATS}")
        return cls(kind, compression, ending.lower())

    def prepare(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Convert `rows` to the form that `write` expects: to texts for JSON lines and CSV, otherwise unchanged."""
        match self.kind:
            case "jsonl":
                return json_lines(rows)
            case "csv":
                return csv_columns(rows)
        return rows

    def write(self, file: BinaryIO, schema: pa.Schema, rows: Iterable[pa.RecordBatch], group_bytes: int) -> None:
        """Write batches of rows to the empty `file`, which stays open.

        Args:
            schema: columns of the rows before `prepare`.
            rows: batches that `prepare` has returned.
            group_bytes: minimum size in memory of the rows that become one row group of Parquet, in bytes. The last row
                group may be smaller.
        """
        sink = pa.PythonFile(os.fdopen(os.dup(file.fileno()), "wb"), "w")  # pyarrow closes it
        if self.compression:
            sink = pa.CompressedOutputStream(sink, self.compression)
        empty = pa.RecordBatch.from_pylist([], schema)
        match self.kind:
            case "parquet":
                _write_parquet(sink, empty, _row_groups(rows, group_bytes))
            case "jsonl":
                _write_lines(sink, rows)
            case "csv":
                _write_batches(pyarrow.csv.CSVWriter(sink, csv_columns(empty).schema), rows)
            case _:
                options = pa.ipc.IpcWriteOptions(compression="lz4")
                _write_batches(pa.ipc.new_file(sink, schema, options=options), rows)
        sink.close()


def _write_lines(sink: pa.NativeFile, rows: Iterable[pa.RecordBatch]) -> None:
    """Write JSON lines, which are the texts in the only column of the batches."""
    for batch in rows:
        lines = batch.column(0)
        _, ends, texts = lines.buffers()
        bounds = pa.Array.from_buffers(pa.int32(), len(lines) + 1, [None, ends], offset=lines.offset)
        sink.write(texts.slice(bounds[0].as_py(), bounds[-1].as_py() - bounds[0].as_py()))


def _write_batches(writer: Any, rows: Iterable[pa.RecordBatch]) -> None:
    """Write all batches to `writer`, a writer of pyarrow, and close the writer."""
    for batch in rows:
        writer.write_batch(batch)
    writer.close()


def _write_parquet(sink: pa.NativeFile, empty: pa.RecordBatch, groups: Iterable[Sequence[pa.RecordBatch]]) -> None:
    """Write the batches of each of `groups` as one row group of Parquet. `empty` is a batch without rows."""
    writer: pq.ParquetWriter | None = None
    for group in groups:
        writer = writer or open_parquet(sink, group[0], "zstd", for_spark=False)
        writer.write_table(pa.Table.from_batches(group), row_group_size=sum(batch.num_rows for batch in group))
        del group  # before the next one is collected
    writer = writer or open_parquet(sink, empty, "zstd", for_spark=False)
    writer.close()


def _row_groups(rows: Iterable[pa.RecordBatch], group_bytes: int) -> Iterator[Sequence[pa.RecordBatch]]:
    """Yield groups of consecutive batches. Each group except the last has at least `group_bytes` bytes in memory."""
    group: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        group.append(batch)
        size += batch.nbytes
        if size >= group_bytes:
            yield group
            group, size = [], 0
    if group:
        yield group
