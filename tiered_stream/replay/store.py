"""The plan in the replay's checkpoint, by Hadoop's file systems: wherever Spark can keep a checkpoint, it is there too.

Written as Spark writes its own offset log (`CheckpointFileManager`): whole or not at all, and once.
"""

from __future__ import annotations

import time
from typing import Any

import orjson
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tiered_stream.errors import CorruptDataError, TableError
from tiered_stream.options.offset_json import offsets_from_dict
from tiered_stream.replay.replay_plan import ReplayPlan

_OFFSETS_LINE = 2
"""Of a file of Spark's offset log: version, metadata, then a line for each source."""
PLAN, FINISHED = "replay.json", "finished.json"


class ReplayStore:
    """A replay's own files in its checkpoint's folder.

    Every method raises TableError where the folder cannot be reached, CorruptDataError where a file is no plan.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self.folder = folder
        self._java = _java(spark)
        self._path = self._java.org.apache.hadoop.fs.Path(folder)
        self._configuration = spark._jsparkSession.sessionState().newHadoopConf()

    def plan(self) -> ReplayPlan | None:
        """The plan, or None: it is a new replay."""
        text = self._read(PLAN)
        if text is None:
            return None
        try:
            return ReplayPlan.from_json(text)
        except CorruptDataError as error:
            raise CorruptDataError(f"{self.folder}/{PLAN}: {error}") from error

    def keep(self, plan: ReplayPlan) -> ReplayPlan:
        """Write the plan; what is there then, which is another's if two replays begin at once."""
        self._write(PLAN, plan.to_json())
        return self.plan() or plan

    def reached(self, plan: ReplayPlan) -> bool:
        """Whether a micro-batch that ends where the plan does is committed (Spark: `OffsetSeqLog`, `CommitLog`)."""
        starts = {partition: offsets.start for partition, offsets in plan.ranges.items()}
        ends = {partition: offsets.end for partition, offsets in plan.ranges.items()}
        if starts == ends:
            return True
        batch = self._last_batch("commits")
        text = self._read(f"offsets/{batch}") if batch is not None else None
        return text is not None and offsets_from_dict(orjson.loads(text.splitlines()[_OFFSETS_LINE])) == ends

    @property
    def finished(self) -> bool:
        """Whether the replay came to its end."""
        return self._read(FINISHED) is not None

    def finish(self, records: int) -> None:
        """Say that it did; `records` were read by the last run."""
        self._write(FINISHED, orjson.dumps({"finishedAtMs": time.time_ns() // 1_000_000, "records": records}))

    @property
    def begun(self) -> bool:
        """Whether a micro-batch was planned, so that something may have been written."""
        return self._last_batch("offsets") is not None

    def _last_batch(self, log: str) -> int | None:
        """The last batch in Spark's log of offsets or of commits."""
        return max((int(name) for name in self.entries(log) if name.isdecimal()), default=None)

    def entries(self, name: str = "") -> list[str]:
        """The names in the folder, or in one in it; none where there is no such folder."""
        try:
            files, path = self._files(), self._child(name) if name else self._path
            return [each.getPath().getName() for each in files.list(path)] if files.exists(path) else []
        except Py4JJavaError as error:
            raise self._error(error, "read") from error

    def _read(self, name: str) -> bytes | None:
        try:
            files, path = self._files(), self._child(name)
            if not files.exists(path):
                return None
            stream = files.open(path)
            try:
                return bytes(self._java.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()
        except Py4JJavaError as error:
            raise self._error(error, "read") from error

    def _write(self, name: str, text: bytes) -> None:
        try:
            files = self._files()
            files.mkdirs(self._path)
            stream = files.createAtomic(self._child(name), False)
            stream.write(text)
            stream.close()
        except Py4JJavaError as error:
            if "FileAlreadyExistsException" not in str(error.java_exception):
                raise self._error(error, "written to") from error

    def _files(self) -> Any:
        manager = self._java.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
        return manager.create(self._path, self._configuration)

    def _child(self, name: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(self._path, name)

    def _error(self, error: Py4JJavaError, done: str) -> TableError:
        return TableError(f"the checkpoint {self.folder} cannot be {done}: {error.java_exception}")


def _java(spark: SparkSession) -> Any:
    return spark._jvm
