"""Redrives that run at the same time, or crash and are started again with other settings, with Spark and Delta."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.delta.set_aside import SetAside, of
from tiered_stream.delta.redrive.dead_letter_marks import DeadLetterMarks
from tiered_stream.delta.redrive.redrive_run import RedriveReport
from tiered_stream.delta.redrive.redriven_table import RedrivenTable

pytestmark = pytest.mark.slow

STEPS = {DeadLetterMarks: ("mark", "clear", "delete"), RedrivenTable: ("outcome", "append", "give_up")}
"""What a redrive does one after the other: each reads or changes a table."""
PLAIN = ("mark", "outcome", "append", "outcome", "delete")
"""The steps of a redrive of one topic that nobody disturbs."""
STRICT = {"ingest.value.schema": "id BIGINT, name STRING, price INT"}
"""Settings by which letters with an odd offset do not decode."""


class CrashError(Exception):
    pass


class Steps:
    """The steps of the redrives of this thread; `do` runs before one of them, and the steps within it do not count."""

    def __init__(self, at: int, do: Callable[[], object]) -> None:
        self.seen: list[str] = []
        self._at, self._do = at, do
        self._within = False
        self._thread = threading.current_thread()

    def __call__(self, name: str) -> None:
        if self._within or threading.current_thread() is not self._thread:
            return
        self.seen.append(name)
        if len(self.seen) == self._at + 1:
            self._within = True
            self._do()
            self._within = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for owner, names in STEPS.items():
                for name in names:
                    patch.setattr(owner, name, self._hooked(name, getattr(owner, name)))
            yield

    def _hooked(self, name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            self(name)
            return step(*args, **kwargs)

        return run


@pytest.fixture
def aside(spark: SparkSession, tmp_path: Path) -> SetAside:
    """Four letters that decode, of which two decode by strict settings, too, and one of garbage."""
    made = SetAside(spark, tmp_path)
    columns = "id BIGINT, name STRING, price INT, topic STRING, offset BIGINT"
    spark.sql(f"CREATE TABLE delta.`{made.table()}` ({columns}) USING delta")
    gate = str(tmp_path / "gate")
    values = {at: b'{"id": %d, "name": "%s", "price": %s}' % (at, gate.encode(), b'"x"' if at % 2 else b"1")
              for at in range(4)}  # fmt: skip
    made.write({**values, 4: b"garbage"})
    return made


@pytest.mark.parametrize("step", [1, 4])
def test_a_redrive_within_another_one_brings_each_letter_in_once(aside: SetAside, step: int) -> None:
    steps = Steps(step, aside.redrive)
    with steps.watched():
        report = aside.redrive()
    assert steps.seen[: step + 1] == list(PLAIN[: step + 1])
    assert (aside.rows(), aside.letters, aside.marks) == (of("orders", *range(4)), of("orders", 4), set())
    assert sum(report.left.values()) == 1


def test_strict_settings_just_before_an_append_leave_each_letter_in_one_place(aside: SetAside) -> None:
    steps = Steps(PLAIN.index("append"), lambda: aside.redrive(STRICT))
    with steps.watched():
        aside.redrive()
    assert steps.seen == ["mark", "outcome", "append", "outcome", "clear", *PLAIN]
    assert (aside.rows(), aside.letters, aside.marks) == (of("orders", *range(4)), of("orders", 4), set())


@pytest.mark.parametrize("step", [2, 4])
def test_a_crash_before_a_commit_and_strict_settings_afterwards_leave_each_letter_in_one_place(
    aside: SetAside, step: int
) -> None:
    def crash() -> None:
        raise CrashError

    with Steps(step, crash).watched(), pytest.raises(CrashError):
        aside.redrive()
    assert len(aside.marks) == 1
    aside.redrive(STRICT)
    rows = (0, 2) if step < 3 else range(4)
    assert (aside.rows(), aside.marks) == (of("orders", *rows), set())
    assert aside.letters == of("orders", *(at for at in range(5) if at not in rows))


def waits_at_gate(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows, once the file that they name is gone."""
    for text in set(batch.column("name").to_pylist()):
        gate = Path(text)
        if gate.exists():
            gate.with_name("arrived").touch()
            while gate.exists():
                time.sleep(0.01)
    return batch


WAITS = {"ingest.transform": f"{__name__}:{waits_at_gate.__name__}"}


@pytest.mark.parametrize(
    ("name", "others", "conflict"),
    [
        ("mark", {}, "dead: another commit came first, so the change is tried again"),
        ("append", STRICT, "table: another commit came first"),
    ],
)
def test_a_redrive_while_another_one_commits_leaves_each_letter_in_one_place(
    aside: SetAside, caplog: pytest.LogCaptureFixture, name: str, others: dict[str, str], conflict: str
) -> None:
    """The first one has begun its transaction, and waits while it decodes."""
    gate, arrived = aside.folder / "gate", aside.folder / "arrived"
    reports: list[RedriveReport] = []

    def first() -> None:
        with Steps(PLAIN.index(name), gate.touch).watched():
            reports.append(aside.redrive(WAITS))

    caplog.set_level(logging.INFO, "tiered_stream")
    running = threading.Thread(target=first)
    running.start()
    try:
        while running.is_alive() and not arrived.exists():
            time.sleep(0.01)
        aside.redrive(others)
    finally:
        gate.unlink()
        running.join()
    assert [sum(report.left.values()) for report in reports] == [1]
    assert any(conflict in record.getMessage() for record in caplog.records), caplog.text
    assert (aside.rows(), aside.letters, aside.marks) == (of("orders", *range(4)), of("orders", 4), set())
