"""The tables of docs/cloud-identities.md and docs/refused-identities.md, by cloud.

The former say who signs at which host, by the origin of an identity and the access path. The latter say who refused
what, and after how many seconds each command ended. Tests measure each row, and keep it in a JSON file with `KEEP=1`:
run `KEEP=1 python -m pytest tests/docs/test_cloud_identities.py tests/storage/test_refused_identities.py` as root, and
then `python -m tests.docs.docs_tables`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.rigs.cloud import failures
from tests.rigs.cloud.origins import AWS, AZURE, GOOGLE
from tests.rigs.tables import markdown

CLOUDS = {"AWS": AWS, "Azure": AZURE, "Google": GOOGLE}
SIGNED = Path(__file__).parents[2] / "docs" / "cloud-identities.json"
PATHS = {
    "segments": "Segments", "uploads": "Uploads", "deltalake": "Commits by deltalake",
    "delta-spark": "Commits by delta-spark", "doctor": "`doctor`", "verify": "`verify`",
}  # fmt: skip
ASKED = "asked"
"""Key of the services that gave the credentials, next to the access paths."""


def read_kept(file: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Return what tests kept, by cloud, and by origin of the identity or by failure."""
    kept: dict[str, dict[str, dict[str, Any]]] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    return kept


def keep(file: Path, cloud: str, row: str, found: Mapping[str, Any]) -> None:
    """Write what was found of one row into the file; the rest stays."""
    kept = read_kept(file)
    kept.setdefault(cloud, {}).setdefault(row, {}).update(found)
    file.write_text(json.dumps(kept, indent=1, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")


def render_signed(cloud: str) -> str:
    """Return the table of a cloud as Markdown. Access paths with the same cell share a row."""
    kept = read_kept(SIGNED).get(cloud, {})
    lines = []
    for origin in CLOUDS[cloud]:
        cells = kept.get(origin, {})
        rows: dict[str, list[str]] = {}
        for path, title in PATHS.items():
            rows.setdefault(cells.get(path, "not measured"), []).append(title)
        first = [origin, cells.get(ASKED, "")]
        for cell, titles in rows.items():
            text = re.sub("^refused: (.*)", r"refused: `` \1 ``", cell.replace("|", "\\|"))
            lines.append([*first, "all" if len(rows) == 1 else ", ".join(titles), text])
            first = ["", ""]
    return markdown(("Identity", "Credentials from", "Access", "Signed by, at host"), lines)


REFUSED = Path(__file__).parents[2] / "docs" / "refused-identities.json"
SECRETS = re.compile("hush|the-secret|another-secret|the-wrong-secret|token-of-reader|AccountKey")
"""Pattern of the secrets in the failures."""
_QUICK = ("segments", "plan", "cat", "export", "doctor", "verify --storage")
_COLUMNS = ("scan", "lag", "replay --dry-run", "query", "land", "verify")


def keep_refused(cloud: str, failure: str, seconds: Mapping[str, float], says: str = "") -> None:
    """Keep the seconds of commands, and the message if there is one."""
    known = read_kept(REFUSED).get(cloud, {}).get(failure, {"seconds": {}})["seconds"]
    found = {"seconds": known | {name: round(each, 1) for name, each in seconds.items()}}
    keep(REFUSED, cloud, failure, found | ({"says": says} if says else {}))


def render_refused(cloud: str) -> str:
    """Return the table of a cloud as Markdown. A command that no run has measured has no column."""
    kept = read_kept(REFUSED).get(cloud, {})
    columns = [name for name in _COLUMNS if any(name in entry["seconds"] for entry in kept.values())]
    titles = ["Fault", "Message", *(f"`{name}`" for name in columns), "Other commands"]
    rows = []
    for name in filter(kept.__contains__, failures.ALL[cloud]):
        entry, seconds = kept[name], kept[name]["seconds"]
        others = max((seconds[each] for each in _QUICK if each in seconds), default=0.0)
        cells = [f"{seconds[each]:.1f} s" if each in seconds else "" for each in columns]
        message = entry.get("says", "").replace("|", "\\|")
        rows.append([name, f"`` {message} ``", *cells, f"{others:.1f} s"])
    return markdown(titles, rows)
