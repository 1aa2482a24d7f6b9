from __future__ import annotations

import logging
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict

import orjson
import pytest

from tests.observe.test_read_metrics import send_bytes
from tests.rigs.stack.processes import wait_until
from tiered_stream.model import TopicPartition
from tiered_stream.observe.driver_log import BatchLog
from tiered_stream.observe.read_metrics import ReadMetrics


@pytest.fixture
def batch_log(caplog: pytest.LogCaptureFixture) -> Iterator[BatchLog]:
    caplog.set_level(logging.INFO, "tiered_stream")
    log = BatchLog()
    yield log
    log.close()


def report(log: BatchLog, batch: int, metrics: ReadMetrics, part: str = "") -> None:
    """Send the report of a task of the micro-batch."""
    send_bytes(orjson.dumps(asdict(metrics) | {"micro_batch": ["q", batch], "part": part}), log)


def test_a_micro_batch_has_its_line_when_its_last_task_has_reported(
    batch_log: BatchLog, caplog: pytest.LogCaptureFixture
) -> None:
    batch_log.begin(2, {})
    report(batch_log, 0, ReadMetrics(records=1499, remote_fetch_bytes=1 << 20))
    report(batch_log, 0, ReadMetrics(records=1, remote_fetch_bytes=1 << 20))
    wait_until(lambda: caplog.messages, "a line", pause=0.01)
    batch_log.begin(1, {})
    report(batch_log, 1, ReadMetrics(records=7))
    wait_until(lambda: len(caplog.messages) == 2, "a second line", pause=0.01)
    assert caplog.messages == [
        "micro-batch 0 of query q: 1,500 rows read, 2.0 MiB from storage, 0.0 MiB from brokers",
        "micro-batch 1 of query q: 7 rows read, 0.0 MiB from storage, 0.0 MiB from brokers",
    ]


def test_a_lag_that_is_known_ends_the_line(batch_log: BatchLog, caplog: pytest.LogCaptureFixture) -> None:
    batch_log.begin(1, {TopicPartition("t", 0): 5, TopicPartition("t", 1): 1200, TopicPartition("t", 2): 0})
    report(batch_log, 0, ReadMetrics(records=7))
    wait_until(lambda: caplog.messages, "a line", pause=0.01)
    assert caplog.messages[0].endswith("0.0 MiB from brokers, lag 1,205 offsets (1,200 in t-1)")


def test_a_micro_batch_whose_last_report_is_lost_has_its_line_when_the_next_one_is_planned(
    batch_log: BatchLog, caplog: pytest.LogCaptureFixture
) -> None:
    batch_log.begin(2, {})
    report(batch_log, 0, ReadMetrics(records=7))
    wait_until(lambda: batch_log._receiver.total().records == 7, "the report", pause=0.01)
    batch_log.begin(0, {})
    batch_log.begin(0, {})
    assert caplog.messages == [
        "micro-batch 0 of query q: 7 rows read, 0.0 MiB from storage, 0.0 MiB from brokers, 1 of 2 tasks sent no report"
    ]


def test_tasks_that_are_repeated_add_no_rows_and_no_micro_batch(
    batch_log: BatchLog, caplog: pytest.LogCaptureFixture
) -> None:
    batch_log.begin(2, {})
    for part in ("a", "a", "b", "b"):
        report(batch_log, 0, ReadMetrics(records=10, remote_fetch_bytes=1 << 20), part=part)
    batch_log.finish()
    assert caplog.messages == [
        "micro-batch 0 of query q: 20 rows read, 2.0 MiB from storage, 0.0 MiB from brokers",
        "micro-batch 0 of query q: read again: 2.0 MiB from storage, 0.0 MiB from brokers",
        "the source is at its end: 1 micro-batch, 20 rows read, 4.0 MiB from storage, 0.0 MiB from brokers",
    ]


def test_a_micro_batch_that_is_planned_twice_has_one_line(
    batch_log: BatchLog, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        batch_log.begin(1, {}, {"t": {"0": 10}})
    for part in ("a", "b"):
        report(batch_log, 0, ReadMetrics(records=10), part=part)
    batch_log.finish()
    assert [line.split(",")[0] for line in caplog.messages] == [
        "micro-batch 0 of query q: 20 rows read", "the source is at its end: 1 micro-batch",
    ]  # fmt: skip


def test_the_only_report_is_counted_though_the_receivers_thread_has_not_run_yet(
    batch_log: BatchLog, caplog: pytest.LogCaptureFixture
) -> None:
    with batch_log._receiver._lock:  # so long its thread cannot count
        batch_log.begin(1, {})
        report(batch_log, 0, ReadMetrics(records=10))
        batch_log.finish()
    assert [line.split(",")[0] for line in caplog.messages] == [
        "micro-batch 0 of query q: 10 rows read", "the source is at its end: 1 micro-batch",
    ]  # fmt: skip


def test_a_query_at_its_end_says_the_sum_of_its_micro_batches(
    batch_log: BatchLog, caplog: pytest.LogCaptureFixture
) -> None:
    for batch, records in enumerate((1500, 7)):
        batch_log.begin(1, {})
        report(batch_log, batch, ReadMetrics(records=records, broker_fetch_bytes=1 << 20))
        wait_until(lambda: len(caplog.messages) > batch, "the line of the micro-batch", pause=0.01)  # noqa: B023
    batch_log.finish()
    batch_log.finish()
    assert caplog.messages[2:] == [
        "the source is at its end: 2 micro-batches, 1,507 rows read, 0.0 MiB from storage, 2.0 MiB from brokers"
    ]


def test_tasks_that_cannot_reach_the_driver_are_named_with_their_address(
    batch_log: BatchLog, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        batch_log.begin(12, {})
    batch_log.finish()
    said = f"a micro-batch: none of its 12 tasks has sent a report by UDP to {batch_log.address}"
    assert caplog.messages == [said, said]


def test_a_planner_without_a_port_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(family: int, address: object, token: bytes) -> socket.socket:
        raise OSError("too many open files")

    monkeypatch.setattr("tiered_stream.observe.metrics_receiver._listening", refused)
    log = BatchLog()
    for _ in range(2):
        log.begin(12, {})
    log.close()
    assert (log.address, log.report_to, log._receiver.total()) == ("", (), ReadMetrics())
    (said,) = caplog.messages
    assert "the costs of reading are not counted" in said and "too many open files" in said


def test_a_query_that_read_nothing_says_nothing(batch_log: BatchLog, caplog: pytest.LogCaptureFixture) -> None:
    batch_log.begin(0, {})
    batch_log.finish()
    assert not caplog.records


def test_reports_without_a_line_get_it_when_the_query_stops(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tiered_stream")
    stopped = BatchLog()
    stopped.begin(2, {})
    report(stopped, 0, ReadMetrics(records=3))
    wait_until(lambda: stopped._receiver.total().records == 3, "the report", pause=0.01)
    stopped.close()
    assert [line.partition(" rows read")[0] for line in caplog.messages] == [
        "micro-batch 0 of query q: 3", "the source is at its end: 1 micro-batch, 3",
    ]  # fmt: skip


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
        ("0.0.0.0", "", "one address"),
        ("::", "", "one address"),
    ],
)
def test_whatever_spark_is_told_of_its_address_costs_no_query(
    monkeypatch: pytest.MonkeyPatch, local_ip: str, hostname: str, host: str
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", local_ip)
    monkeypatch.setenv("SPARK_LOCAL_HOSTNAME", hostname)
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    with closing(BatchLog()) as log:
        told = log.address.rpartition(":")[0]
    assert told in ("127.0.0.1", "[::1]") if host == "one address" else told == host


def test_reports_of_tasks_on_the_drivers_machine_come_by_the_loopback_interface() -> None:
    log = BatchLog(loopback=True)
    assert log.address.rpartition(":")[0] == "127.0.0.1"
    assert log._receiver._sockets[-1].getsockname()[0] == "127.0.0.1"
    log.close()
