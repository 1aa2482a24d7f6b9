"""Millions of records, by Kafka's own `ProducerPerformance` (10 M of 100 bytes in about a minute on two cores)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.rigs.stack.broker import KafkaBroker
from tests.rigs.stack.errors import StackError
from tests.rigs.stack.processes import LONG
from tests.rigs.stack.tools import PERFORMANCE_PRODUCER, run_tool

PRODUCER = {"linger.ms": "20", "batch.size": "262144", "buffer.memory": "67108864", "acks": "1"}


def produce_bulk(
    broker: KafkaBroker,
    topic: str,
    records: int,
    record_bytes: int = 100,
    properties: Mapping[str, str] | None = None,
    timeout: float = LONG,
    *,
    payload: Path | None = None,
) -> None:
    """Produce `records` values of `record_bytes` upper-case letters, without keys, over all partitions.

    Args:
        properties: Kafka producer settings, such as `{"compression.type": "zstd"}`.
        payload: a file of which each value is a line, by chance, in place of letters.

    Raises:
        StackError: the producer failed.
    """
    settings = {**PRODUCER, **(properties or {})}
    arguments = ["--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--throughput", "-1"]
    values = ["--payload-file", str(payload)] if payload else ["--record-size", str(record_bytes)]
    arguments += ["--num-records", str(records), *values]
    arguments += ["--command-property", *(f"{name}={value}" for name, value in settings.items())]
    printed = run_tool(PERFORMANCE_PRODUCER, arguments, timeout=timeout, jvm_options=())
    if f"{records} records sent" not in printed:
        raise StackError(f"producing to {topic} failed: {printed[-2000:]}")
