"""Links between the repository's texts lead somewhere, on GitHub as on the site."""

from __future__ import annotations

from pathlib import Path

import pytest

from conf.docs.hooks import INCLUDE, ROOT, anchors, links, part_of

TEXTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def headings(text: Path) -> set[str]:
    """Those that it includes from elsewhere too."""
    written = text.read_text("utf-8")
    found = anchors(written)
    for match in INCLUDE.finditer(written):
        found |= anchors(part_of((ROOT / match["file"]).read_text("utf-8"), match["heading"]))
    return found


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: str(text.relative_to(ROOT)))
def test_every_link_leads_somewhere(text: Path) -> None:
    for file, anchor in links(text.read_text("utf-8")):
        target = (text.parent / file).resolve() if file else text
        assert target.exists(), file
        assert not anchor or anchor in headings(target), f"{file}#{anchor}"
