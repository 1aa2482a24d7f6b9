from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.stack.processes import wait_until
from tiered_stream.model import TopicPartition
from tiered_stream.observe.driver_log import BatchLog
from tiered_stream.observe.metrics import ReadMetrics, send


@pytest.fixture
def batch_log(caplog: pytest.LogCaptureFixture) -> Iterator[BatchLog]:
    caplog.set_level(logging.INFO, "tiered_stream")
    log = BatchLog()
    yield log
    log.close()


def arrived(log: BatchLog, metrics: ReadMetrics) -> None:
    """Send them, and wait for them."""
    send(metrics, [log.address])
    wait_until(lambda: log._receiver.total() == metrics, "the datagram", pause=0.01)


def test_each_micro_batch_is_told_with_its_own_counters(batch_log: BatchLog, caplog: pytest.LogCaptureFixture) -> None:
    arrived(batch_log, ReadMetrics(records=1500, remote_fetch_bytes=2 << 20))
    batch_log.report()
    arrived(batch_log, ReadMetrics(records=7))
    batch_log.report()
    assert [record.getMessage() for record in caplog.records] == [
        "the last micro-batch: 1,500 rows, 2.0 MiB from storage, 0.0 MiB from brokers",
        "the last micro-batch: 7 rows, 0.0 MiB from storage, 0.0 MiB from brokers",
    ]


def test_a_lag_that_is_known_ends_the_line(batch_log: BatchLog, caplog: pytest.LogCaptureFixture) -> None:
    batch_log.lag = {TopicPartition("t", 0): 5, TopicPartition("t", 1): 1200, TopicPartition("t", 2): 0}
    arrived(batch_log, ReadMetrics(records=7))
    batch_log.report()
    assert caplog.records[0].getMessage().endswith("0.0 MiB from brokers, lag 1,205 offsets (1,200 in t-1)")


def test_nothing_is_told_of_a_micro_batch_that_cost_nothing(
    batch_log: BatchLog, caplog: pytest.LogCaptureFixture
) -> None:
    arrived(batch_log, ReadMetrics(records=7, remote_fetch_latency_max=0.1))
    batch_log.report()
    batch_log.report()
    assert len(caplog.records) == 1


def test_the_last_micro_batch_is_told_when_the_query_stops(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tiered_stream")
    stopped = BatchLog()
    arrived(stopped, ReadMetrics(records=3))
    stopped.close()
    assert "3 rows" in caplog.text


@pytest.mark.parametrize(("set_up", "lines"), [("", 1), ("logging.basicConfig()", 0)])
def test_our_lines_go_to_stderr_once_where_nobody_set_logging_up(set_up: str, lines: int) -> None:
    program = f"""
import logging
from tiered_stream.process.logs import show_log
{set_up}
show_log()
show_log()
logging.getLogger("tiered_stream.somewhere").info("a line")
"""
    shown = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stderr
    assert shown.count("INFO <string>: a line\n") == lines


@pytest.mark.parametrize(
    ("local_ip", "hostname", "host"),
    [
        ("::1", "", "[::1]"),
        ("192.0.2.1", "", "192.0.2.1"),  # of no machine
        ("127.0.0.1", "driver.example", "driver.example"),
        ("no host at all", "", "no host at all"),
    ],
)
def test_whatever_spark_is_told_of_its_address_costs_no_query(
    monkeypatch: pytest.MonkeyPatch, local_ip: str, hostname: str, host: str
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", local_ip)
    monkeypatch.setenv("SPARK_LOCAL_HOSTNAME", hostname)
    log = BatchLog()
    assert log.address.rpartition(":")[0] == host
    log.close()


@pytest.mark.parametrize("local_ip", ["0.0.0.0", "::"])
def test_executors_are_told_one_address_where_the_driver_listens_at_all(
    monkeypatch: pytest.MonkeyPatch, local_ip: str
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", local_ip)
    monkeypatch.delenv("SPARK_LOCAL_HOSTNAME", raising=False)
    log = BatchLog()
    assert log.address.rpartition(":")[0] not in ("", "0.0.0.0", "::", "[::]")
    log.close()
