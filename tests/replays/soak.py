"""Kills a replay at random moments, again and again, and in the end compares every record with a consumer's.

python -m tests.replays.soak [KILLS] [SEED]
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from rich.console import Console

from tests.delta.archive import in_order, landed
from tests.delta.driver import kill_group, wait_for
from tests.replays.driver import Run
from tests.replays.topics import TOPICS, ReplayedTopics, fill_topics
from tests.rigs.stack.build import build_folder
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.rows import Row
from tests.rigs.stack.tiered_stack import TieredStack
from tiered_stream.model import TopicPartition
from tiered_stream.records.arrow import SCHEMA_WITH_HEADERS
from tiered_stream.replays.replay_plan import ReplayPlan

DRIVER, WORKERS, STORAGE = "driver", "workers", "storage away"
LIMIT = 15
"""Offsets of a micro-batch: small, for a replay is to be killed often before all is landed."""
NAME = "soak"

console = Console(highlight=False, soft_wrap=True)


def soak(stack: TieredStack, topics: ReplayedTopics, folder: Path, kinds: list[str], chance: random.Random) -> None:
    """Kill the replay once by each of `kinds`, then let it come to its end, and run it once more.

    Raises:
        AssertionError: a record is missing, doubled or different.
    """
    table, log = folder / "table", folder / "log"
    # Without the brokers' help, so that it fails while the storage is away.
    given = {**stack.options(), "remote.fallback": "fail", "maxOffsetsPerTrigger": str(LIMIT), "includeHeaders": "true"}
    options = given | {"subscribe": ",".join(TOPICS)}
    arguments = {"from_time": "0", "into": str(table), "name": NAME}
    for number, kind in enumerate(kinds, 1):
        lane = chance.choice(["direct", "spark"])
        driver = Run(options, {**arguments, "lane": lane}, workers_die=kind == WORKERS).start(log)
        before = _commits(table)
        wanted = before + chance.randint(0, 3)
        wait_until(_reached(table, wanted, driver), "micro-batches", pause=0.02)
        time.sleep(chance.uniform(0, 2))
        if kind == STORAGE:
            stack.s3proxy.stop()
            status = wait_for(driver)
            stack.s3proxy.start()
            assert status != 0, "everything has landed already: lower LIMIT"
        else:
            assert driver.poll() is None or kind == WORKERS, log.read_text()[-4000:]
            kill_group(driver.pid)
            driver.wait()
        console.print(f"{number:3}  {kind}, {lane} lane: {_commits(table) - before} micro-batches")
    for _ in range(2):
        assert wait_for(Run(options, arguments).start(log)) == 0, log.read_text()[-4000:]
    version = DeltaTable(table).version()
    assert landed(table).equals(in_order(_expected(topics, table)))
    assert wait_for(Run(options, arguments).start(log)) == 0 and DeltaTable(table).version() == version


def _reached(table: Path, commits: int, driver: subprocess.Popen[bytes]) -> Callable[[], bool]:
    return lambda: _commits(table) >= commits or driver.poll() is not None


def _commits(table: Path) -> int:
    """Micro-batches that are in the checkpoint."""
    return len(list((table / "_checkpoints" / f"replay-{NAME}" / "commits").glob("[0-9]*")))


def _expected(topics: ReplayedTopics, table: Path) -> pa.Table:
    """What the consumer has of the plan's offsets."""
    plan = ReplayPlan.from_json((table / "_checkpoints" / f"replay-{NAME}" / "replay.json").read_bytes())
    rows = [
        (topic, row)
        for topic, found in topics.rows.items()
        for row in found
        if row.offset in plan.ranges[TopicPartition(topic, row.partition)]
    ]
    return pa.Table.from_pylist([_columns(topic, row) for topic, row in rows], SCHEMA_WITH_HEADERS)


def _columns(topic: str, row: Row) -> dict[str, object]:
    headers = [{"key": name, "value": value} for name, value in row.headers] or None
    place = {"topic": topic, "partition": row.partition, "offset": row.offset}
    times = {"timestamp": row.timestamp_ms * 1000, "timestampType": row.timestamp_type}
    return {"key": row.key, "value": row.value, **place, **times, "headers": headers}


def main() -> None:
    kills, seed = (int(text) for text in (sys.argv[1:] + ["20", "1"][len(sys.argv) - 1 :]))
    console.print(f"{kills} kills, seed {seed}")
    chance = random.Random(seed)
    with build_folder("replay-soak") as folder, TieredStack(folder / "stack") as stack:
        topics = fill_topics(stack, seed)
        kinds = [chance.choice([DRIVER, DRIVER, WORKERS, STORAGE]) for _ in range(kills)]
        soak(stack, topics, folder, kinds, chance)
    console.print(f"{dict(Counter(kinds))}: {sum(map(len, topics.rows.values())):,} records, each once")


if __name__ == "__main__":
    main()
