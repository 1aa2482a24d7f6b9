"""A program that runs a batch query for each settings file whose path it reads, in one Spark session.

It prints a line of JSON for each: what the query has raised, as Python shows it, or nothing.
"""

from __future__ import annotations

import json
import sys

from tests.stack.spark import SHORT_LIVED, spark_session
from tiered_stream import read_options


def main() -> None:
    session = spark_session("wrong setups", (), {**SHORT_LIVED, "spark.log.level": "WARN"})
    for path in sys.stdin:
        raised = ""
        try:
            frame = session.read.format("tiered_stream").options(**read_options(path.strip())).load()
            frame.write.format("noop").mode("overwrite").save()
        except Exception as error:  # noqa: BLE001 - whatever a query raises is what is asked for
            raised = f"{type(error).__name__}: {error}"
        sys.stdout.write(f"{json.dumps(raised)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
