"""Each micro-batch has its line in the driver's log, the only one too, and a finished query has its sum."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.delta.archive import LONG, everything
from tests.rigs.stack.spark import ROOT, spark_environment

_PROGRAM = """
import json
import sys
from pathlib import Path
from tests.delta.archive import LONG, options
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.spark import spark_session
from tiered_stream import land, register

folder, lines = sys.argv[1], Path(sys.argv[2])
spark = spark_session("lines of micro-batches", config={"spark.master": "local[2,4]"})
register(spark)


def rows(**given):
    return spark.readStream.format("tiered_stream").options(**options(LONG, given)).load()


def fail_once(batches):
    from pyspark import TaskContext

    yield from batches
    if TaskContext.get().attemptNumber() == 0:
        raise OSError("the sink has failed once")


def write_unless_empty(batch, batch_id):
    if not batch.isEmpty():
        batch.write.format("noop").mode("append").save()


four = rows(minPartitions="4")
writers = {
    "one": rows().writeStream.format("noop"),
    "many": rows(maxOffsetsPerTrigger="5000").writeStream.format("noop"),
    "failed": four.mapInArrow(fail_once, four.schema).writeStream.format("noop"),
    "used twice": four.writeStream.foreachBatch(write_unless_empty),
    "in two parts": four.where("offset < 9").union(four.where("offset >= 9")).writeStream.format("noop"),
}
starts = {
    name: writer.option("checkpointLocation", f"{folder}/{name}").trigger(availableNow=True).start
    for name, writer in writers.items()
}
starts["landed"] = lambda: land(spark, options=options(LONG), table=f"{folder}/table", checkpoint=f"{folder}/landed")
ids = {}
for number, (name, start) in enumerate(starts.items(), 1):
    query = start()
    query.awaitTermination()
    ids[name] = str(query.id)
    # Spark's JVM passes on what planners print, and loses what it has not passed on when it ends.
    wait_until(lambda: lines.read_text(errors="replace").count("the source is at its end") >= number, "the sum")
print(json.dumps(ids))
"""


@pytest.mark.starts_spark
def test_each_micro_batch_has_one_line_with_its_rows_once_and_a_finished_query_has_its_sum(tmp_path: Path) -> None:
    file = tmp_path / "lines.log"
    with file.open("wb") as lines:
        ended = subprocess.run(
            [sys.executable, "-c", _PROGRAM, str(tmp_path), str(file)], stdout=subprocess.PIPE, stderr=lines, text=True,
            check=False, cwd=ROOT, env=spark_environment(),
        )  # fmt: skip
    printed = file.read_text(errors="replace")
    assert ended.returncode == 0, printed
    ids, count = json.loads(ended.stdout.splitlines()[-1]), everything(LONG).num_rows
    sums = re.findall(r"the source is at its end: (\d+) micro-batch\w*, ([\d,]+) rows read, ", printed)
    assert len(sums) == len(ids), printed
    for (name, query_id), (batches, read) in zip(ids.items(), sums, strict=True):
        own = [line for line in printed.splitlines() if f" of query {query_id}: " in line]
        found = re.findall(r"micro-batch (\d+) of query \S+: ([\d,]+) rows read, ", "\n".join(own))
        assert len(found) == len({batch for batch, _ in found}) == int(batches) == (4 if name == "many" else 1), printed
        rows = 2 * count if name == "in two parts" else count  # Spark gets each part's rows
        assert sum(_number(batch_rows) for _, batch_rows in found) == _number(read) == rows, printed
        repeated = [line for line in own if ": read again: " in line]
        assert len(repeated) == (name in ("failed", "used twice")), printed
        assert not [line for line in own if "sent no report" in line], printed


def _number(text: str) -> int:
    return int(text.replace(",", ""))
