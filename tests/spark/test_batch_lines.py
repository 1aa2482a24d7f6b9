"""Each micro-batch has its line in the driver's log, the only one too, and a finished query has its sum."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.delta.archive import LONG, everything
from tests.stack.spark import ROOT, spark_environment

_PROGRAM = """
import json
import sys
from pathlib import Path
from tests.delta.archive import LONG, options
from tests.stack.processes import wait_until
from tests.stack.spark import spark_session
from tiered_stream import land, register

spark, folder, lines = spark_session("lines of micro-batches"), sys.argv[1], Path(sys.argv[2])
register(spark)
ids = {}
for name, given in {"one": {}, "many": {"maxOffsetsPerTrigger": "5000"}}.items():
    rows = spark.readStream.format("tiered_stream").options(**options(LONG, given)).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", f"{folder}/{name}").trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()
    ids[name] = [str(query.id), len([batch for batch in query.recentProgress if batch.numInputRows])]
query = land(spark, options=options(LONG), table=f"{folder}/table", checkpoint=f"{folder}/landed")
query.awaitTermination()
ids["landed"] = [str(query.id), 1]
# Spark's JVM passes on what planners print, and loses what it has not passed on when it ends.
wait_until(lambda: lines.read_text(errors="replace").count("the query is at its end") >= len(ids), "the last sum")
print(json.dumps(ids))
"""


def test_each_micro_batch_of_a_finished_query_has_its_line_and_then_the_query_has_its_sum(tmp_path: Path) -> None:
    file = tmp_path / "lines.log"
    with file.open("wb") as lines:
        ended = subprocess.run(
            [sys.executable, "-c", _PROGRAM, str(tmp_path), str(file)], stdout=subprocess.PIPE, stderr=lines, text=True,
            check=False, cwd=ROOT, env={**os.environ, **spark_environment()},
        )  # fmt: skip
    printed = file.read_text(errors="replace")
    assert ended.returncode == 0, printed
    ids = json.loads(ended.stdout.splitlines()[-1])
    rows = everything(LONG).num_rows
    sums = re.findall(r"the query is at its end: (\d+) micro-batch\w*, ([\d,]+) rows read, ", printed)
    assert len(sums) == 3, printed
    for (query_id, batches), (summed, read) in zip(ids.values(), sums, strict=True):
        lines = re.findall(rf"micro-batch (\d+) of query {query_id}: ([\d,]+) rows read, ", printed)
        assert len(lines) == len({batch for batch, _ in lines}) == batches == int(summed), printed
        assert sum(_number(line_rows) for _, line_rows in lines) == _number(read) == rows
    assert ids["many"][1] == 4


def _number(text: str) -> int:
    return int(text.replace(",", ""))
