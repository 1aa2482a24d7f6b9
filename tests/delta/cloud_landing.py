"""Application that lands topics into one table by two queries at once, in a session with a connector of its own.

python -m tests.delta.cloud_landing JSON
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from tests.delta.archive import options
from tests.stack.processes import LONG
from tests.stack.spark import ROOT, spark_environment, spark_session
from tiered_stream.delta.landing.land import plan_landing


@dataclass(frozen=True)
class CloudLanding:
    """Application; `connector` is the group of the connector's jars, and `session` has the session's settings."""

    connector: str
    session: Mapping[str, str]
    given: Mapping[str, str]
    topics: tuple[str, ...]
    table: str
    checkpoint: str

    def execute(self) -> dict[str, object]:
        """Run the application in a process of its own; return what `run` returns there."""
        command = [sys.executable, "-m", "tests.delta.cloud_landing", json.dumps(asdict(self))]
        done = subprocess.run(
            command, cwd=ROOT, env=spark_environment(), capture_output=True, text=True, timeout=LONG, check=False
        )
        assert done.returncode == 0, done.stderr[-6000:]
        result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
        return result

    def run(self) -> dict[str, object]:
        """Land the topics, one query each; return the reasons for the lanes, and the rows that Spark finds."""
        spark = spark_session("cloud landing", ("delta", self.connector), self.session)
        landings = [
            plan_landing(
                spark, options=options(topic, self.given), table=self.table, checkpoint=f"{self.checkpoint}/{topic}"
            )
            for topic in self.topics
        ]
        queries = [landing.start() for landing in landings]
        for query in queries:
            query.awaitTermination()
        rows = spark.read.format("delta").load(self.table)
        found = {
            "lanes": [landing.lane.value for landing in landings],
            "reasons": [landing.reason for landing in landings],
            "rows": rows.count(),
            "distinct": rows.select("topic", "partition", "offset").distinct().count(),
        }
        spark.stop()
        return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(CloudLanding(**json.loads(sys.argv[1])).run()) + "\n")
