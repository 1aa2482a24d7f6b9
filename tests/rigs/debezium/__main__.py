"""`make debezium`: Debezium writes a database's changes into topics that tier, and a job lands them in Delta tables.

python -m tests.rigs.debezium [--tables 20] [--kills 20] [--seed N] [--mode upsert|append] [--rate 20]

The job is killed while the database is written, and each Delta table is compared with its table row for row at the end.
With `--mode append` the tables have the history, and are reduced to the latest state before the comparison.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from tests.rigs.debezium.landing import MODES, UPSERT, LandingJob
from tests.rigs.debezium.rig import Rig, console
from tests.rigs.debezium.tables import tables
from tests.rigs.stack.build import build_folder


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.rigs.debezium", description=__doc__)
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--mode", choices=MODES, default=UPSERT)
    parser.add_argument("--rate", type=float, default=20, help="transactions a second")
    given = parser.parse_args()
    console.print(f"{given.tables} tables, {given.kills} kills, mode {given.mode}, seed {given.seed}")
    begun = time.monotonic()
    with build_folder("debezium") as folder, Rig(folder, tables(given.tables), given.seed) as rig:
        job = LandingJob(folder / "lake", rig.stack, rig.tables, given.mode, given.seed)
        events = rig.land(job, given.kills, given.rate)
        found = rig.differences(job, given.mode)
        tiered, records = rig.tiered_share()
    rows = sum(map(len, rig.workload.rows.values()))
    for name, count in [
        *rig.workload.changes.items(),
        *((f"killed as {event}", times) for event, times in events.items()),
    ]:
        console.print(f"{name}: {count:,}")
    console.print(
        f"{records:,} records, {tiered:,} of them tiered; {rows:,} rows; {(time.monotonic() - begun) / 60:.0f} min"
    )
    console.print("\n".join(found) or "every table is equal to the database", markup=False)
    console.print(f"seed {given.seed}: {len(found)} differences")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
