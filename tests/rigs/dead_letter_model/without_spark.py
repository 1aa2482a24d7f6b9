"""Run the direct lane without a JVM: a small engine of micro-batches in place of Spark's, and all else as it is.

A history takes about a second. Redrives, replays and the Spark lane need Spark itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from urllib.parse import unquote, urlsplit

from py4j.java_gateway import JavaPackage
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadMaxRows

from tiered_stream.delta.commit.merge import MergedTable
from tiered_stream.delta.landing import data_files_readers, landing_by_topic
from tiered_stream.delta.landing import land as landing
from tiered_stream.delta.landing.data_files_source import SOURCE, FilesDataSource
from tiered_stream.delta.write.data_files import DataFile
from tiered_stream.observe import read_metrics

_NO_LIMIT = 1 << 62


class LocalFolder:
    """A checkpoint's folder, as `CheckpointFolder`."""

    def __init__(self, _: object, folder: str) -> None:
        self.folder = folder

    def entries(self, name: str = "") -> list[str]:
        path = Path(self.folder, name)
        return sorted(each.name for each in path.iterdir()) if path.is_dir() else []

    def read(self, name: str) -> bytes | None:
        path = Path(self.folder, name)
        return path.read_bytes() if path.exists() else None

    def write(self, name: str, text: bytes, *, replace: bool = False) -> None:
        path = Path(self.folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if replace or not path.exists():
            path.write_bytes(text)

    def delete(self, name: str) -> None:
        Path(self.folder, name).unlink(missing_ok=True)


class _NoClasses:
    """A JVM in which every name is a package, as py4j answers for a class that is not there."""

    def __getattr__(self, name: str) -> JavaPackage:
        return JavaPackage(name, None)


class Session:
    """As much of a SparkSession as the direct lane asks for."""

    def __init__(self) -> None:
        self.batch: tuple[str, int] | None = None
        """Query and batch of the running micro-batch."""
        self.conf = SimpleNamespace(get=lambda _, default=None: default, getAll={})
        hadoop = SimpleNamespace(get=lambda _, default: default)
        self.sparkContext = SimpleNamespace(
            defaultParallelism=2,
            getLocalProperty=lambda _: self.batch and self.batch[0],
            _gateway=None,
            _jsc=SimpleNamespace(hadoopConfiguration=lambda: hadoop),
        )
        nothing = SimpleNamespace(keySet=lambda: SimpleNamespace(mkString=lambda _: ""))
        conf = SimpleNamespace(getAllConfs=lambda: nothing, pythonUDFWorkerKillOnIdleTimeout=lambda: False)
        state = SimpleNamespace(conf=lambda: conf, newHadoopConf=lambda: SimpleNamespace(get=lambda _: None))
        self._jsparkSession = SimpleNamespace(sessionState=lambda: state)
        self._jvm, self.version = _NoClasses(), "4.2.0"

    @property
    def read(self) -> _Reader:
        return _Reader(self, is_stream=False)

    @property
    def readStream(self) -> _Reader:  # noqa: N802 - Spark's name
        return _Reader(self, is_stream=True)

    def installed(self) -> ExitStack:
        """Let the product use this session until the stack is closed."""
        return installed(
            self,
            (landing, "check_by_spark", lambda *_: None),
            (landing_by_topic, "check_by_spark", lambda *_: None),
            (landing_by_topic, "CheckpointFolder", LocalFolder),
            (MergedTable, "remove", _remove),
        )


def installed(session: Any, *more: tuple[Any, str, object]) -> ExitStack:
    """Let the product use a session whose micro-batches run in this process, until the stack is closed."""
    patches = ExitStack()
    for owner, name, stand_in in (
        (landing, "register_source", lambda *_: None),
        (landing, "observed", lambda rows: rows),
        (data_files_readers, "settle_worker", lambda: None),
        (read_metrics, "current_micro_batch", lambda: session.batch),
        *more,
    ):
        patches.enter_context(patch.object(owner, name, stand_in))
    return patches


def _remove(table: MergedTable, files: Sequence[DataFile]) -> None:
    """Remove staged files, as `MergedTable.remove` does by Hadoop."""
    for file in files:
        Path(unquote(urlsplit(table.spec.uri).path), file.path).unlink(missing_ok=True)


@dataclass
class _Reader:
    """A DataFrameReader, a DataStreamReader, and the rows that they load."""

    session: Session
    is_stream: bool
    given: Mapping[str, str] = field(default_factory=dict)

    def format(self, source: str) -> _Reader:
        assert source == SOURCE
        return self

    def options(self, **given: str) -> _Reader:
        self.given = given
        return self

    def load(self) -> _Reader:
        return self

    def collect(self) -> list[dict[str, Any]]:
        source = FilesDataSource(CaseInsensitiveDict(self.given))
        reader = source.reader(source.schema())
        return _rows(reader, reader.partitions())

    @property
    def writeStream(self) -> Writer:  # noqa: N802 - Spark's name
        return Writer(self.session, self.given)


@dataclass
class Writer:
    """A DataStreamWriter, and the query that it starts."""

    _spark: Session
    given: Mapping[str, str]
    checkpoint: Path = Path()
    error: Exception | None = None
    write: Callable[[Any, int], None] = lambda *_: None

    def foreachBatch(self, write: Callable[[Any, int], None]) -> Writer:  # noqa: N802 - Spark's name
        self.write = write
        return self

    def option(self, name: str, value: str) -> Writer:
        assert name == "checkpointLocation"
        self.checkpoint = Path(value)
        return self

    def trigger(self, **given: Any) -> Writer:
        assert given == {"availableNow": True}
        return self

    def start(self) -> Writer:
        """Run all micro-batches."""
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - as Spark, the query ends with it
            self.error = error
        return self

    @property
    def _jsq(self) -> Any:
        raise TypeError

    def awaitTermination(self, _: float) -> bool:  # noqa: N802 - Spark's name
        if self.error is not None:
            raise self.error
        return True

    def stop(self) -> None:
        pass

    def _run(self) -> None:
        log = LocalFolder(None, str(self.checkpoint))
        log.write("metadata", json.dumps({"id": f"query of {self.checkpoint}"}).encode())
        query_id = json.loads(log.read("metadata") or b"")["id"]
        source = FilesDataSource(CaseInsensitiveDict(self.given))
        reader: Any = source.streamReader(source.schema())
        try:
            batch_id = max(map(int, log.entries("commits")), default=-1) + 1
            start = self._offsets(log, batch_id - 1) or reader.initialOffset()
            planned = self._offsets(log, batch_id)
            if planned is None:
                reader.prepareForTriggerAvailableNow()
            while True:
                end = planned or reader.latestOffset(start, ReadMaxRows(_NO_LIMIT))
                if end == start:
                    return
                log.write(f"offsets/{batch_id}", json.dumps(end).encode())
                self._batch(reader, (query_id, batch_id), start, end)
                log.write(f"commits/{batch_id}", b"")
                if planned is not None:
                    planned = None
                    reader.prepareForTriggerAvailableNow()
                start, batch_id = end, batch_id + 1
        finally:
            reader.stop()

    def _offsets(self, log: LocalFolder, batch_id: int) -> dict[str, Any] | None:
        found = log.read(f"offsets/{batch_id}")
        return None if found is None else dict(json.loads(found))

    def _batch(self, reader: Any, batch: tuple[str, int], start: dict[str, Any], end: dict[str, Any]) -> None:
        self._spark.batch = batch
        try:
            partitions = reader.partitions(start, end)
            frame = SimpleNamespace(sparkSession=self._spark, collect=lambda: _rows(reader, partitions))
            self.write(frame, batch[1])
        finally:
            self._spark.batch = None


def _rows(reader: Any, partitions: Sequence[Any]) -> list[dict[str, Any]]:
    return [row for partition in partitions for batch in reader.read(partition) for row in batch.to_pylist()]
