"""The tables of docs/refused-identities.md: who refused what, and after how many seconds each command ended.

Run `KEEP=1 python -m pytest tests/storage/test_refused_identities.py` as root, and then
`python -m tests.docs.docs_tables`. The tests keep messages and times in `docs/refused-identities.json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.rigs.cloud import failures

KEPT = Path(__file__).parents[2] / "docs" / "refused-identities.json"
SECRETS = re.compile("hush|the-secret|another-secret|the-wrong-secret|token-of-reader|AccountKey")
"""Pattern of the secrets in the failures."""
_QUICK = ("segments", "plan", "cat", "export", "doctor", "verify --storage")
_COLUMNS = ("scan", "lag", "replay --dry-run", "query", "land", "verify")


def read_kept() -> dict[str, dict[str, dict[str, Any]]]:
    """Return messages and seconds by cloud and failure."""
    kept: dict[str, dict[str, dict[str, Any]]] = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
    return kept


def keep(cloud: str, failure: str, seconds: Mapping[str, float], says: str = "") -> None:
    """Write the seconds of commands into the file, and the message if there is one; others stay."""
    kept = read_kept()
    entry = kept.setdefault(cloud, {}).setdefault(failure, {"seconds": {}})
    entry["seconds"] |= {name: round(each, 1) for name, each in seconds.items()}
    if says:
        entry["says"] = says
    KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")


def render(cloud: str) -> str:
    """Return the table of a cloud as Markdown. A command that no run has measured has no column."""
    kept = read_kept().get(cloud, {})
    columns = [name for name in _COLUMNS if any(name in entry["seconds"] for entry in kept.values())]
    titles = ["Fault", "Message", *(f"`{name}`" for name in columns), "Other commands"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for name in filter(kept.__contains__, failures.ALL[cloud]):
        entry, seconds = kept[name], kept[name]["seconds"]
        others = max((seconds[each] for each in _QUICK if each in seconds), default=0.0)
        cells = [f"{seconds[each]:.1f} s" if each in seconds else "" for each in columns]
        message = entry.get("says", "").replace("|", "\\|")
        lines.append(f"| {' | '.join([name, f'`` {message} ``', *cells, f'{others:.1f} s'])} |")
    return "\n".join(lines) + "\n"
