"""A user's own program: `spark-submit … first_row_job.py FORMAT OPTIONS`, as JSON, reads one row and says `row`."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession


def main(source: str, options: dict[str, str]) -> None:
    spark = SparkSession.builder.getOrCreate()
    if source == "tiered_stream":
        import tiered_stream

        tiered_stream.register(spark)
    assert spark.read.format(source).options(**options).load().first() is not None
    sys.stdout.write("row\n")
    sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
