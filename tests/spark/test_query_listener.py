from __future__ import annotations

import io
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import orjson
import pytest
from pyspark.sql.streaming.listener import StreamingQueryProgress

from tests.cli.test_watch_command import batch
from tiered_stream.observe import metrics_receiver
from tiered_stream.observe.landed_rows import LandedRows
from tiered_stream.observe.metrics_receiver import MetricsReceiver
from tiered_stream.observe.read_metrics import OBSERVATION, ReadMetrics
from tiered_stream.spark.reporting import BatchLines, QueryListener


def ended(*, json: bool) -> list[str]:
    out = io.StringIO()
    lines = BatchLines(json=json, out=out)
    made = replace(batch("orders", 1, lag=0), tables=(LandedRows("bronze", 1498, 2, "dead"),))
    for number in (1, 2):
        lines.add(replace(made, batch_id=number))
    lines.ended(made.query_id)
    lines.ended("another query")
    return out.getvalue().splitlines()


def test_an_ended_query_has_one_more_line_with_its_sum() -> None:
    *batches, summed = ended(json=False)
    assert [line.split(", ")[:3] for line in batches] == [
        [f"orders: batch {number}: 1,500 rows read", "1,498 rows landed", "2 dead letters in dead"] for number in (1, 2)
    ]
    assert summed.startswith("orders: in all 3,000 rows read, 2,996 rows landed, 4 dead letters in dead, 6.0 MiB from")


def test_a_sum_has_the_cost_of_micro_batches_without_rows() -> None:
    out = io.StringIO()
    lines = BatchLines(json=False, out=out)
    made = batch("orders", 1, lag=0)
    lines.add(made)
    lines.add(replace(made, batch_id=2, rows=0))  # such as aborted records alone
    lines.ended(made.query_id)
    idle = replace(made, query_id="idle", rows=0, cost=ReadMetrics())
    lines.add(idle)
    lines.ended(idle.query_id)
    told, summed = out.getvalue().splitlines()
    assert ", 3.0 MiB from storage" in told and summed.startswith("orders: in all 1,500 rows, 6.0 MiB from storage")


def test_json_lines_have_micro_batches_alone() -> None:
    assert len(ended(json=True)) == 2


QUERY = "00000000-0000-0000-0000-000000000001"


SOURCE = {
    "description": "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@1", "startOffset": None,
    "endOffset": {"t": {"0": 7}}, "latestOffset": None, "numInputRows": 7, "inputRowsPerSecond": 0.0,
    "processedRowsPerSecond": 0.0,
}  # fmt: skip


def progress_event(batch_id: int, observed: dict[str, Any], *sources: dict[str, Any]) -> Any:
    progress = {
        "id": QUERY, "runId": QUERY, "name": "orders", "timestamp": "2026-01-01T00:00:00.000Z", "batchId": batch_id,
        "batchDuration": 1, "durationMs": {"triggerExecution": 1}, "stateOperators": [], "sources": sources,
        "sink": {"description": "", "numOutputRows": -1}, "numInputRows": 7, "inputRowsPerSecond": 0.0,
        "processedRowsPerSecond": 0.0, "observedMetrics": observed,
    }  # fmt: skip
    return SimpleNamespace(progress=StreamingQueryProgress.fromJson(progress))


def test_a_micro_batch_whose_counters_spark_has_is_reported_though_all_datagrams_were_lost() -> None:
    out = io.StringIO()
    with MetricsReceiver() as receiver:
        listener = QueryListener(receiver, [BatchLines(json=False, out=out)])
        listener.onQueryProgress(progress_event(0, {OBSERVATION: asdict(ReadMetrics(records=12))}))
        listener.onQueryProgress(progress_event(0, {}))
    assert out.getvalue().startswith("orders: batch 0: 12 rows, ")


def test_a_query_that_failed_and_runs_again_repeats_no_cost() -> None:
    out = io.StringIO()
    with MetricsReceiver() as receiver:
        listener = QueryListener(receiver, [BatchLines(json=False, out=out)])
        read = orjson.dumps(asdict(ReadMetrics(records=7, remote_fetch_bytes=1 << 20)) | {"micro_batch": [QUERY, 3]})
        for part in (b"first_run", b"next_run"):
            receiver._take(receiver.report_to[0].token + read[:-1] + b',"part":"' + part + b'"}')
            if part != b"next_run":
                listener.onQueryTerminated(SimpleNamespace(id=QUERY))  # type: ignore[arg-type]
        listener.onQueryProgress(progress_event(3, {}))
    assert "1.0 MiB from storage" in out.getvalue()


def test_a_reporter_that_fails_keeps_no_report_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    broken, out = Mock(add=Mock(side_effect=BrokenPipeError), ended=Mock(side_effect=BrokenPipeError)), io.StringIO()
    with MetricsReceiver() as receiver:
        listener = QueryListener(receiver, [broken, BatchLines(json=False, out=out)])
        listener.onQueryProgress(progress_event(0, {OBSERVATION: asdict(ReadMetrics(records=12))}))
        listener.onQueryTerminated(SimpleNamespace(id=QUERY))  # type: ignore[arg-type]
    assert [line.split(", ")[0] for line in out.getvalue().splitlines()] == [
        "orders: batch 0: 12 rows", "orders: in all 12 rows",
    ]  # fmt: skip
    assert len(caplog.messages) == 2


@pytest.mark.parametrize("has_port", [True, False])
def test_a_query_without_counters_is_blamed_for_them_only_if_tasks_could_send_some(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, has_port: bool
) -> None:
    if not has_port:
        monkeypatch.setattr(metrics_receiver, "_bound", Mock(side_effect=OSError("Address already in use")))
    with MetricsReceiver() as receiver:
        listener = QueryListener(receiver, [])
        for number in range(2):
            listener.onQueryProgress(progress_event(number, {}, SOURCE))
    (told,) = caplog.messages
    assert told.startswith("query orders is not reported" if has_port else "the costs of reading are not counted")
