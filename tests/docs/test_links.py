"""Links between the repository's texts lead somewhere, on GitHub as on the site."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conf.docs.hooks import ROOT, anchors, links

TEXTS = sorted([*ROOT.glob("*.md"), *(ROOT / "examples").glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_API = re.compile(r"^::: (\S+)$", re.MULTILINE)
"""Objects in whose place mkdocstrings puts headings."""


def headings(text: Path) -> set[str]:
    """Return the anchors of the text's own headings. GitHub shows no part that a page includes on the site."""
    written = text.read_text("utf-8")
    return anchors(written) | set(_API.findall(written))


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: str(text.relative_to(ROOT)))
def test_every_link_leads_somewhere(text: Path) -> None:
    for file, anchor in links(text.read_text("utf-8")):
        target = (text.parent / file).resolve() if file else text
        assert target.exists(), file
        assert not anchor or anchor in headings(target), f"{file}#{anchor}"
