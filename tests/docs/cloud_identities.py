"""The table of docs/cloud-identities.md: who signs at which host, by the origin of an identity and the access path.

Run `KEEP=1 python -m pytest tests/docs/test_cloud_identities.py` as root, and then `python -m tests.docs.docs_tables`.
The tests measure each row, and keep it in `docs/cloud-identities.json` or compare it with the row there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from tests.rigs.cloud.origins import AWS, AZURE, GOOGLE

CLOUDS = {"AWS": AWS, "Azure": AZURE, "Google": GOOGLE}
KEPT = Path(__file__).parents[2] / "docs" / "cloud-identities.json"
PATHS = {
    "segments": "Segments", "uploads": "Uploads", "deltalake": "Commits by deltalake",
    "delta-spark": "Commits by delta-spark", "doctor": "`doctor`", "verify": "`verify`",
}  # fmt: skip
ASKED = "asked"
"""Key of the services that gave the credentials, next to the access paths."""


def read_kept() -> dict[str, dict[str, dict[str, str]]]:
    """Return the cells by cloud, origin of the identity, and access path."""
    kept: dict[str, dict[str, dict[str, str]]] = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
    return kept


def keep(cloud: str, origin: str, cells: Mapping[str, str]) -> None:
    """Write the cells of one row into the file; others stay."""
    kept = read_kept()
    kept.setdefault(cloud, {}).setdefault(origin, {}).update(cells)
    KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")


def render(cloud: str) -> str:
    """Return the table of a cloud as Markdown. Access paths with the same cell share a row."""
    kept = read_kept().get(cloud, {})
    lines = ["| Identity | Credentials from | Access | Signed by, at host |", "|---|---|---|---|"]
    for origin in CLOUDS[cloud]:
        cells = kept.get(origin, {})
        rows: dict[str, list[str]] = {}
        for path, title in PATHS.items():
            rows.setdefault(cells.get(path, "not measured"), []).append(title)
        first = [origin, cells.get(ASKED, "")]
        for cell, titles in rows.items():
            text = re.sub("^refused: (.*)", r"refused: `` \1 ``", cell.replace("|", "\\|"))
            lines.append(f"| {' | '.join([*first, 'all' if len(rows) == 1 else ', '.join(titles), text])} |")
            first = ["", ""]
    return "\n".join(lines) + "\n"
