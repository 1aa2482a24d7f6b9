"""Watch every write to a table or to the checkpoint, in all lanes and commands; the driver may die around it."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, TypeVar
from unittest.mock import patch

import deltalake
from delta.tables import DeltaMergeBuilder, DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.readwriter import DataFrameWriter
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.rigs.dead_letter_model.history import DEAD_LETTERS, Die, Interruption, Moment, Place
from tests.rigs.dead_letter_model.without_spark import LocalFolder, Writer
from tiered_stream.delta.checkpoint.checkpoint_folder import CheckpointFolder
from tiered_stream.delta.commit import delta_spark_commit, deltalake_commit, many_tables

T = TypeVar("T")

_CHANGES = re.compile(r"\s*(MERGE|DELETE|UPDATE|INSERT|TRUNCATE)\b", re.IGNORECASE)
_SPARKS = re.compile(r"(offsets|commits|metadata)\b")
"""Files that Spark itself writes to a checkpoint."""
_of_thread = threading.local()


class Killed(BaseException):
    """The driver is dead. No handler of the product catches it."""


class DriverKilledError(Exception):
    """The same as `Killed` for whoever passes on nothing but Exception, as py4j does."""


class Life:
    """One life of the driver, from a start to its end. After its death none of its threads writes any more."""

    def __init__(self, interruptions: Sequence[Interruption], act: Callable[[Any], None]) -> None:
        """`act` carries out an interruption; it may end the process if the driver is to die."""
        self._due = {each.moment: each.event for each in reversed(interruptions)}
        self._act = act
        self._writes: Counter[Place] = Counter()
        self._lock = threading.RLock()
        self.is_over = False
        """Whether the life has ended, so that nothing may be written."""
        self.was_killed = False
        self.reached: list[str] = []
        """Writes and interruptions, in order."""
        self.wrote: Counter[str] = Counter()
        """Number of writes by method."""
        self.struck: Counter[str] = Counter()
        """Number of interruptions by kind and moment."""

    def around(self, place: Place, how: str, name: str, write: Callable[[], T]) -> T:
        """Write, unless the driver is dead or dies first."""
        if getattr(_of_thread, "acts", False):
            return write()
        with self._lock:
            self._check_alive()
            self._writes[place] += 1
            number = self._writes[place]
            self._reach(Moment(place, number, after=False))
        try:
            written = write()
        except Exception as error:
            self.reached.append(f"{name}: {type(error).__name__}")
            raise
        with self._lock:
            # What was written when another thread died is written.
            self.reached.append(name)
            self.wrote[how] += 1
            self._check_alive()
            self._reach(Moment(place, number, after=True))
        return written

    def _check_alive(self) -> None:
        if self.is_over:
            raise Killed

    def _reach(self, moment: Moment) -> None:
        event = self._due.get(moment)
        if event is None:
            return
        self.reached.append(f"[{event}]")
        when = "after" if moment.after else "before"
        self.struck[f"{type(event).__name__} {when} a write of {moment.place.value}"] += 1
        if isinstance(event, Die):
            self.is_over = self.was_killed = True
            self._act(event)
            raise Killed
        _of_thread.acts = True
        try:
            self._act(event)
        finally:
            _of_thread.acts = False


class Lives:
    """Holder of the driver's present life, to which patches in the product report each write."""

    def __init__(self) -> None:
        self._now: Life | None = None

    @contextmanager
    def living(self, life: Life) -> Iterator[Life]:
        """Make this the life of everything that starts within the block."""
        self._now = life
        try:
            yield life
        finally:
            life.is_over = True
            self._now = None

    @property
    def of_thread(self) -> Life | None:
        """Life of this thread: a thread belongs to the life that started it."""
        return getattr(_of_thread, "life", None) or self._now

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch all writes of this process within the block."""
        with ExitStack() as patches:
            for owner, method, place_of in (
                (deltalake_commit.DeltalakeTransaction, "commit", lambda of, *_: of._of.spec.uri),
                (delta_spark_commit.DeltaSparkTransaction, "commit", lambda of, *_: str(of._address)),
                (DataFrameWriter, "save", lambda _, path=None, *__, **___: path),
                (DeltaTable, "delete", lambda of, *_: getattr(of, "model_name", DEAD_LETTERS)),
                (DeltaTable, "update", lambda of, *_, **__: getattr(of, "model_name", DEAD_LETTERS)),
                (DeltaMergeBuilder, "execute", lambda *_: DEAD_LETTERS),
                (SparkSession, "sql", lambda _, text, *__, **___: text if _CHANGES.match(text) else None),
                (deltalake.DeltaTable, "delete", lambda of, *_, **__: of.table_uri),
                (CheckpointFolder, "write", lambda _, name, *__, **___: f"checkpoint/{name}"),
                (
                    LocalFolder,
                    "write",
                    lambda _, name, *__, **___: None if _SPARKS.match(name) else f"checkpoint/{name}",
                ),
            ):
                patches.enter_context(patch.object(owner, method, self._told(owner, method, place_of)))
            for method in ("forName", "forPath"):
                patches.enter_context(patch.object(DeltaTable, method, _named(getattr(DeltaTable, method))))
            for writer in (DataStreamWriter, Writer):
                patches.enter_context(patch.object(writer, "foreachBatch", self._batches(writer)))
            patches.enter_context(patch.object(many_tables, "ThreadPoolExecutor", self._pools()))
            patches.enter_context(patch.object(many_tables, "BATCHES_BETWEEN_TRIES", 2))
            yield

    def _told(self, owner: type, method: str, name_of: Callable[..., str | None]) -> Callable[..., Any]:
        original, how = getattr(owner, method), f"{owner.__name__}.{method}"

        @wraps(original)
        def told(*given: Any, **named: Any) -> Any:
            life, name = self.of_thread, name_of(*given, **named)
            if life is None or name is None:
                return original(*given, **named)
            place, shown = _place(name)
            return life.around(place, how, shown, lambda: original(*given, **named))

        return told

    def _batches(self, owner: Any) -> Callable[..., Any]:
        original = owner.foreachBatch

        def foreach_batch(writer: Any, write: Callable[[Any, int], None]) -> Any:
            life = self.of_thread

            def told(batch: Any, batch_id: int) -> None:
                if life is None:
                    return write(batch, batch_id)
                _of_thread.life = life
                try:
                    life.around(Place.BATCH, "batch", f"batch {batch_id}", lambda: write(batch, batch_id))
                except Killed:
                    raise DriverKilledError from None
                finally:
                    _of_thread.life = None

            return original(writer, told)

        return foreach_batch

    def _pools(self) -> Callable[..., ThreadPoolExecutor]:
        """Make pools of one thread, so that a history repeats exactly. Their work belongs to the submitting life."""
        lives = self

        class Pool(ThreadPoolExecutor):
            def __init__(self, _: int, name: str) -> None:
                super().__init__(1, name)

            def submit(self, work: Callable[..., T], /, *given: Any, **named: Any) -> Future[T]:
                life = lives.of_thread

                def of_life() -> T:
                    if life is not None and life.is_over:
                        raise Killed
                    _of_thread.life = life
                    return work(*given, **named)

                return super().submit(of_life)

        return Pool


def _named(original: Callable[..., DeltaTable]) -> classmethod[Any, Any, DeltaTable]:
    def opened(_: type[DeltaTable], spark: SparkSession, name: str, *given: Any) -> DeltaTable:
        table = original(spark, name, *given)
        table.model_name = name  # type: ignore[attr-defined]
        return table

    return classmethod(opened)


def _place(name: str) -> tuple[Place, str]:
    if name.startswith("checkpoint/"):
        return Place.NOTE, name
    if _CHANGES.match(name):
        return (Place.LETTERS if DEAD_LETTERS in name else Place.ROWS), name.split()[0]
    last = name.rstrip("/`").rpartition("/")[2]
    return (Place.LETTERS, last) if DEAD_LETTERS in last else (Place.ROWS, last)
