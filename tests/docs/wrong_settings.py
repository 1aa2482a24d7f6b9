"""Write docs/wrong-settings.md: what commands, queries and jobs say about wrong setups.

Run it as `python -m tests.docs.wrong_settings`, or with the names of a table or of single setups. It starts brokers,
S3 servers and Spark, runs everything, and keeps the messages in `docs/wrong-settings.json`, with which tests compare
the page and further runs.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.docs.docs_tables import DOCS, with_table
from tests.rigs.tables import markdown
from tests.setups.contact import CASES, measure_contact
from tests.setups.place import Place, place
from tests.setups.surfaces import DOCTOR, JOB, QUERY, REPLAY, Outcome, SparkProgram, outcomes
from tests.setups.ways import WAYS, Way

PAGE, KEPT = DOCS / "wrong-settings.md", DOCS / "wrong-settings.json"
SETUPS, CONTACT = "wrong setups", "first contact"
_LIMITS = (5, 10, 30, 60)
_NAMES = {DOCTOR: "`doctor`", QUERY: "a batch query", JOB: "the job", REPLAY: "`replay --dry-run`"}


@dataclass(frozen=True)
class Said:
    """What the page shows of an outcome; `seconds` is text."""

    says: str
    status: int
    seconds: str


Setups = Mapping[str, Mapping[str, Said]]
"""What was said, by the name of the way and by the name of who said it."""


@dataclass(frozen=True)
class Kept:
    """Contents of `docs/wrong-settings.json`."""

    setups: Setups
    contact: Setups


def read_kept() -> Kept:
    """Return what the last run of this program has written."""
    report = json.loads(KEPT.read_text("utf-8"))
    return Kept(*(_said(report[name]) for name in ("setups", "contact")))


def _said(found: Mapping[str, Mapping[str, Any]]) -> Setups:
    return {name: {who: Said(**said) for who, said in of_way.items()} for name, of_way in found.items()}


def observed(place: Place, way: Way, folder: Path, spark: SparkProgram) -> dict[str, Outcome]:
    """Set the job up in this wrong way, run everything, and return what was said, by who."""
    with way.setup(place) as given:
        right = {name: value for name, value in place.settings().items() if not name.startswith(way.removed)}
        return outcomes(place, folder, {**right, **given}, spark)


def tables(kept: Kept) -> dict[str, str]:
    """Return the page's tables as Markdown, by the names of their markers."""
    return {
        SETUPS: "\n".join(_of_way(WAYS[name], said) for name, said in kept.setups.items()),
        CONTACT: "\n".join(_of_case(CASES[name], said) for name, said in kept.contact.items()),
    }


def _of_way(way: Way, said: Mapping[str, Said]) -> str:
    return f"\n### {way.title}\n\n{way.shown[0].upper()}{way.shown[1:]}.\n\n{_table(said)}"


def _of_case(title: str, said: Mapping[str, Said]) -> str:
    return f"\n### {title}\n\n{_table(said)}"


def _table(said: Mapping[str, Said]) -> str:
    """Return a table with one row for all that say the same; those who say nothing come last."""
    rows: dict[tuple[str, int], list[str]] = {}
    for who, each in said.items():
        rows.setdefault((each.says, each.status), []).append(who)
    lines = []
    for (says, status), names in sorted(rows.items(), key=lambda row: not row[0][0]):
        shown = "<br>".join(f"`` {line.replace('|', chr(92) + '|')} ``" for line in says.splitlines()) or "nothing"
        slowest = max((said[name].seconds for name in names), key=_seconds)
        who = ", ".join(_NAMES.get(name, f"`{name}`") for name in names)
        lines.append((who, shown, slowest, str(status)))
    return markdown(("Command", "Message", "After", "Exit status"), lines)


def _seconds(shown: str) -> float:
    return float(re.sub(r"[^0-9.]", "", shown))


def time_class(seconds: float) -> str:
    """Return the time as a class, so that the page changes only if it changes by much."""
    return next((f"< {limit} s" for limit in _LIMITS if seconds < limit), f"> {_LIMITS[-1]} s")


def exact_time(seconds: float) -> str:
    """Return the time in seconds with one decimal."""
    return f"{seconds:.1f} s"


def main(parts: Collection[str]) -> None:
    """Run these parts (`SETUPS`, `CONTACT`, a key of `WAYS`), and write file and page; other parts stay as they are."""
    kept = read_kept() if KEPT.exists() else Kept({}, {})
    with tempfile.TemporaryDirectory(prefix="wrong-settings-") as name:
        root = Path(name)
        (root / "place").mkdir()
        with place(root / "place") as running, SparkProgram(root) as spark:
            for number, name in enumerate(name for name in WAYS if SETUPS in parts or name in parts):
                found = observed(running, WAYS[name], root / f"way-{number}", spark)
                setups = {**kept.setups, name: _kept(found, time_class)}
                kept = replace(kept, setups={known: setups[known] for known in WAYS if known in setups})
                write(kept)
            if CONTACT in parts:
                for case, found in measure_contact(running, root, spark):
                    cases = {**kept.contact, case: _kept(found, exact_time)}
                    kept = replace(kept, contact={known: cases[known] for known in CASES if known in cases})
                    write(kept)


def _kept(found: Mapping[str, Outcome], shown: Callable[[float], str]) -> dict[str, Said]:
    return {who: Said(each.says, each.status, shown(each.seconds)) for who, each in found.items()}


def write(kept: Kept) -> None:
    """Write the file and the page."""
    KEPT.write_text(json.dumps(asdict(kept), indent=1, ensure_ascii=False) + "\n", "utf-8")
    text = PAGE.read_text("utf-8")
    for name, table in tables(kept).items():
        text = with_table(text, name, table)
    PAGE.write_text(text, "utf-8")


def without_fix(way: Way, said: Mapping[str, Said | Outcome]) -> list[str]:
    """Return who does not name the fix, although it should."""
    concerned = [who for who in said if who == DOCTOR or not (way.only_doctor or who in way.unconcerned)]
    return [who for who in concerned if not any(fix in said[who].says for fix in way.fixes)]


if __name__ == "__main__":
    main(sys.argv[1:] or (SETUPS, CONTACT))
