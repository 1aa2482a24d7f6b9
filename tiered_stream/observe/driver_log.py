"""Log lines of the driver about the cost of reading each micro-batch, and about the whole run of a query.

Spark plans a Python source in a separate process next to the driver's JVM, whose stderr is part of the driver's log.
Spark may end this process before it stops the source. So a micro-batch has its line as soon as all its tasks have
reported, and not only when Spark plans the next micro-batch.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress

from cachetools import LRUCache

from tiered_stream.model import PartitionOffsets, TopicPartition
from tiered_stream.observe.metrics_receiver import MetricsReceiver, Report
from tiered_stream.observe.read_metrics import MicroBatchId, ReadMetrics, describe
from tiered_stream.process.logs import await_reader

log = logging.getLogger(__name__)

_ALL_ADDRESSES = ("0.0.0.0", "::", "[::]")
_PENDING = 64
"""Maximum number of micro-batches whose reports are kept until their line is logged."""
_SECONDS_FOR_REPORTS = 1.0
"""Maximum time to wait at the end of a run for the reports of its last tasks."""


class BatchLog:
    """Receiver of the reports that a query's tasks send to `address`; it logs their sum once for each micro-batch.

    `address` is `host:port`, or empty if no port could be opened. `report_to` is the same address with the token that
    tasks need.
    """

    def __init__(self, *, loopback: bool = False) -> None:
        """Open the receiver. If `loopback` is true, it listens at 127.0.0.1, because all tasks run on this machine."""
        self._changed = threading.Condition()
        self._pending: LRUCache[MicroBatchId | None, tuple[int, ReadMetrics]] = LRUCache(_PENDING)
        """Number of reports and their sum, by micro-batch. The key is None if tasks did not know their micro-batch."""
        self._again: LRUCache[MicroBatchId | None, ReadMetrics] = LRUCache(_PENDING)
        """Cost of input partitions that were read again, by micro-batch."""
        self._awaited = 0
        self._end: object = None
        self._lag: Mapping[TopicPartition, int] = {}
        self._total = ReadMetrics()
        self._batches = 0
        if loopback:
            self._receiver = MetricsReceiver(on_report=self._add)
        else:
            self._receiver = MetricsReceiver(_own_host(), os.environ.get("SPARK_LOCAL_IP") or None, self._add)
        self.address, self.report_to = self._receiver.address, self._receiver.report_to

    def begin(self, reports: int, lag: Mapping[TopicPartition, int], end: object = None) -> None:
        """Log earlier micro-batches that have reports but no line yet, then register a newly planned micro-batch.

        Args:
            reports: number of reports that the micro-batch's tasks send if all of them succeed, or 0 if it is unknown.
            lag: number of offsets from the micro-batch's end to the log's end, by partition, empty if it is unknown.
            end: end offsets of the micro-batch. If they are equal to the end of the last call, Spark has planned the
                same micro-batch again, because the query uses the stream several times. `reports` is then added to the
                number of expected reports. None: it is another micro-batch in any case.
        """
        with self._changed:
            if end is not None and end == self._end:
                self._awaited += reports
                return
        self.report()
        with self._changed:
            self._awaited, self._lag, self._end = reports, lag, end

    def report(self) -> None:
        """Log a line for each micro-batch with reports that have no line yet."""
        self._receiver.drain()  # without the lock, because the receiver's thread takes it while it drains
        with self._changed:
            if self._awaited and self.address and not self._pending:
                log.info(
                    "a micro-batch: none of its %d tasks has sent a report by UDP to %s", self._awaited, self.address
                )
            for micro_batch in list(self._pending):
                self._log(micro_batch)
            self._awaited = 0
            while self._again:
                micro_batch, spent = self._again.popitem()
                log.info("%s: read again: %s", _name(micro_batch), describe(spent))
                self._total.add(spent)

    def finish(self) -> None:
        """Wait at most 1 s for the last tasks' reports, then log the sum of all micro-batches since the last call.

        Call this method when the query has read everything.
        """
        self._receiver.drain()
        with self._changed:
            # If no report has ever arrived, the tasks cannot reach this machine, and waiting is in vain.
            if self._batches or self._pending:
                self._changed.wait_for(lambda: not self._awaited, _SECONDS_FOR_REPORTS)
        self.report()
        with self._changed:
            if self._batches:
                batches = f"{self._batches:,} micro-batch{'es' if self._batches > 1 else ''}"
                rows = f"{self._total.records:,} rows read"
                log.info("the source is at its end: %s, %s, %s", batches, rows, describe(self._total))
            self._batches, self._total, self._awaited = 0, ReadMetrics(), 0
        await_reader()  # Spark ends this process next.

    def close(self) -> None:
        """Stop listening, and log the remaining lines and the sum."""
        self._receiver.close()
        self._awaited = 0
        self.finish()

    def _add(self, report: Report) -> None:
        micro_batch = report.micro_batch
        with self._changed:
            if report.is_repeated:
                self._again.setdefault(micro_batch, ReadMetrics()).add(report.metrics)
                return
            reports, spent = self._pending.pop(micro_batch, (0, ReadMetrics()))
            spent.add(report.metrics)
            self._pending[micro_batch] = reports + 1, spent
            if reports + 1 == self._awaited:
                self._log(micro_batch)
                self._awaited = 0
                self._changed.notify_all()

    def _log(self, micro_batch: MicroBatchId | None) -> None:
        reports, spent = self._pending.pop(micro_batch)
        lag = f", {describe_lag(self._lag)}" if self._lag else ""
        lost = f", {self._awaited - reports:,} of {self._awaited:,} tasks sent no report" * (reports < self._awaited)
        log.info("%s: %s rows read, %s%s%s", _name(micro_batch), f"{spent.records:,}", describe(spent), lag, lost)
        self._total.add(spent)
        self._batches += 1


def _name(micro_batch: MicroBatchId | None) -> str:
    return "a micro-batch" if micro_batch is None else f"micro-batch {micro_batch[1]} of query {micro_batch[0]}"


def _own_host() -> str:
    """Return the host name or address by which executors reach this machine (Spark: `Utils.localHostName`)."""
    local_ip = os.environ.get("SPARK_LOCAL_IP", "")
    configured = os.environ.get("SPARK_LOCAL_HOSTNAME") or ("" if local_ip in _ALL_ADDRESSES else local_ip)
    if configured:
        return configured
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError, UnicodeError):
            return str(socket.getaddrinfo(socket.gethostname(), None, family)[0][4][0])
    return "127.0.0.1"


def offset_lag(end: PartitionOffsets, latest: PartitionOffsets) -> dict[TopicPartition, int]:
    """Return the number of offsets from a micro-batch's end to the log's end, for each partition in `latest`.

    Args:
        end: end offsets of the micro-batch; 0 for a partition that is missing.
        latest: end offsets of the logs.
    """
    return {partition: max(0, log_end - end.get(partition, 0)) for partition, log_end in latest.items()}


def describe_lag(lag: Mapping[TopicPartition, int]) -> str:
    """Format the total lag of all partitions as text; if several partitions lag, name the one with the largest lag."""
    text = f"lag {sum(lag.values()):,} offsets"
    if sum(map(bool, lag.values())) > 1:
        largest = max(lag, key=lambda partition: (lag[partition], partition))
        text += f" ({lag[largest]:,} in {largest})"
    return text
