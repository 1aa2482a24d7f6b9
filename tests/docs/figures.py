"""The picture of docs/figures.md, drawn from its own first table: `python -m tests.docs.figures` writes it anew."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.docs.docs_tables import DOCS
from tests.svg import LEFT, page, text

PICTURE = DOCS / "figures.svg"
SOURCES = {"tiered_stream": "#0969da", "Spark's kafka source": "#bc4c00"}
_WIDTH, _FIRST, _LAST = 760, 20, 640
"""Of the page; of the longest bar."""
_BAR, _GROUP = 20, 92
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)(?: to (\d+(?:\.\d+)?))? s\b")


@dataclass(frozen=True)
class Measured:
    """Seconds of some runs."""

    least: float
    most: float
    said: str


def rows(markdown: str) -> Iterator[tuple[str, list[Measured]]]:
    """Of the first table: what was landed in, and the seconds of each source."""
    table = markdown.partition("|---|")[2].partition("\n\n")[0]
    for line in table.splitlines()[1:]:
        into, *cells = (cell.strip() for cell in line.strip("| ").split("|"))
        yield into.replace("`", ""), [_measured(cell) for cell in cells[: len(SOURCES)]]


def _measured(cell: str) -> Measured:
    found = _SECONDS.search(cell)
    if not found:
        raise ValueError(f"no seconds in {cell!r}")
    return Measured(float(found[1]), float(found[2] or found[1]), found[0])


def draw(markdown: str) -> str:
    """A bar as long as the quickest run, and paler up to the slowest."""
    groups = list(rows(markdown))
    scale = (_LAST - _FIRST) / max(each.most for _, found in groups for each in found)
    parts = []
    for number, (name, colour) in enumerate(SOURCES.items()):
        parts.append(f'<rect x="{LEFT + 160 * number}" y="42" width="12" height="12" fill="{colour}"/>')
        parts.append(text(LEFT + 160 * number + 20, 53, name))
    for number, (into, found) in enumerate(groups):
        top = 72 + _GROUP * number
        parts.append(text(_FIRST, top + 14, into))
        for line, (each, colour) in enumerate(zip(found, SOURCES.values(), strict=True)):
            y = top + 22 + (_BAR + 6) * line
            for seconds, opacity in ((each.most, 0.35), (each.least, 1)):
                parts.append(
                    f'<rect x="{_FIRST}" y="{y}" width="{scale * seconds:.1f}" height="{_BAR}" fill="{colour}"'
                    f' fill-opacity="{opacity}"/>'
                )
            parts.append(text(_FIRST + scale * each.most + 8, y + 15, each.said, "note"))
    return page(_WIDTH, 84 + _GROUP * len(groups), "10 M records of 100 bytes, two cores: seconds into", parts)


def main() -> None:
    PICTURE.write_text(draw((DOCS / "figures.md").read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
