"""Memory of an executor's container on YARN while the job lands records, for `spark.executor.memoryOverhead`.

    python -m tests.yarn.memory [RECORDS] [CORES]

YARN adds up the resident memory of all processes of a container. So it counts pages that the Python processes share
once for each process.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.dist.packed_environment import pack
from tests.rigs.stack.bulk import produce_bulk
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import create_tiered_topic, roll, wait_until_tiered
from tests.rigs.stack.yarn import Yarn
from tests.yarn.submitted import YarnJob

EXECUTOR = b"YarnCoarseGrainedExecutorBackend"
MIB = 1 << 20


def main(records: int, cores: int) -> None:
    with tempfile.TemporaryDirectory(prefix="yarn-memory-") as name:
        folder = Path(name)
        archive = pack(folder / "dist")
        with TieredStack(folder / "stack") as stack, Yarn(folder / "yarn") as yarn:
            create_tiered_topic(stack.broker, "bulk", partitions=4)
            produce_bulk(stack.broker, "bulk", records)
            roll(stack.broker, "bulk")
            wait_until_tiered(stack.broker, "bulk")
            own = {"ingest.table": str(folder / "table"), "ingest.checkpointLocation": str(folder / "checkpoint")}
            given = {**stack.options(), "subscribe": "bulk", "startingOffsets": "earliest", **own}
            size = {"spark.executor.instances": "1", "spark.executor.cores": str(cores)}
            spark = {**size, "spark.executor.memory": "600m", "spark.executor.memoryOverhead": "2g"}
            job = YarnJob(yarn, folder / "job", "client", given, archive, spark=spark)
            peak: dict[str, int] = {}
            job.start()
            wait_until(lambda: not job.running or sample(peak), "the job to end", pause=0.05)
            assert job.wait() == 0, job.output()
    shown = ", ".join(f"{what} {size / MIB:,.0f} MiB" for what, size in sorted(peak.items()))
    sys.stdout.write(f"{records:,} records, {cores} cores: {shown}\n")


def sample(peak: dict[str, int]) -> bool:
    """Add the memory of the executor's processes now to the peaks. Always false, so that it is called again."""
    for process in Path("/proc").glob("[0-9]*"):
        line = read(process / "cmdline")
        if EXECUTOR in line and b"/bash" not in line.split(b"\0")[0]:
            tree = descendants(int(process.name))
            python = [resident(each) for each in tree if each != int(process.name)]
            found = {"JVM": resident(int(process.name)), "Python": sum(python), "Python processes": len(python) * MIB}
            found["container"] = found["JVM"] + found["Python"]
            for what, size in found.items():
                peak[what] = max(peak.get(what, 0), size)
    return False


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the process has ended
        return b""


def descendants(pid: int) -> list[int]:
    children = [int(each) for each in read(Path(f"/proc/{pid}/task/{pid}/children")).split()]
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    children = sorted({int(each) for path in threads for each in read(path).split()} | set(children))
    return [pid, *(each for child in children for each in descendants(child))]


def resident(pid: int) -> int:
    """Resident memory in bytes, as YARN counts it (`ProcfsBasedProcessTree`)."""
    fields = read(Path(f"/proc/{pid}/stat")).rpartition(b")")[2].split()
    return int(fields[21]) * 4096 if len(fields) > 21 else 0


if __name__ == "__main__":
    main(*(int(each) for each in (*sys.argv[1:], *("2000000", "1")[len(sys.argv) - 1 :])))
