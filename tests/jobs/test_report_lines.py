"""The job's line for a micro-batch has that batch's cost, whatever its neighbours have reported by then."""

from __future__ import annotations

import socket
import time
from dataclasses import asdict, dataclass, field
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import orjson
import pytest
from pyspark.sql.streaming.listener import StreamingQueryProgress

from tests.rigs.stack.processes import wait_until
from tiered_stream.ingest import ingest_run
from tiered_stream.observe import landed_rows
from tiered_stream.observe.landed_rows import LandedRows, note_landed
from tiered_stream.observe.read_metrics import OBSERVATION, ReadMetrics

QUERY = UUID(int=1)
MIB = 1 << 20
SPARK: Any = SimpleNamespace(conf=SimpleNamespace(get=lambda name, default: default))


@dataclass
class Query:
    """A streaming query that goes on."""

    recentProgress: list[StreamingQueryProgress] = field(default_factory=list)  # noqa: N815 - Spark's name
    id: UUID = QUERY
    isActive = True  # noqa: N815 - Spark's name

    def exception(self) -> None:
        """It has not failed."""

    @property
    def lastProgress(self) -> StreamingQueryProgress | None:  # noqa: N802 - Spark's name
        return self.recentProgress[-1] if self.recentProgress else None


class Ingest(ingest_run.IngestQuery):
    """The job's query, over one that was made up."""

    def __init__(self) -> None:
        self.query = Query()
        super().__init__(SPARK, ingest_run.Ingest({}, "table", "checkpoint", "availableNow"))

    def _start(self, spark: Any, ingest: ingest_run.Ingest, keeps_table: bool) -> Any:
        return self.query

    def task_ended(self, batch: int, metrics: ReadMetrics) -> None:
        """A task of the batch reports."""
        host, _, port = self._receiver.address.rpartition(":")
        before = self._receiver.total().records
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            datagram = orjson.dumps(asdict(metrics) | {"micro_batch": [str(QUERY), batch], "part": ""})
            sender.sendto(self._receiver.report_to[0].token + datagram, (host, int(port)))
        wait_until(lambda: self._receiver.total().records == before + metrics.records, "the datagram", pause=0.01)

    def batch_ended(self, batch: int, rows: int, observed: dict[str, Any] | None = None) -> None:
        """Spark has its progress."""
        progress = {
            "id": str(QUERY), "runId": str(QUERY), "name": None, "timestamp": "2026-01-01T00:00:00.000Z",
            "batchId": batch, "batchDuration": 1, "durationMs": {"triggerExecution": 1}, "stateOperators": [],
            "sources": [], "sink": {"description": "", "numOutputRows": -1}, "numInputRows": rows,
            "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 0.0,
            "observedMetrics": {OBSERVATION: observed} if observed else {},
        }  # fmt: skip
        self.query.recentProgress.append(StreamingQueryProgress.fromJson(progress))


@pytest.fixture
def ingest() -> Any:
    query = Ingest()
    yield query
    query._receiver.close()
    landed_rows._committed.clear()


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was printed of batches, without the name."""
    return [line.partition(": ")[2] for line in capsys.readouterr().out.splitlines() if ": batch " in line]


def test_a_batch_has_its_own_cost_though_the_next_has_reported_by_then(
    ingest: Ingest, capsys: pytest.CaptureFixture[str]
) -> None:
    for batch, mib in ((2, 3), (3, 5)):
        ingest.task_ended(batch, ReadMetrics(records=10, remote_fetch_bytes=mib * MIB))
        ingest.batch_ended(batch, 10)
    ingest.task_ended(4, ReadMetrics(records=1, remote_fetch_bytes=7 * MIB))
    ingest.has_ended()
    assert [line.split(", ")[2] for line in lines(capsys)] == ["3.0 MiB from storage", "5.0 MiB from storage"]
    ingest.batch_ended(4, 1)
    ingest.has_ended()
    assert "7.0 MiB from storage" in lines(capsys)[0]


def test_what_spark_observed_of_a_batch_goes_before_datagrams_that_may_be_lost(
    ingest: Ingest, capsys: pytest.CaptureFixture[str]
) -> None:
    ingest.batch_ended(0, 1, asdict(ReadMetrics(records=12, remote_fetch_bytes=9 * MIB)))
    ingest.has_ended()
    (line,) = lines(capsys)
    assert line.startswith("batch 0: 12 rows") and "9.0 MiB from storage" in line


def test_dead_letters_are_in_the_line_and_in_the_sum(ingest: Ingest, capsys: pytest.CaptureFixture[str]) -> None:
    for batch in (0, 1):
        ingest.task_ended(batch, ReadMetrics(records=12))
        note_landed((str(QUERY), batch), [LandedRows("table", 10, 2, "dead")])
        ingest.batch_ended(batch, 12)
    ingest.has_ended()
    ingest.close()
    *told, summed = capsys.readouterr().out.splitlines()[-3:]
    for line in told:
        assert "12 rows read, 10 rows landed, 2 dead letters in dead, " in line
    assert summed.startswith("ingest table: in all 24 rows read, 20 rows landed, 4 dead letters in dead, ")


def test_a_sum_is_the_sum_of_the_lines_though_datagrams_are_lost_or_doubled(
    ingest: Ingest, capsys: pytest.CaptureFixture[str]
) -> None:
    for batch, reports in enumerate((0, 2, 1)):
        for _ in range(reports):
            ingest.task_ended(batch, ReadMetrics(records=12, remote_fetch_bytes=3 * MIB))
        note_landed((str(QUERY), batch), [LandedRows("table", 12)])
        ingest.batch_ended(batch, 1, asdict(ReadMetrics(records=12, remote_fetch_bytes=3 * MIB)))
    ingest.task_ended(3, ReadMetrics(records=5, remote_fetch_bytes=MIB))  # of a micro-batch that fails
    ingest.has_ended()
    ended, _ = ingest.close()
    assert str(ended) == "41 rows read, 36 rows landed, 10.0 MiB from storage, 0.0 MiB from brokers"


def test_a_sum_has_the_micro_batches_that_spark_forgot_before_they_had_a_line(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark keeps the progress of its last 100 micro-batches."""
    note_landed((str(QUERY), 0), [LandedRows("table", 1000)])  # by an earlier run of the query
    ingest._began = time.monotonic()
    monkeypatch.setattr(ingest_run, "_SECONDS_BETWEEN_REPORTS", -1.0)
    for batches in (range(1, 4), range(4, 8)):
        for batch in batches:
            ingest.task_ended(batch, ReadMetrics(records=12, remote_fetch_bytes=3 * MIB))
            note_landed((str(QUERY), batch), [LandedRows("table", 10, 2, "dead")])
            ingest.batch_ended(batch, 12)
        del ingest.query.recentProgress[:-1]
        ingest.has_ended()
        assert "so far" not in capsys.readouterr().out
    ended, _ = ingest.close()
    assert ended == ingest_run.Ended(
        ReadMetrics(records=7 * 12, remote_fetch_bytes=7 * 3 * MIB), (LandedRows("table", 7 * 10, 7 * 2, "dead"),)
    )


@pytest.mark.parametrize("records", [0, 5])
def test_a_query_that_lands_nothing_hides_no_dead_letters_of_others(ingest: Ingest, records: int) -> None:
    ingest.task_ended(0, ReadMetrics(records=records))  # of a micro-batch that fails
    nothing, _ = ingest.close()
    other = ingest_run.Ended(ReadMetrics(records=12), (LandedRows("table", 10, 2, "dead"),))
    failed = {"nothing": "the reason"} if records else {}
    assert ingest_run.Outcome({"nothing": nothing, "other": other}, failed).tables() == other.tables
    unknown = ingest_run.Ended(ReadMetrics(records=1), None)
    assert ingest_run.Outcome({"unknown": unknown, "other": other}).tables() is None


def test_what_is_under_way_is_told_apart_from_what_was_reported(
    ingest: Ingest, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest.task_ended(0, ReadMetrics(records=10, remote_fetch_bytes=3 * MIB))
    ingest.task_ended(1, ReadMetrics(records=4, remote_fetch_bytes=5 * MIB))
    ingest.batch_ended(0, 10)
    monkeypatch.setattr(ingest_run, "_SECONDS_BETWEEN_REPORTS", -1.0)
    ingest.has_ended()
    assert "so far 4 rows, 5.0 MiB from storage" in capsys.readouterr().out


def test_a_run_whose_checkpoint_another_run_has_used_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = ingest_run.Outcome()
    ingest_run._failed(outcome, "orders", RuntimeError("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log"))
    assert outcome.failed["orders"].startswith("another run has used its checkpoint")
    assert "CONCURRENT_STREAM_LOG_UPDATE" in " ".join(capsys.readouterr().out.split())
