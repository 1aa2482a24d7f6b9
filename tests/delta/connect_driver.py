"""A client of a Spark Connect server: reads, lands, and is refused what a client cannot do.

`python -m tests.delta.connect_driver FOLDER [sc://HOST:PORT]`; without an address Spark starts a server for it. What it
found is in FOLDER/found.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import tiered_stream
from tests.delta.archive import ODD, options
from tests.rigs.stack.jars import jar_paths
from tests.rigs.stack.spark import DELTA, LOCAL, SHORT_LIVED
from tiered_stream.errors import ConfigurationError


def main(folder: Path, server: str | None = None) -> None:
    spark = (SparkSession.builder.remote(server) if server else starting_a_server()).getOrCreate()

    def land(table: str, lane: str = "auto") -> None:
        checkpoint = f"{folder}/checkpoint-{Path(table).name}"
        tiered_stream.land(
            spark, options=options(ODD), table=table, checkpoint=checkpoint, lane=lane
        ).awaitTermination()

    tiered_stream.register(spark)
    found: dict[str, Any] = {
        "read": spark.read.format("tiered_stream").options(**options(ODD)).load().count(),
        "direct": refusal(lambda: land(f"{folder}/refused", "direct")),
        "replay": refusal(
            lambda: tiered_stream.replay(spark, options=options(ODD), from_time="0", into=f"{folder}/refused")
        ),
    }
    land(f"{folder}/table")
    found["equal"] = tiered_stream.verify(spark, options=options(ODD), table=f"{folder}/table").equal
    (folder / "found.json").write_text(json.dumps(found))
    spark.stop()


def starting_a_server() -> SparkSession.Builder:
    builder = SparkSession.builder.remote("local[2]").config("spark.jars", ",".join(map(str, jar_paths("delta"))))
    for name, value in {**LOCAL, **DELTA, **SHORT_LIVED}.items():
        if name != "spark.master":
            builder = builder.config(name, value)
    return builder


def refusal(call: Callable[[], object]) -> str:
    try:
        call()
    except ConfigurationError as error:
        return str(error)
    return "it was not refused"


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
