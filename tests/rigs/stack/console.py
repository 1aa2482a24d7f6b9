"""Kafka's own console consumer: a second opinion, from the Java client."""

from __future__ import annotations

import subprocess

from tests.rigs.stack.broker import KafkaBroker
from tests.rigs.stack.errors import StackError
from tests.rigs.stack.jars import CONF, jar_paths
from tests.rigs.stack.java import java_command
from tests.rigs.stack.processes import LONG


def console_consumer(
    broker: KafkaBroker, topic: str, isolation: str, records: int, idle_ms: int = 4000
) -> list[tuple[int, int, str]]:
    """(partition, offset, value) of every record, ordered; it ends when none came for `idle_ms`. Values must be lines.

    If it ends before `records` records on a busy machine, it starts again with more patience.

    Raises:
        StackError: it failed.
    """
    arguments = ["--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--from-beginning"]
    arguments += ["--isolation-level", isolation, "--timeout-ms", str(idle_ms)]
    for shown in ("partition", "offset"):
        arguments += ["--formatter-property", f"print.{shown}=true"]
    command = java_command(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", [CONF, *jar_paths("kafka")], arguments, ["-Xmx256m"]
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONG)
    if done.returncode:
        raise StackError(f"the console consumer failed: {(done.stdout + done.stderr)[-2000:]}")
    lines = (line.split("\t") for line in done.stdout.splitlines() if line.startswith("Partition:"))
    read = sorted((int(p.partition(":")[2]), int(o.partition(":")[2]), value) for p, o, value in lines)
    if len(read) < records and idle_ms < LONG * 100:
        return console_consumer(broker, topic, isolation, records, 5 * idle_ms)
    return read
