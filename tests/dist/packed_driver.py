"""What a user submits to a cluster whose workers have nothing: lands by both lanes, reads, and compares.

`spark-submit … packed_driver.py FOLDER`, without a word of any Python.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import tiered_stream
from tests.delta.archive import ODD, options


def main(folder: Path) -> None:
    spark = SparkSession.builder.appName("packed").getOrCreate()
    for lane in ("direct", "spark"):
        query = tiered_stream.land(
            spark, options=options(ODD), table=f"{folder}/{lane}", checkpoint=f"{folder}/{lane}-checkpoint", lane=lane
        )
        query.awaitTermination()
    verified = tiered_stream.verify(spark, options=options(ODD), table=f"{folder}/direct")
    read = spark.read.format("tiered_stream").options(**options(ODD)).load().count()
    (folder / "found.json").write_text(json.dumps({"equal": verified.equal, "read": read}))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
