"""A replay into a topic that is killed again and again: who reads committed records finds each once, in order."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from kafka.protocol.consumer.offsets import OffsetSpec

from tests.delta.driver import kill_group, kill_worker
from tests.replays.driver import Run
from tests.replays.topic_rows import check_topic
from tests.rigs.stack.consume import READ_UNCOMMITTED, read_topic
from tests.rigs.stack.processes import LONG, log_end, wait_until
from tests.rigs.stack.produce import RawProducer
from tests.rigs.stack.rows import Record
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import create_tiered_topic, offsets, roll, wait_until_tiered

pytestmark = [pytest.mark.starts_spark, pytest.mark.slow]

PARTITIONS = 3
RECORDS = 12_000
"""Of each partition, of about 500 bytes: several transactions, each of a second or two at this pace."""
PACE = str(300 << 10)
KILLS = 8
DRIVER, WORKER, STORAGE = "driver", "worker", "storage"


@pytest.fixture(scope="module")
def stack(restarted_stack: TieredStack) -> TieredStack:
    """A stack of the test's own, whose S3 endpoint it stops."""
    return restarted_stack


@pytest.fixture(scope="module")
def source(stack: TieredStack) -> str:
    topic = "killed-replay"
    create_tiered_topic(stack.broker, topic, PARTITIONS)
    with RawProducer(stack.broker) as producer:
        for partition in range(PARTITIONS):
            records = (Record(b"%d" % n, b"%09d" % n * 50, (), 1_700_000_000_000 + n) for n in range(RECORDS))
            producer.send_all(topic, records, partition, batch_records=500)
    roll(stack.broker, topic)
    wait_until_tiered(stack.broker, topic)
    return topic


@pytest.mark.parametrize("seed", [1])
def test_killed_at_random_it_ends_with_every_record_once(
    stack: TieredStack, source: str, topic: str, seed: int, tmp_path: Path
) -> None:
    create_tiered_topic(stack.broker, topic, PARTITIONS)
    chance, log = Random(seed), tmp_path / "driver.log"
    options = {
        **stack.options(), "subscribe": source, "target.transactional": "true",
        "target.kafka.transaction.timeout.ms": "10000", "remote.max.bytes.per.second": PACE,
    }  # fmt: skip
    run = Run(options, {"into": f"kafka:{topic}", "from_time": "0", "checkpoint": str(tmp_path / "checkpoint")})
    wanted = read_topic(stack.broker, source)
    points = sorted(chance.randrange(len(wanted)) for _ in range(KILLS))
    process, done = run.start(log), Counter[str]()
    try:
        for point in points:
            wait_until(lambda p=process, at=point: p.poll() is not None or produced(stack, topic) >= at, f"{point}")
            if process.poll() is not None:
                break
            kind = chance.choice([DRIVER, DRIVER, WORKER, STORAGE])
            done[kind] += 1
            process = strike(stack, run, process, kind, log)
        assert finished(run, process, log) == 0, log_end(log)
    finally:
        kill_group(process.pid)
    assert done[DRIVER] > 1
    check_topic(stack, topic, wanted)
    voided = len(read_topic(stack.broker, topic, READ_UNCOMMITTED)) - len(wanted)
    assert voided > 0, "no transaction was open at any kill"


def produced(stack: TieredStack, topic: str) -> int:
    """Offsets in the target, markers and aborted records too."""
    return sum(offsets(stack.broker, topic, OffsetSpec.LATEST).values())


def strike(
    stack: TieredStack, run: Run, process: subprocess.Popen[bytes], kind: str, log: Path
) -> subprocess.Popen[bytes]:
    """Something dies; who goes on."""
    if kind == WORKER:
        kill_worker(process.pid, max)
    elif kind == STORAGE:
        stack.s3proxy.stop()
        stack.s3proxy.start()
    else:
        kill_group(process.pid)
        assert process.wait(LONG) == -signal.SIGKILL
        return run.start(log)
    return process


def finished(run: Run, process: subprocess.Popen[bytes], log: Path) -> int:
    """The exit status of the run that comes to its end; a task may have failed too often for one to do so."""
    for _ in range(3):
        if process.wait(LONG) == 0:
            return 0
        process = run.start(log)
    return process.wait(LONG)
