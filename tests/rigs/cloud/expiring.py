"""Land an archive again and again, in both lanes, while credentials expire; run by a test, with arguments as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from tests.rigs.stack.spark import SHORT_LIVED, spark_session
from tiered_stream import land, verify

WAYS = (("direct", "auto"), ("spark", "auto"), ("direct", "deltalake"))
"""Lanes, and values of `ingest.commit`."""
_OFFSETS = "25"
"""Offsets of a micro-batch, so that credentials expire within queries, too."""


def main(asked: Mapping[str, Any]) -> None:
    """Land and compare tables for `asked["seconds"]`, and print the number of tables; an error ends the program."""
    spark = spark_session("expiring", asked["groups"], {**SHORT_LIVED, **asked["settings"]})
    options, place, ends, number = asked["options"], asked["place"], time.monotonic() + asked["seconds"], 0
    while number < len(WAYS) or time.monotonic() < ends:
        lane, commit = WAYS[number % len(WAYS)]
        table, checkpoint = f"{place}/bronze/{number}", f"{place}/checkpoints/{number}"
        paced = options | {"maxOffsetsPerTrigger": _OFFSETS, "ingest.commit": commit}
        land(spark, options=paced, table=table, checkpoint=checkpoint, lane=lane).awaitTermination()
        report = verify(spark, options=options, table=table)
        assert report.equal, (lane, number, report)
        number += 1
        sys.stderr.write(f"table {number} in the {lane} lane, committed by {commit}\n")
        time.sleep(asked["pause"])
    sys.stdout.write(f"{number}\n")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
