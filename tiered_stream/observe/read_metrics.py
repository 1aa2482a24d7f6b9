"""Counters of the cost of reading, kept in each task and sent to the driver.

The counters include the metrics of KIP-1254. Spark gives a Python source no way to report metrics. So a task sends its
counters as one UDP datagram of JSON to the driver's `BatchLog`, and to the receivers in
`remote.metrics.secret.addresses`. Each datagram begins with the receiver's token, because anybody may send datagrams.
Nothing waits for a datagram. If a datagram is lost, the sums are too small, but the rows are right.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import Any

import orjson

from tiered_stream.model import ReportAddress
from tiered_stream.options.types import host_and_port

OBSERVATION = "tiered_stream"
"""Name of the counters in Spark's `StreamingQueryProgress.observedMetrics`, if tasks write the table's files."""

LATENCY_BOUNDS_MS = (10, 25, 50, 100, 250, 500, 1000, 2500, 10000)
"""Upper bounds in ms of the buckets of the latency histogram.

The counter `remote_fetches_within_N_ms` counts requests to the storage that took at most N ms.
"""

FIND_REASON = "`tiered-stream doctor` with the query's options finds the reason"

_TENTH_OF_MIB = (1 << 20) // 10
_FALLBACKS = "fallbacks_"
"""Prefix of the counters of splits that were read from a broker instead of the storage; the reason follows."""

_ALL_FALLBACKS = "remote_fetch_fallbacks"
_COST = ("remote_fetch", "broker_fetch", "decode")
"""Prefixes of the counters of the cost of reading, which also count when the same records are read again."""

MicroBatchId = tuple[str, int]
"""Identity of a micro-batch: the streaming query's id and the batch id."""


@dataclass(slots=True)
class ReadMetrics:
    """Counters of one task, or their sum over many tasks: latencies in seconds, sizes in bytes, timestamps in ms.

    `remote_fetch_…` counts requests to the storage, and `broker_fetch_…` Fetch requests to brokers. A fallback is a
    split that is read from a broker because it could not be read from the storage. `filtered_records` counts records
    that `ingest.where` left out in the direct lane.
    """

    records: int = 0
    record_bytes: int = 0
    record_timestamp_max: int = 0
    decode_seconds: float = 0.0
    remote_fetch_requests: int = 0
    remote_fetch_bytes: int = 0
    remote_fetch_latency_total: float = 0.0
    remote_fetch_latency_max: float = 0.0
    remote_fetches_within_10_ms: int = 0
    remote_fetches_within_25_ms: int = 0
    remote_fetches_within_50_ms: int = 0
    remote_fetches_within_100_ms: int = 0
    remote_fetches_within_250_ms: int = 0
    remote_fetches_within_500_ms: int = 0
    remote_fetches_within_1000_ms: int = 0
    remote_fetches_within_2500_ms: int = 0
    remote_fetches_within_10000_ms: int = 0
    remote_fetch_errors: int = 0
    remote_fetch_fallbacks: int = 0
    fallbacks_connect_timeout: int = 0
    fallbacks_read_timeout: int = 0
    fallbacks_refused: int = 0
    fallbacks_not_found: int = 0
    fallbacks_unknown_format: int = 0
    fallbacks_no_storage: int = 0
    fallbacks_no_metadata: int = 0
    fallbacks_not_located: int = 0
    fallbacks_other: int = 0
    broker_fetch_requests: int = 0
    broker_fetch_bytes: int = 0
    lost_offsets: int = 0
    filtered_records: int = 0

    def on_remote_fetch(self, size: int, seconds: float) -> None:
        """Count a request to the storage; `size` is its response's size in bytes, and `seconds` its latency."""
        self.remote_fetch_requests += 1
        self.remote_fetch_bytes += size
        self.remote_fetch_latency_total += seconds
        self.remote_fetch_latency_max = max(self.remote_fetch_latency_max, seconds)
        for bound in LATENCY_BOUNDS_MS:
            if seconds * 1000 <= bound:
                name = within(bound)
                setattr(self, name, getattr(self, name) + 1)

    def on_fallback(self, reason: str) -> None:
        """Count a split that falls back to a broker, in total and in the counter `fallbacks_<reason>`."""
        self.remote_fetch_fallbacks += 1
        name = _FALLBACKS + reason
        setattr(self, name, getattr(self, name) + 1)

    def on_broker_fetch(self, size: int) -> None:
        """Count a Fetch request to a broker; `size` is its response's size in bytes."""
        self.broker_fetch_requests += 1
        self.broker_fetch_bytes += size

    def add(self, other: ReadMetrics) -> None:
        """Add the counters of `other` to these counters; a maximum (`…_max`) becomes the larger of the two."""
        for counter in fields(self):
            own, added = getattr(self, counter.name), getattr(other, counter.name)
            setattr(self, counter.name, max(own, added) if counter.name.endswith("_max") else own + added)

    def since(self, before: ReadMetrics) -> ReadMetrics:
        """Return these counters minus the counters `before`; the maximums (`…_max`) are not subtracted."""
        own, earlier = asdict(self), asdict(before)
        return ReadMetrics(**{name: n - (0 if name.endswith("_max") else earlier[name]) for name, n in own.items()})

    def without_rows(self) -> ReadMetrics:
        """Return a copy with only the counters of requests, bytes and seconds; all other counters are 0.

        It is the cost of reading records again that have already been counted.
        """
        kept = {name: n for name, n in asdict(self).items() if name.startswith(_COST) and name != _ALL_FALLBACKS}
        return ReadMetrics(**kept)

    @property
    def fallbacks(self) -> dict[str, int]:
        """Number of splits that fell back to a broker, by reason; reasons without a split are left out."""
        counters = asdict(self).items()
        return {name.removeprefix(_FALLBACKS): n for name, n in counters if name.startswith(_FALLBACKS) and n}

    def latency_quantile(self, share: float) -> float | None:
        """Return the latency, in seconds, within which the fraction `share` (0 to 1) of the storage requests ended.

        The result is the upper bound of a histogram bucket, or the longest latency if that is shorter. It is None if
        there was no request.
        """
        for bound in LATENCY_BOUNDS_MS:
            if self.remote_fetch_requests and getattr(self, within(bound)) >= share * self.remote_fetch_requests:
                return min(bound / 1000, self.remote_fetch_latency_max)
        return self.remote_fetch_latency_max if self.remote_fetch_requests else None


def within(bound_ms: int) -> str:
    """Return the name of the counter of storage requests that took at most `bound_ms` milliseconds."""
    return f"remote_fetches_within_{bound_ms}_ms"


def describe(metrics: ReadMetrics) -> str:
    """Format the counters for people: bytes by source, latencies, and any errors, fallbacks and lost offsets."""
    text = f"{_mib(metrics.remote_fetch_bytes)} from storage, {_mib(metrics.broker_fetch_bytes)} from brokers"
    if metrics.remote_fetch_requests:
        average = metrics.remote_fetch_latency_total / metrics.remote_fetch_requests
        text += (
            f", {metrics.remote_fetch_requests:,} requests to storage of {1000 * average:,.0f} ms "
            f"(at most {1000 * metrics.remote_fetch_latency_max:,.0f})"
        )
    if metrics.remote_fetch_errors:
        text += f", {metrics.remote_fetch_errors} storage errors"
    if metrics.remote_fetch_fallbacks:
        reasons = ", ".join(f"{reason.replace('_', ' ')}: {count}" for reason, count in metrics.fallbacks.items())
        splits = "split" if metrics.remote_fetch_fallbacks == 1 else "splits"
        text += f", {metrics.remote_fetch_fallbacks} {splits} fell back to brokers ({reasons})"
        if not metrics.remote_fetch_bytes:
            text += f", nothing came from storage: {FIND_REASON}"
    if metrics.lost_offsets:
        text += f", {metrics.lost_offsets:,} offsets lost (the tasks' logs name them)"
    if metrics.filtered_records:
        text += f", {metrics.filtered_records:,} records left out by ingest.where"
    return text


def _mib(size: int) -> str:
    if 0 < size < _TENTH_OF_MIB:
        return f"{size / (1 << 10):.1f} KiB"
    return f"{size / (1 << 20):,.1f} MiB"


def new_part() -> str:
    """Return a name for an input partition that no other input partition has, also not in another query."""
    return os.urandom(8).hex()


def send(metrics: ReadMetrics, addresses: Iterable[ReportAddress], part: str = "") -> None:
    """Send the counters and the id of this task's micro-batch to each address by UDP; ignore failures.

    `part` is the name of the input partition that the task has read to its end, so that the receiver counts the records
    of a repeated task once. It is empty if the task has not read a whole input partition.
    """
    datagram = b""
    for address in addresses:
        datagram = datagram or orjson.dumps(asdict(metrics) | {"micro_batch": current_micro_batch(), "part": part})
        with suppress(OSError, ValueError):
            family, target = socket_addresses(*host_and_port(address.place))[0]
            with socket.socket(family, socket.SOCK_DGRAM) as sender:
                sender.sendto(address.token + datagram, target)


def current_micro_batch() -> MicroBatchId | None:
    """Return the query id and the batch id of the micro-batch to which the Spark task in this process belongs.

    The result is None if this process runs no task, or a task of a batch query.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    query_id = context.getLocalProperty("sql.streaming.queryId") if context else None
    batch_id = context.getLocalProperty("streaming.sql.batchId") if context else None
    return (query_id, int(batch_id)) if query_id and batch_id else None


def socket_addresses(host: str, port: int) -> list[tuple[int, Any]]:
    """Resolve a host name for UDP sockets; return pairs of an address family and a socket address.

    The host may be an IPv6 address in brackets, as Spark writes it.

    Raises:
        OSError, ValueError: the host has no address.
    """
    found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_DGRAM)
    return [(family, address) for family, _, _, _, address in found]
