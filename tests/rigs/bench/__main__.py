"""`make bench`: run the workloads and say what came of them, as a table and in build/bench.json.

`make bench ONLY=A,H` runs those whose names begin so: a noop workload by its letter, `H` all that land, `H-A` one of
them, and F, I, J, L, O, P, S, T, U, W, scan, export, store, verify, decode, live. `SCALE=0.1` takes a tenth of the
records, `RUNS=5` up to five runs of each. `UNCHECKED=1` leaves out the checks of Arrow's Java library.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Callable, Iterator

from rich.console import Console

from tests.rigs.bench import (
    aiven_tier,
    batch_reads,
    cold_starts,
    hdfs_rows,
    landing,
    live_traffic,
    locating,
    made_rows,
    metadata_topic,
    one_process,
    planner,
    slow_storage,
    steady,
    ways,
)
from tests.rigs.bench.figures import Row, kept, printed
from tests.rigs.bench.rig import Rig, machine, running
from tests.rigs.stack.build import ROOT

REPORT = ROOT / "build" / "bench.json"
RUNS = 2

console = Console(highlight=False, width=200)

Measure = Callable[[Rig, int], Iterator[Row]]


def workloads() -> dict[str, Measure]:
    """By name, in the order in which they run."""
    noops = dict.fromkeys(claim.workload for claim in batch_reads.NOOP_CLAIMS)
    landings = dict.fromkeys(claim.workload for claim in landing.CLAIMS)
    return {
        "decode": one_process.measure_decode,
        **{name: _of(batch_reads.measure_noop, name) for name in noops},
        **{f"H-{name}": _of(landing.measure, name) for name in landings},
        "F": aiven_tier.measure,
        "I-locate": locating.measure,
        "I-topic": metadata_topic.measure,
        "J-reads": batch_reads.measure_small,
        "J-steady": steady.measure,
        "J-large": steady.measure_large,
        "L-job": cold_starts.measure_job,
        "L-row": cold_starts.measure_row,
        "O": slow_storage.measure,
        "P": planner.measure,
        "S-noop": batch_reads.measure_straight,
        "S-plan": locating.measure_growth,
        **{claim.workload: _of(made_rows.measure_typed, claim.workload) for claim in made_rows.TYPED_CLAIMS},
        made_rows.SQL: made_rows.measure_sql,
        made_rows.UPSERT: made_rows.measure_upsert,
        "W": ways.measure,
        "scan": one_process.measure_scan,
        "export": one_process.measure_export,
        "store": one_process.measure_stores,
        "HDFS": hdfs_rows.measure,
        "verify": batch_reads.measure_verify,
        "live": live_traffic.measure,
    }


def _of(measure: Callable[[Rig, str, int], Iterator[Row]], name: str) -> Measure:
    return lambda rig, runs: measure(rig, name, runs)


def wanted(only: str) -> dict[str, Measure]:
    """Those that `only` names, whole or by what comes before a dash; all where it is empty.

    Raises:
        SystemExit: there is none of that name.
    """
    found = workloads()
    for name in filter(None, only.split(",")):
        if not any(_is(each, name) for each in found):
            raise SystemExit(f"no workload is named {name}; there are {', '.join(found)}")
    names = [each for each in found if not only or any(_is(each, name) for name in only.split(","))]
    return {name: found[name] for name in names}


def _is(name: str, asked: str) -> bool:
    return name == asked or name.startswith(f"{asked}-")


def commit() -> str:
    """Return the short name of the commit that is measured."""
    return subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--only", default="", help="workloads, by commas")
    parser.add_argument("--runs", type=int, default=RUNS, help="of each side at most; they take turns")
    parser.add_argument("--scale", type=float, default=1.0, help="so many times the records")
    parser.add_argument("--unchecked", action="store_true", help="without the checks of Arrow's Java library")
    arguments = parser.parse_args()
    chosen, before, rows = wanted(arguments.only), machine(), list[Row]()
    with running(arguments.scale, arguments.unchecked) as rig:
        for name, measure in chosen.items():
            console.print(f"{name} …")
            for row in measure(rig, arguments.runs):
                rows.append(row)
                console.print(printed([row]))
            kept(rows, REPORT, {**vars(arguments), "before": before, "after": machine(), "commit": commit()})
    console.print(printed(rows))
    console.print(f"{before} before, {machine()} after; written to {REPORT}")


if __name__ == "__main__":
    main()
