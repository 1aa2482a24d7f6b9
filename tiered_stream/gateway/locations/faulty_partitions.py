"""Registry of partitions whose tiered segments could not be looked up at the last attempt, with the errors. No I/O."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tiered_stream.errors import BrokerError, TieredStreamError
from tiered_stream.gateway.gateway_metrics import PREFIX
from tiered_stream.model import TopicPartition

log = logging.getLogger(__name__)

_RETRY_SECONDS = 2.0
_MAX_NAMED = 20


class FaultyPartitions(Collector):
    """Registry of partitions whose tiered segments could not be looked up, with their errors. Thread-safe.

    A partition is called silent if its last recorded lookup failed with a retriable error, such as a timeout of the
    partition's leader. Requests do not wait for a silent partition.

    Args:
        registry: Prometheus registry, to which a metric with the number of faulty partitions by topic is added.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lock = threading.Lock()
        self._faults: dict[TopicPartition, TieredStreamError] = {}
        self._retry_at: dict[TopicPartition, float] = {}
        """Time (`monotonic`) of the next lookup, for each partition whose last error is retriable."""
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the metric with the number of faulty partitions of each topic (prometheus_client: `Collector`)."""
        family = GaugeMetricFamily(
            f"{PREFIX}_unlocated_partitions",
            "Partitions left to the brokers, because their leader or the metadata topic cannot be asked or read.",
            labels=["topic"],
        )
        with self._lock:
            by_topic = Counter(partition.topic for partition in self._faults)
        for topic, partitions in by_topic.items():
            family.add_metric([topic], partitions)
        yield family

    def silent_among(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return the silent partitions among `partitions`: their last recorded lookup failed with a retriable error."""
        with self._lock:
            return self._retry_at.keys() & set(partitions)

    def due_for_retry(self, silent: Collection[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions of `silent`, a result of `silent_among`, that the caller must look up now.

        Since their last lookup, and since the last call that returned them, at least 2 s have passed. For the next 2 s,
        no other caller gets the returned partitions.
        """
        with self._lock:
            now = time.monotonic()
            due = [partition for partition in silent if self._retry_at.get(partition, now) <= now]
            self._retry_at.update(dict.fromkeys(due, now + _RETRY_SECONDS))
            return due

    def record(self, tried: Collection[TopicPartition], faults: Mapping[TopicPartition, TieredStreamError]) -> None:
        """Record a lookup of the partitions in `tried`: drop their old errors, and add the new errors in `faults`.

        A warning is logged if `faults` has a partition that had no error before.
        """
        with self._lock:
            new = faults.keys() - self._faults.keys()
            for partition in tried:
                self._faults.pop(partition, None)
                self._retry_at.pop(partition, None)
            self._faults.update(faults)
            retry_at = time.monotonic() + _RETRY_SECONDS
            self._retry_at.update({partition: retry_at for partition, fault in faults.items() if fault.retriable})
        if new:
            log.warning("%d more partitions are left to the brokers, as %s: %s", len(new), min(new), faults[min(new)])

    def forget_others(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the errors of all partitions except `partitions`, because the other partitions no longer exist."""
        with self._lock:
            deleted = self._faults.keys() - set(partitions)
        self.record(deleted, {})

    def common_fault(self, partitions: Collection[TopicPartition]) -> BrokerError | None:
        """Return the BrokerError of one of the partitions if each of them has a BrokerError.

        Return None if `partitions` is empty, or if a partition has no error or another kind of error.
        """
        with self._lock:
            faults = [fault for name in partitions if isinstance(fault := self._faults.get(name), BrokerError)]
        return faults[0] if faults and len(faults) == len(partitions) else None

    def reasons(self) -> list[str]:
        """Return one line for each of the first 20 faulty partitions; if there are more, one line has their number."""
        with self._lock:
            faults = sorted(self._faults.items(), key=lambda fault: fault[0])
        lines = [f"{partition} is left to the brokers: {fault}" for partition, fault in faults[:_MAX_NAMED]]
        return (
            [*lines, f"{len(faults) - _MAX_NAMED} more are left to the brokers"] if len(faults) > _MAX_NAMED else lines
        )
