"""`make fuzz`: run the job for some minutes, print a table, write `build/fuzz.json`; fails when anything was found."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from functools import partial
from pathlib import Path

from rich.console import Console

from tests.rigs.fuzz.job import Job


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rigs.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--seed", default=secrets.token_hex(4))
    parser.add_argument("--target", action="append", default=[], help="only this one; may be given several times")
    given = parser.parse_args()
    print(f"seed {given.seed}: the same cases come again with --seed {given.seed}", flush=True)
    result = Job(
        given.seed, given.minutes * 60, Path("build/fuzz"), only=tuple(given.target), tell=partial(print, flush=True)
    ).run()
    Path("build/fuzz.json").write_text(json.dumps(result.as_json(), indent=2) + "\n")
    Console(width=160).print(result.table())
    return 1 if result.found else 0


if __name__ == "__main__":
    sys.exit(main())
