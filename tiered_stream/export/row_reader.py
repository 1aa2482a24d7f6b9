"""Reader of the rows of an export: fetched records are decoded to rows, filtered, and prepared for their file."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from functools import reduce

import pyarrow as pa

from tiered_stream.delta.settings.row_settings import advising
from tiered_stream.export.export_plan import ExportPlan
from tiered_stream.export.file_formats import FileFormat
from tiered_stream.formats.row_decoder import RowDecoder
from tiered_stream.formats.rows.row_format import RowFormat
from tiered_stream.formats.sql.bound import filtered
from tiered_stream.model import Split
from tiered_stream.observe.read_metrics import ReadMetrics
from tiered_stream.read.split_reader import SplitReader


class RowReader:
    """Reader of splits to prepared rows. Many threads may use it; each thread has decoders of its own.

    `metrics` has the cost of all splits that are read to their ends. `undecodable` is the number of records that did
    not decode and are left out, and `first_reason` is a text about one of them.
    """

    def __init__(self, plan: ExportPlan, file_format: FileFormat) -> None:
        self._plan = plan
        self._format = file_format
        self._lock = threading.Lock()
        self._local = threading.local()
        self.metrics = ReadMetrics()
        self.undecodable = 0
        self.first_reason: str | None = None

    def read(self, split: Split) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows of the split in offset order.

        Raises:
            TieredStreamError: the split cannot be read, or a record does not decode and `ingest.onDecodeError` is
                `fail`.
        """
        topic, options = split.topic_partition.topic, self._plan.options
        row_format, conditions = self._plan.rows.get(topic), self._plan.conditions(topic)
        reader = SplitReader(split, options, columns=None if row_format else options.columns)
        for records in reader.batches():
            for rows in [records] if row_format is None else self._decoded(records, topic, row_format):
                kept = reduce(filtered, conditions, rows)
                if kept.num_rows:
                    yield self._format.prepare(kept)
        with self._lock:
            self.metrics.add(reader.metrics)

    def _decoded(self, records: pa.RecordBatch, topic: str, row_format: RowFormat) -> Iterator[pa.RecordBatch]:
        decoders: dict[str, RowDecoder] = self._local.__dict__
        if topic not in decoders:
            decoders[topic] = RowDecoder(row_format)
        schema = self._plan.schema(topic)
        with advising():
            for _, decoded in decoders[topic].decode_parts(records):
                if decoded.dead is not None:
                    self._leave_out(decoded.dead)
                yield pa.RecordBatch.from_arrays(decoded.rows.columns[: len(schema)], schema=schema)

    def _leave_out(self, dead: pa.RecordBatch) -> None:
        names = ("topic", "partition", "offset", "failed", "reason")
        topic, partition, offset, failed, reason = (dead.column(name)[0].as_py() for name in names)
        with self._lock:
            self.undecodable += dead.num_rows
            self.first_reason = self.first_reason or f"{topic}-{partition} at offset {offset}, {failed}: {reason}"
