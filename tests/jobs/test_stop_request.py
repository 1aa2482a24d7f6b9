"""Request to stop a job, without a job."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest
from pyspark.errors import PySparkException

from tiered_stream.ingest import ingest_run, stop_request
from tiered_stream.ingest.ingest_plan import Ingest
from tiered_stream.ingest.stop_request import StopRequest, stop_requests


def test_the_end_of_the_jvm_waits_until_the_job_has_stopped() -> None:
    request = StopRequest(timeout_s=60)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(request.run)
        try:
            with pytest.raises(TimeoutError):
                waiting.result(0.1)
        finally:
            request.end()
        waiting.result(30)
    assert request.signal == signal.SIGTERM


@pytest.fixture
def handlers() -> Iterator[Mapping[int, Any]]:
    """Handlers of the signals, which stay as they are."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield before
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("in_python", [True, False])
def test_after_the_job_signals_have_their_handlers_or_the_default_for_those_in_c(
    monkeypatch: pytest.MonkeyPatch, handlers: Mapping[int, Any], in_python: bool
) -> None:
    set_handler = signal.signal

    def set_unknown(number: int, handler: Any) -> None:
        set_handler(number, handler)

    monkeypatch.setattr(signal, "signal", set_handler if in_python else set_unknown)
    monkeypatch.setattr(stop_request, "is_connect", Mock(return_value=True))
    session: Any = None
    with stop_requests(session, timeout_s=0):
        assert signal.getsignal(signal.SIGTERM) != handlers[signal.SIGTERM]
    for number, handler in handlers.items():
        assert signal.getsignal(number) == (handler if in_python else signal.SIG_DFL)


@dataclass
class Query:
    """A streaming query that waits for data."""

    error: PySparkException | None = None
    id = UUID(int=1)
    isActive: bool = True  # noqa: N815 - Spark's name
    lastProgress = None  # noqa: N815 - Spark's name
    status = MappingProxyType({"isDataAvailable": False, "isTriggerActive": False, "message": "Waiting for data"})

    def stop(self) -> None:
        if self.error is not None:
            raise self.error
        self.isActive = False

    def exception(self) -> None:
        """It has not failed."""


def test_a_query_that_spark_does_not_stop_has_failed_and_the_others_are_stopped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    request = StopRequest(timeout_s=0)
    queries = {"stuck": Query(PySparkException("it failed to stop within 5 ms")), "other": Query()}

    def wait(seconds: float) -> None:
        request.signal = signal.SIGTERM

    streams = SimpleNamespace(awaitAnyTermination=wait, resetTerminated=lambda: None)
    session: Any = SimpleNamespace(streams=streams, conf=SimpleNamespace(get=lambda name, default: default))
    monkeypatch.setattr(ingest_run, "stop_requests", lambda *_: nullcontext(request))
    monkeypatch.setattr(ingest_run.IngestQuery, "_start", lambda self, _, planned, keeps_table: queries[planned.table])
    outcome = ingest_run.run_all(session, [Ingest({}, table, table, "0 seconds") for table in queries], 0)
    assert (list(outcome.failed), list(outcome.ended)) == (["ingest stuck"], ["ingest stuck", "ingest other"])
    assert not queries["other"].isActive and outcome.stopped_by == signal.SIGTERM
    assert "ingest other: in all " in capsys.readouterr().out
