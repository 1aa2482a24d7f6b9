"""Land an archive again and again, in both lanes, while credentials expire; run by a test, with arguments as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from tests.rigs.stack.spark import SHORT_LIVED, spark_session
from tiered_stream import land, verify

LANES = ("direct", "spark")


def main(asked: Mapping[str, Any]) -> None:
    """Land and verify tables for `asked["seconds"]`, and print the number of tables; an error ends the program."""
    spark = spark_session("expiring", ("delta", "spark-kafka", "s3a"), {**SHORT_LIVED, **asked["settings"]})
    options, place, ends = asked["options"], asked["place"], time.monotonic() + asked["seconds"]
    number = 0
    while number < len(LANES) or time.monotonic() < ends:
        lane = LANES[number % len(LANES)]
        table, checkpoint = f"{place}/bronze/{number}", f"{place}/checkpoints/{number}"
        land(spark, options=options, table=table, checkpoint=checkpoint, lane=lane).awaitTermination()
        report = verify(spark, options=options, table=table)
        assert report.equal, (lane, number, report)
        number += 1
    sys.stdout.write(f"{number}\n")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
