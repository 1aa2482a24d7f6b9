"""Each micro-batch has its line in the driver's log, the only one too, and a finished query has its sum."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.delta.archive import LONG, everything
from tests.rigs.stack.spark import ROOT, spark_environment

pytestmark = pytest.mark.starts_spark  # each program starts a Spark

_PROGRAM = """
import json
import sys
from pathlib import Path
from tests.delta.archive import LONG, options
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.spark import spark_session
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
wait_until(lambda: lines.read_text(errors="replace").count("the source is at its end") >= len(ids), "the last sum")
print(json.dumps(ids))
"""


def run(program: str, folder: Path) -> tuple[Any, str]:
    """What the program says as JSON, and the driver's log."""
    file = folder / "lines.log"
    with file.open("wb") as lines:
        ended = subprocess.run(
            [sys.executable, "-c", program, str(folder), str(file)], stdout=subprocess.PIPE, stderr=lines, text=True,
            check=False, cwd=ROOT, env={**os.environ, **spark_environment()},
        )  # fmt: skip
    printed = file.read_text(errors="replace")
    assert ended.returncode == 0, printed
    return json.loads(ended.stdout.splitlines()[-1]), printed


def test_each_micro_batch_of_a_finished_query_has_its_line_and_then_the_query_has_its_sum(tmp_path: Path) -> None:
    ids, printed = run(_PROGRAM, tmp_path)
    rows = everything(LONG).num_rows
    sums = re.findall(r"the source is at its end: (\d+) micro-batch\w*, ([\d,]+) rows read, ", printed)
    assert len(sums) == 3, printed
    for (query_id, batches), (summed, read) in zip(ids.values(), sums, strict=True):
        lines = re.findall(rf"micro-batch (\d+) of query {query_id}: ([\d,]+) rows read, ", printed)
        assert len(lines) == len({batch for batch, _ in lines}) == batches == int(summed), printed
        assert sum(_number(line_rows) for _, line_rows in lines) == _number(read) == rows
    assert ids["many"][1] == 4


_REPEATED = """
import json
import sys
from pathlib import Path
from tests.delta.archive import LONG, options
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.spark import spark_session
from tiered_stream import register

folder, lines = sys.argv[1], Path(sys.argv[2])
spark = spark_session("repeated reads", config={"spark.master": "local[2,4]"})
register(spark)
rows = spark.readStream.format("tiered_stream").options(**options(LONG, {"minPartitions": "4"})).load()


def fail_once(batches):
    from pyspark import TaskContext

    yield from batches
    if TaskContext.get().attemptNumber() == 0:
        raise OSError("the sink has failed once")


def write_unless_empty(batch, batch_id):
    if not batch.isEmpty():
        batch.write.format("noop").mode("append").save()


writers = {
    "failed": rows.mapInArrow(fail_once, rows.schema).writeStream.format("noop"),
    "used twice": rows.writeStream.foreachBatch(write_unless_empty),
    "in two parts": rows.where("offset < 9").union(rows.where("offset >= 9")).writeStream.format("noop"),
}
ids = {}
for number, (name, writer) in enumerate(writers.items(), 1):
    query = writer.option("checkpointLocation", f"{folder}/{name}").trigger(availableNow=True).start()
    query.awaitTermination()
    ids[name] = str(query.id)
    wait_until(lambda: lines.read_text(errors="replace").count("the source is at its end") >= number, "the sum")
print(json.dumps(ids))
"""


def test_a_micro_batch_that_is_read_twice_has_one_line_and_its_rows_once(tmp_path: Path) -> None:
    ids, printed = run(_REPEATED, tmp_path)
    rows = everything(LONG).num_rows
    expected = {"failed": rows, "used twice": rows, "in two parts": 2 * rows}  # Spark gets each part's rows
    sums = re.findall(r"the source is at its end: (\d+) micro-batch\w*, ([\d,]+) rows read, ", printed)
    assert [(batches, _number(read)) for batches, read in sums] == [("1", n) for n in expected.values()], printed
    for name, count in expected.items():
        own = [line for line in printed.splitlines() if f"micro-batch 0 of query {ids[name]}: " in line]
        read = re.findall(r": ([\d,]+) rows read, ", "\n".join(own))
        assert list(map(_number, read)) == [count], printed
        assert len([line for line in own if ": read again: " in line]) == (name != "in two parts"), printed
        assert not [line for line in own if "sent no report" in line], printed


def _number(text: str) -> int:
    return int(text.replace(",", ""))
