"""Kafka's own command-line tools, from the jars."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from tests.rigs.stack.broker import KafkaBroker
from tests.rigs.stack.errors import StackError
from tests.rigs.stack.jars import CONF, jar_paths
from tests.rigs.stack.java import java_command
from tests.rigs.stack.processes import LONG

CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PERFORMANCE_PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
TOPICS = "org.apache.kafka.tools.TopicCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"


def run_tool(
    main_class: str,
    arguments: Sequence[str],
    *,
    stdout: int = subprocess.PIPE,
    timeout: float = LONG,
    jvm_options: Sequence[str] = ("-XX:TieredStopAtLevel=1",),
) -> str:
    """Run a tool to its end; what it printed, or "" if `stdout` is `DEVNULL`.

    Raises:
        StackError: it failed; the message has what it said.
    """
    command = java_command(main_class, [CONF, *jar_paths("kafka")], arguments, ["-Xmx256m", *jvm_options])
    done = subprocess.run(command, input=b"", stdout=stdout, stderr=subprocess.PIPE, check=False, timeout=timeout)
    printed = (done.stdout or b"").decode(errors="replace")
    if done.returncode:
        raise StackError(f"{main_class} failed: {(printed + done.stderr.decode(errors='replace'))[-2000:]}")
    return printed


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
    printed = run_tool(CONSOLE_CONSUMER, arguments)
    lines = (line.split("\t") for line in printed.splitlines() if line.startswith("Partition:"))
    read = sorted((int(p.partition(":")[2]), int(o.partition(":")[2]), value) for p, o, value in lines)
    if len(read) < records and idle_ms < LONG * 100:
        return console_consumer(broker, topic, isolation, records, 5 * idle_ms)
    return read
