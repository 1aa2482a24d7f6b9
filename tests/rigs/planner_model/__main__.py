"""Run random lifetimes of a query through the planner (`make model`): no row is lost or there twice without an error.

python -m tests.rigs.planner_model [--lifetimes 20000] [--seed N] [--only NUMBER ...]
"""

from __future__ import annotations

import sys
from collections import Counter

from tests.rigs.histories import arguments, console, run_all
from tests.rigs.planner_model.lifetime import Lifetime


def main() -> None:
    given = arguments("tests.rigs.planner_model", __doc__, "lifetimes", 20_000).parse_args()
    counts: Counter[str] = Counter()

    def run(name: str) -> list[str]:
        lifetime = Lifetime(name).run()
        counts.update(lifetime.counts)
        if given.only:
            console.print("\n".join(lifetime.events))
        return lifetime.faults

    sys.exit(run_all(given, run, counts))


if __name__ == "__main__":
    main()
