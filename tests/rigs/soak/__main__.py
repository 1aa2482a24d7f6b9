"""`make soak`: triggers of a second for an hour, while producers, transactions, tiering and retention run, and clients
come and go at the gateway. Nothing may grow, and in the end every record is counted.

python -m tests.rigs.soak [MINUTES] [--fork-faults]: with faults, each minute strikes the fork server.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from tests.rigs.soak.run import Outcome, Verdict, judge, run
from tests.rigs.stack.build import ROOT, build_folder
from tests.rigs.tables import table

FIGURES = ROOT / "build" / "soak.json"
SHORTEST_JUDGED = 40.0
"""Minutes: pools and caches have filled, and code is compiled, after about ten."""

console = Console(highlight=False, width=140)


def report(verdicts: list[Verdict]) -> Table:
    rows = (
        (each.bound.figure, f"{each.second:,.1f}", f"{each.last:,.1f}", f"{each.bound.growth:g}", each.bound.why)
        for each in verdicts
    )
    columns = ("", "second", "last", "may grow by", "for")
    return table("medians of the second and the last quarter", columns, rows, texts=("", "for"))


def write(minutes: float, outcome: Outcome, verdicts: list[Verdict]) -> None:
    """Write the figures."""
    judged = [{**asdict(each), "flat": each.flat} for each in verdicts]
    FIGURES.write_text(json.dumps({"minutes": minutes, "verdicts": judged, **asdict(outcome)}, indent=2))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.rigs.soak")
    parser.add_argument("minutes", nargs="?", type=float, default=60.0)
    parser.add_argument(
        "--fork-faults", action="store_true", help="delete the fork server's folder or kill it each minute"
    )
    given = parser.parse_args()
    minutes = given.minutes
    with build_folder("soak") as folder:
        outcome = run(folder, minutes, given.fork_faults)
    verdicts = judge(outcome.samples)
    write(minutes, outcome, verdicts)
    console.print(report(verdicts))
    for lane, count in outcome.counts.items():
        console.print(f"{lane} lane: {outcome.micro_batches[lane]:,} micro-batches, {count}")
    console.print(f"{outcome.aborted_records:,} aborted records, retention up to offsets {outcome.removed}")
    console.print(f"clients that came: {dict(outcome.clients)}")
    console.print(f"written to {FIGURES}")
    assert all(count.lost == count.doubled == count.foreign == 0 for count in outcome.counts.values())
    if minutes < SHORTEST_JUDGED:
        console.print(f"too short to be judged: below {SHORTEST_JUDGED:g} minutes all is still warming up")
        return
    assert all(outcome.removed.values()), "retention has removed nothing"
    assert all(each.flat for each in verdicts), [each.bound.figure for each in verdicts if not each.flat]


if __name__ == "__main__":
    main()
