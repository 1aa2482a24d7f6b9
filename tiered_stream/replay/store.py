"""The plan in the replay's checkpoint, by Hadoop's file systems: wherever Spark can keep a checkpoint, it is there too.

Written as Spark writes its own offset log (`CheckpointFileManager`): whole or not at all, and once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, cast

import orjson
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tiered_stream.errors import CorruptDataError, TableError
from tiered_stream.options.offset_json import offsets_from_dict
from tiered_stream.replay.replay_plan import ReplayPlan, ends_of

_OFFSETS_LINE = 2
"""Of a file of Spark's offset log: version, metadata, then a line for each source."""
PLAN, FINISHED = "replay.json", "finished.json"


class ReplayStore:
    """A replay's own files in its checkpoint's folder.

    Every method raises TableError where the folder cannot be reached, CorruptDataError where a file is no plan.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self.folder = folder
        self._java = cast(Any, spark._jvm)
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
        if not plan.offsets:
            return True
        batch = self._last_batch("commits")
        text = None if batch is None else self._read(f"offsets/{batch}")
        if text is None:
            return False
        return offsets_from_dict(orjson.loads(text.splitlines()[_OFFSETS_LINE])) == ends_of(plan.ranges)

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
        path = self._child(name) if name else self._path
        with self._errors("read"):
            files = self._files()
            return [each.getPath().getName() for each in files.list(path)] if files.exists(path) else []

    def _read(self, name: str) -> bytes | None:
        path = self._child(name)
        with self._errors("read"):
            files = self._files()
            if not files.exists(path):
                return None
            with closing(files.open(path)) as stream:
                return bytes(self._java.org.apache.commons.io.IOUtils.toByteArray(stream))

    def _write(self, name: str, text: bytes) -> None:
        with self._errors("written to"):
            files = self._files()
            files.mkdirs(self._path)
            try:
                stream = files.createAtomic(self._child(name), False)
                stream.write(text)
                stream.close()
            except Py4JJavaError as error:
                if "FileAlreadyExistsException" not in str(error.java_exception):
                    raise

    def _files(self) -> Any:
        manager = self._java.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
        return manager.create(self._path, self._configuration)

    def _child(self, name: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(self._path, name)

    @contextmanager
    def _errors(self, done: str) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            raise TableError(f"the checkpoint {self.folder} cannot be {done}: {error.java_exception}") from error
