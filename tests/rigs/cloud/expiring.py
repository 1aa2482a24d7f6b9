"""Land an archive again and again, in both lanes, while credentials expire; run by a test, with arguments as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from tests.delta.committing import table as open_table
from tests.rigs.stack.spark import SHORT_LIVED, spark_session
from tiered_stream import land, scan, verify
from tiered_stream.delta.settings.ingest_settings import TableSpec, TableStorage

WAYS = (("direct", "auto"), ("spark", "auto"), ("direct", "deltalake"))
"""Lanes, and values of `ingest.commit`."""
_OFFSETS = "25"
"""Offsets of a micro-batch, so that credentials expire within queries, too."""


def main(asked: Mapping[str, Any]) -> None:
    """Land and compare tables for `asked["seconds"]`, and print the number of tables; an error ends the program.

    Tables of the direct lane are in `asked["lake"]`, and those of the Spark lane in `asked["place"]`.
    """
    spark = spark_session("expiring", ("delta", "spark-kafka", "s3a"), {**SHORT_LIVED, **asked["settings"]})
    options, ends, number = asked["options"], time.monotonic() + asked["seconds"], 0
    while number < len(WAYS) or time.monotonic() < ends:
        lane, commit = WAYS[number % len(WAYS)]
        place = asked["lake"] if lane == "direct" else asked["place"]
        table, checkpoint = f"{place}/bronze/{number}", f"{asked['place']}/checkpoints/{number}"
        paced = options | {"maxOffsetsPerTrigger": _OFFSETS, "ingest.commit": commit}
        land(spark, options=paced, table=table, checkpoint=checkpoint, lane=lane).awaitTermination()
        if place == asked["place"]:
            report = verify(spark, options=options, table=table)
            assert report.equal, (lane, number, report)
        else:  # Spark has no connector there
            assert in_table(table) == in_segments(options), (lane, number)
        number += 1
        sys.stderr.write(f"table {number} in the {lane} lane, committed by {commit}\n")
        time.sleep(asked["pause"])
    sys.stdout.write(f"{number}\n")


def in_table(uri: str) -> list[tuple[int, int]]:
    """Return partition and offset of all rows of a table, in order."""
    found = open_table(TableSpec(uri, TableStorage())).to_pyarrow_table(columns=["partition", "offset"])
    return sorted(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True))


def in_segments(options: Mapping[str, str]) -> list[tuple[int, int]]:
    """Return partition and offset of all records of the archive, in order."""
    found = [zip(each["partition"].to_pylist(), each["offset"].to_pylist(), strict=True) for each in scan(options)]
    return sorted(pair for pairs in found for pair in pairs)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
