"""Request to stop a job, without a job."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from tiered_stream.ingest.stop_request import StopRequest


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
