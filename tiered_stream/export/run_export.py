"""Function `export`, which writes records of topics into one file, or into a folder with a file for each partition."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import pyarrow as pa

from tiered_stream.delta.settings.ingest_settings import TOPIC_PREFIX
from tiered_stream.delta.settings.row_settings import ROW_OPTIONS, advising
from tiered_stream.errors import ConfigurationError, ExportError
from tiered_stream.export.export_plan import ExportPlan, plan_export
from tiered_stream.export.file_formats import FileFormat
from tiered_stream.export.target_files import ExportFolder, Manifest, new_file
from tiered_stream.formats.row_decoder import RowDecoder
from tiered_stream.formats.rows.row_format import RowFormat
from tiered_stream.formats.sql.bound import filtered
from tiered_stream.model import Split, TopicPartition
from tiered_stream.observe.read_metrics import ReadMetrics
from tiered_stream.options.offset_ranges import Ranges
from tiered_stream.options.positions import TimeRange
from tiered_stream.options.remote_options import COLUMNS
from tiered_stream.options.settings_files import POSITIONS
from tiered_stream.options.spark_options import INCLUDE_HEADERS, ISOLATION_LEVEL
from tiered_stream.process.resources import usable_cores
from tiered_stream.read.scanner import read_in_threads
from tiered_stream.read.split_reader import SplitReader

_WAITING_BYTES, _GROUP_BYTES, _LEAST_GROUP_BYTES = 32 << 20, 32 << 20, 8 << 20
"""Limits in bytes: rows of all files that wait for writers, row groups of all files, and the least size of a row group.

The files that are written at the same time share the first two limits. Row groups are only in Parquet files.
"""
_FETCHED_BYTES = 96 << 20
"""Maximum fetched bytes in memory, which all threads share. Each thread may hold the bytes of at least 2 requests."""
_REPORT_SECONDS = 10.0
_COMPARED = {
    name.lower()
    for name in (*POSITIONS, *(option.name for option in (*ROW_OPTIONS, INCLUDE_HEADERS, ISOLATION_LEVEL, COLUMNS)))
}
"""Settings, in lower case, that decide which rows an export has. They have no secrets."""


@dataclass(frozen=True, kw_only=True)
class ExportArguments:
    """Arguments of an export.

    `into` is a folder if `is_folder` is True, and otherwise a file. If `overwrite` is True, an earlier export to `into`
    is replaced. `times`, `exact` and `where` have the same meaning as in `plan_export`. `threads` is the maximum number
    of threads that read; None means one for each usable core.
    """

    settings: Mapping[str, str] = field(repr=False)  # it may have secrets
    into: Path
    is_folder: bool
    file_format: FileFormat
    times: TimeRange | None = None
    time_texts: tuple[str | None, str | None] = (None, None)
    """Start and end time as the user wrote them. To resume an interrupted export, the user must give the same texts."""
    exact: bool = False
    where: Sequence[str] = ()
    overwrite: bool = False
    threads: int | None = None

    def compared(self) -> dict[str, Any]:
        """Return the arguments that must be the same when an interrupted export is resumed, in a form for JSON."""
        given = {
            name: value
            for name, value in self.settings.items()
            if name.lower() in _COMPARED or name.lower().startswith(TOPIC_PREFIX)
        }
        return {
            "settings": given, "from": self.time_texts[0], "to": self.time_texts[1], "exact": self.exact,
            "where": list(self.where), "format": self.file_format.ending,
        }  # fmt: skip


@dataclass
class ExportReport:
    """Report on one run of an export: the number of records and the files that it has written, and its duration.

    `metrics` has the cost of reading. `left_out` is the number of records of each partition that did not decode and
    were left out of the files, also by earlier runs of this export into a folder. `first_reason` says why one of these
    records did not decode, and is None if this run has left out none. `finished_before` is True if the export had
    finished before, so that this run has read nothing.
    """

    records: int = 0
    files: Sequence[Path] = ()
    seconds: float = 0.0
    metrics: ReadMetrics = field(default_factory=ReadMetrics)
    left_out: Counter[TopicPartition] = field(default_factory=Counter)
    first_reason: str | None = None
    finished_before: bool = False

    @property
    def size(self) -> int:
        """Total size of `files` in bytes."""
        return sum(file.stat().st_size for file in self.files)

    @property
    def undecodable(self) -> int:
        """Total number of records that did not decode and were left out of the files."""
        return self.left_out.total()


def target_of(into: str, ending: str | None) -> tuple[Path, bool, FileFormat]:
    """Return the path of an export's target, whether it is a folder, and the format of its files.

    A target is a folder if its text `into` ends with a slash, if it is a folder already, or if its name has no ending.
    The ending of a file's name gives its format, unless `ending` is given. A folder has Parquet files unless `ending`
    is given.

    Raises:
        ConfigurationError: the target is not local or not a valid path, or the format is unknown.
    """
    if "://" in into:
        raise ConfigurationError(
            f"--into {into!r:.100}: an export writes local files and folders. Export there, and copy them, or replay "
            "into parquet:… or a table"
        )
    path = Path(into)
    try:
        is_folder = into.endswith("/") or path.is_dir() or not path.suffix
        path.exists()
    except OSError as error:
        raise ConfigurationError(f"--into {into!r:.100}: {error.strerror}. Give another file or folder") from error
    if is_folder or ending:
        return path, is_folder, FileFormat.of(ending or "parquet")
    suffixes = path.name.split(".")[-2:]
    own = ".".join(suffixes) if suffixes[-1] in ("gz", "zst") else suffixes[-1]
    try:
        return path, False, FileFormat.of(own)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"--into {into}: {error}. End the name of a folder with a slash, or give the format of the file by --format"
        ) from error


def export(arguments: ExportArguments, report: Callable[[str], None]) -> ExportReport:
    """Write the records that the arguments choose, and return a report.

    If an export into a file was interrupted, the file is written from its start again. An export into a folder is
    resumed: complete files are kept, and the other partitions are read up to the offsets that the first run has chosen.

    Args:
        report: called with lines about the progress.

    Raises:
        ConfigurationError: an argument or a setting is wrong, the target exists already, or the target folder has an
            export with other arguments.
        ExportError: a file cannot be written.
        UndecodableRecordError: a record does not decode, and `ingest.onDecodeError` is `fail`.
        TieredStreamError: the records cannot be read.
    """
    if arguments.is_folder:
        return _Run(arguments, report).into_folder()
    if arguments.into.exists() and not arguments.overwrite:
        raise ConfigurationError(f"{arguments.into} exists: give another file, or --overwrite")
    return _Run(arguments, report).into_file()


class _Run:
    def __init__(self, arguments: ExportArguments, progress: Callable[[str], None]) -> None:
        self._arguments = arguments
        self._progress = progress
        self._report = ExportReport()
        self._threads = arguments.threads or usable_cores()
        self._began = self._reported = time.monotonic()
        self._stopped = threading.Event()
        self._lock = threading.Lock()

    def into_file(self) -> ExportReport:
        plan = self._plan()
        schema = plan.shared_schema()
        self._progress(f"{plan.offsets:,} offsets of {len(plan.ranges)} partitions into {self._arguments.into}")
        self._write(plan.splits(plan.ranges), self._arguments.into, schema, self._reader(plan), writers=1)
        return self._done([self._arguments.into])

    def into_folder(self) -> ExportReport:
        folder, ending = ExportFolder(self._arguments.into), self._arguments.file_format.ending
        earlier = folder.manifest()
        if earlier is None or self._arguments.overwrite:
            plan = self._plan()
            times = self._arguments.times
            manifest = Manifest(self._arguments.compared(), plan.ranges, plan.topic_ids, ending, times)
        else:
            manifest = earlier
            _check_same(manifest, self._arguments)
            if manifest.finished:
                return ExportReport(left_out=Counter(manifest.undecodable), finished_before=True)
            plan = self._plan(manifest)
        with folder.locked(earlier):
            if manifest is not earlier:
                if earlier is not None:
                    folder.clear(earlier)
                folder.store(manifest)
            return self._fill(folder, plan, manifest)

    def _fill(self, folder: ExportFolder, plan: ExportPlan, manifest: Manifest) -> ExportReport:
        """Write the files that the folder still lacks, and return the report."""
        missing = folder.missing(plan, manifest.ending)
        left_out = self._report.left_out
        left_out.update({partition: n for partition, n in manifest.undecodable.items() if partition not in missing})

        def keep_left_out(partition: TopicPartition) -> None:
            """Store the numbers before the partition's file is complete, because a later run does not read it again."""
            with self._lock:
                if left_out[partition] or manifest.undecodable.get(partition):
                    folder.store(replace(manifest, undecodable=dict(left_out)))

        self._progress(f"{sum(map(len, missing.values())):,} offsets of {len(missing)} partitions into {folder.path}/")
        files = self._write_partitions(plan, missing, folder, keep_left_out)
        folder.store(replace(manifest, finished=True, undecodable=left_out))
        return self._done(files)

    def _plan(self, manifest: Manifest | None = None) -> ExportPlan:
        given = self._arguments
        stored = (manifest.ranges, manifest.topic_ids) if manifest else None
        # The texts of the times may mean other times now, such as -3h. Older releases do not store the times.
        times = (manifest and manifest.times) or given.times
        plan = plan_export(given.settings, times, exact=given.exact, where=given.where, stored=stored)
        fetch = plan.options.fetch
        limit = min(fetch.memory_bytes, max(2 * fetch.request_bytes, _FETCHED_BYTES // self._threads))
        return replace(plan, options=replace(plan.options, fetch=replace(fetch, memory_bytes=limit)))

    def _reader(self, plan: ExportPlan) -> _RowReader:
        return _RowReader(plan, self._arguments.file_format, self._report)

    def _write_partitions(
        self, plan: ExportPlan, missing: Ranges, folder: ExportFolder, written: Callable[[TopicPartition], None]
    ) -> list[Path]:
        """Write the files of the partitions in `missing`, several files at once, and return the files' paths.

        `written` is called when all rows of a partition are written, before the file gets its final name.
        """
        if not missing:
            return []
        splits: dict[TopicPartition, list[Split]] = {partition: [] for partition in missing}
        for split in plan.splits(missing):
            splits[split.topic_partition].append(split)
        writers, ending = min(self._threads, len(missing)), self._arguments.file_format.ending
        reader = self._reader(plan)
        with ThreadPoolExecutor(writers, "tiered-stream-export") as pool:
            futures = {
                pool.submit(
                    self._write, own, path, plan.schema(partition.topic), reader, writers, partial(written, partition)
                ): path
                for partition, own in splits.items()
                for path in [folder.file_of(partition, ending)]
            }
            try:
                for future in as_completed(futures):
                    self._progress(f"{futures[future]}: {future.result():,} records")
            except BaseException:
                self._stopped.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return sorted(futures.values())

    def _write(
        self, splits: Sequence[Split], path: Path, schema: pa.Schema, reader: _RowReader, writers: int,
        written: Callable[[], None] = lambda: None,
    ) -> int:  # fmt: skip
        """Write the rows of `splits` into the new file `path`, and return the number of rows.

        `writers` is the number of files that are written at the same time, and that share threads and memory. `written`
        is called when all rows are written, before the file gets its final name.
        """
        threads = max(1, self._threads // writers)
        group_bytes = max(_LEAST_GROUP_BYTES, _GROUP_BYTES // writers)
        rows = read_in_threads(splits, reader.read, threads=threads, waiting_bytes=_WAITING_BYTES // writers)
        records = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal records
            for batch in rows:
                if self._stopped.is_set():
                    raise ExportError(f"{path} is not complete, because the export was stopped")
                yield batch
                records += batch.num_rows
                self._count(batch.num_rows)

        with new_file(path) as file, closing(rows):
            self._arguments.file_format.write(file, schema, counted(), group_bytes)
            written()
        return records

    def _count(self, records: int) -> None:
        with self._lock:
            self._report.records += records
            now = time.monotonic()
            if now - self._reported < _REPORT_SECONDS:
                return
            self._reported = now
        total = self._report.records
        self._progress(f"{total:,} records, {total / (now - self._began):,.0f} records/s")

    def _done(self, files: Sequence[Path]) -> ExportReport:
        self._report.files, self._report.seconds = files, time.monotonic() - self._began
        return self._report


class _RowReader:
    """Reader that decodes and filters the records of a split, and converts them to the form for their file.

    Many threads can use one reader; each thread has its own decoders. The reader adds to `report` the cost of each
    split that was read to its end, and the number of records that do not decode.
    """

    def __init__(self, plan: ExportPlan, file_format: FileFormat, report: ExportReport) -> None:
        self._plan = plan
        self._format = file_format
        self._report = report
        self._lock = threading.Lock()
        self._local = threading.local()

    def read(self, split: Split) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows of the split (a part of one partition) in offset order, as `FileFormat.prepare` returns them.

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
            self._report.metrics.add(reader.metrics)

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
            self._report.left_out[TopicPartition(topic, partition)] += dead.num_rows
            if self._report.first_reason is None:
                self._report.first_reason = f"{topic}-{partition} at offset {offset}, {failed}: {reason}"


def _check_same(manifest: Manifest, arguments: ExportArguments) -> None:
    """Check that an interrupted export is resumed with the arguments with which it began.

    Raises:
        ConfigurationError: an argument differs.
    """
    ours, theirs = arguments.compared(), manifest.arguments
    differing = [name for name in ours if ours[name] != theirs.get(name)]
    if differing == ["settings"]:
        before, now = theirs["settings"], ours["settings"]
        differing = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    if differing:
        raise ConfigurationError(
            f"the folder {arguments.into} has an export with other arguments: {', '.join(differing)} differs. To go on "
            "with it give the same, or give another folder, or --overwrite"
        )
