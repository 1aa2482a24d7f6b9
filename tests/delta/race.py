"""Writers race for one table in S3, in one application: the direct lane, a Spark query, OPTIMIZE and DELETE.

python -m tests.delta.race [--commits 2000] [--kills 1]

Each micro-batch of the direct lane is one commit of a record. In the end every offset has to be there, once. The lane's
files and commits are made in a row, without Spark's micro-batches around them, so that thousands come in minutes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from rich.console import Console

from tests.delta.archive import LONG, options
from tests.delta.clouds import in_s3
from tests.delta.committing import QUERY, table, written_rows
from tests.delta.driver import kill_group, start_program
from tests.delta.made_batches import decoded
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.rows import Record
from tests.rigs.stack.s3_client import s3a_settings
from tests.rigs.stack.versitygw import VersityGateway
from tiered_stream.delta.checkpoint.query_run import QueryRun
from tiered_stream.delta.commit.commit_attempts import TableCommits, on_gap
from tiered_stream.delta.landing.land import Landing, plan_query
from tiered_stream.model import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BUCKET = "race"
_SECONDS_BETWEEN_STATEMENTS = 20
_CHEAP = {
    "spark.databricks.delta.allFilesInCrc.enabled": "false",  # else each commit reads the table's whole state
    "spark.scheduler.mode": "FAIR",
}
SPARK_TOPIC = "rows of the Spark query"
SHORT_LIVED_TOPIC = "to be deleted"

console = Console(highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class Race:
    """One application; it ends when the direct lane has landed the topic, or by a kill."""

    table: str
    checkpoints: str
    session: Mapping[str, str]
    commits: int

    def execute(self, log_file: Path, stop: Callable[[subprocess.Popen[bytes]], None] | None = None) -> int:
        """Run it in a process group of its own, `stop` beside it; the exit status."""
        process = start_program(log_file, "tests.delta.race", "--application", json.dumps(asdict(self)))
        try:
            if stop:
                stop(process)
            return process.wait()
        finally:
            kill_group(process.pid)

    def run(self) -> None:
        """The application itself."""
        from tests.rigs.stack.spark import spark_session

        spark = spark_session("race", ("delta", "s3a"), config={**_CHEAP, **self.session})
        landing = plan_query(
            spark,
            options=options(LONG, {"includeHeaders": "false"}),
            table=self.table,
            run=QueryRun(f"{self.checkpoints}/direct", "0 seconds"),
            lane="direct",
        )
        console.print(landing.reason)
        append = self._append(spark)
        self._maintain(spark, append)
        self._commit_all(landing)
        assert append.isActive, append.exception()
        append.stop()
        spark.stop()

    def _commit_all(self, landing: Landing) -> None:
        """A record a batch; what is counted as done is kept as Spark keeps it, a file a batch."""
        done = Path(self.checkpoints, "direct", "commits")
        done.mkdir(parents=True, exist_ok=True)
        assert landing.opened is not None
        gap = on_gap(landing.spark, landing.run.checkpoint, landing.table, fail=True)
        commits = TableCommits(landing.opened, gap)
        for batch_id in range(len(list(done.iterdir())), self.commits):
            if not commits.is_committed(QUERY, batch_id):
                partition = TopicPartition(LONG, 0)
                record = decoded([Record(b"k", b"v")], batch_id, partition)
                commits.commit(QUERY, batch_id, written_rows(landing.opened.spec, record, partition=partition))
            (done / str(batch_id)).touch()

    def _append(self, spark: SparkSession) -> StreamingQuery:
        """A row a batch and short-lived ones, by Spark's own Delta sink."""
        rows = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
        shaped = rows.selectExpr(
            f"IF(value % 2 = 0, '{SPARK_TOPIC}', '{SHORT_LIVED_TOPIC}') AS topic", "0 AS partition", "value AS offset",
            "timestamp", "0 AS timestampType",
        )  # fmt: skip
        writer = shaped.writeStream.format("delta").option("checkpointLocation", f"{self.checkpoints}/spark")
        return writer.trigger(processingTime="8 seconds").start(self.table)

    def _maintain(self, spark: SparkSession, append: StreamingQuery) -> None:
        statements = (
            f"OPTIMIZE delta.`{self.table}`",
            f"DELETE FROM delta.`{self.table}` WHERE topic = '{SHORT_LIVED_TOPIC}'",
        )

        def again_and_again() -> None:
            # In turn, as in a nightly job: side by side each OPTIMIZE would take the files from under a DELETE.
            for statement in itertools.cycle(statements):
                time.sleep(random.uniform(0, _SECONDS_BETWEEN_STATEMENTS))  # for the others, who need the processor too
                if not append.isActive:
                    return
                try:
                    spark.sql(statement)
                except (PySparkException, Py4JJavaError) as error:
                    if "concurrent" not in str(error).lower():  # those are no news: who loses tries again
                        console.print(f"{statement}: {str(error)[:500]}", markup=False)

        threading.Thread(target=again_and_again, daemon=True).start()


def race(folder: Path, commits: int, kills: int = 0, seed: int = 1) -> None:
    """Run the race over a server of its own, the driver killed `kills` times at random; then count.

    Raises AssertionError: an offset is missing, or there twice.
    """
    chance = random.Random(seed)
    with VersityGateway(folder / "versitygw", folder / "lake") as lake:
        lake.client().create_bucket(Bucket=BUCKET)
        settings = s3a_settings(lake.endpoint, lake.access_key, lake.secret_key)
        session = {f"spark.hadoop.{name}": value for name, value in settings.items()}
        run = Race(f"s3a://{BUCKET}/table", str(folder / "checkpoints"), session, commits)
        log = folder / "log"

        def batches() -> int:
            return len(list((folder / "checkpoints" / "direct" / "commits").glob("[0-9]*")))

        for kill in range(kills):
            at = batches() + chance.randint(1, max(2, commits // (kills + 1)))

            def stop(process: subprocess.Popen[bytes], at: int = at) -> None:
                wait_until(lambda: process.poll() is not None or batches() >= at, f"batch {at}", 1e6, 0.05)
                time.sleep(chance.uniform(0, 0.5))
                kill_group(process.pid)

            assert run.execute(log, stop) == -signal.SIGKILL, log.read_text()[-4000:]
            console.print(f"kill {kill + 1} after {batches()} batches")
        assert run.execute(log) == 0, log.read_text()[-4000:]
        landed = table(in_s3(lake, f"s3://{BUCKET}/table"))
        rows = landed.to_pyarrow_dataset().to_table(columns=["offset"], filter=pc.field("topic") == LONG)
        console.print(Counter(entry["operation"] for entry in landed.history()))
    assert sorted(rows["offset"].to_pylist()) == list(range(commits))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.delta.race", description=__doc__)
    parser.add_argument("--commits", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--application", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.application:
        Race(**json.loads(arguments.application)).run()
        return
    with tempfile.TemporaryDirectory(prefix="tiered-stream-race-") as name:
        folder = arguments.folder or Path(name)
        race(folder, arguments.commits, arguments.kills, arguments.seed)


if __name__ == "__main__":
    main()
