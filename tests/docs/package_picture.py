"""Draw docs/packages.svg, the packages of `tiered_stream` and their imports, from the imports themselves.

Run it as `python -m tests.docs.package_picture`. A line that follows from other lines is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from tests.docs.docs_tables import DOCS
from tests.svg import page, text
from tests.test_structure import LAYERS, PACKAGE, imports, layer, modules, package

PICTURE = DOCS / "packages.svg"
TITLE = "Packages of tiered_stream: each imports what is below it"
_ROW, _TOP, _HEIGHT, _LETTER, _GAP, _WIDTH = 62, 48, 26, 7.0, 22, 900

Node = tuple[int, str]
"""Layer and package. A package whose modules stand in several layers is several nodes."""


def picture() -> str:
    """Return the picture as SVG."""
    edges = reduced(graph())
    boxes = _boxes()
    height = _TOP + len(LAYERS) * _ROW
    lines = [_line(boxes[upper], boxes[lower]) for upper, lowers in sorted(edges.items()) for lower in sorted(lowers)]
    return page(_WIDTH, height, TITLE, [*lines, *(part for node, box in boxes.items() for part in _box(node, box))])


def graph() -> dict[Node, set[Node]]:
    """Return, for each node, the nodes that its modules import, at whatever place in the module."""
    found: dict[Node, set[Node]] = {}
    for path, tree in modules().items():
        if path != "__init__.py":
            own = _node(path)
            ours = {name.removeprefix("tiered_stream.") for name in imports(tree) if name.startswith("tiered_stream.")}
            found.setdefault(own, set()).update({_node(name) for name in ours} - {own})
    return found


def reduced(edges: Mapping[Node, set[Node]]) -> dict[Node, set[Node]]:
    """Return the graph without the edges that follow from paths over other nodes."""
    reached: dict[Node, set[Node]] = {}

    def all_below(node: Node) -> set[Node]:
        if node not in reached:
            lower = edges.get(node, set())
            reached[node] = lower.union(*(all_below(each) for each in lower))
        return reached[node]

    return {
        node: {each for each in lower if not any(each in all_below(other) for other in lower - {each})}
        for node, lower in edges.items()
    }


def _node(name: str) -> Node:
    return layer(name), package(name)


def _boxes() -> dict[Node, tuple[float, float, float, str]]:
    """Return x, y, width and label of each node's box, the layers from the top down."""
    boxes: dict[Node, tuple[float, float, float, str]] = {}
    for number, entries in enumerate(LAYERS):
        labels = dict(_labels(number, entries))
        widths = {node: 16 + _LETTER * len(label) for node, label in labels.items()}
        x = (_WIDTH - sum(widths.values()) - _GAP * 3 * (len(labels) - 1)) / 2
        y = _TOP + (len(LAYERS) - 1 - number) * _ROW
        for node, label in labels.items():
            boxes[node] = x, y, widths[node], label
            x += widths[node] + _GAP * 3
    return boxes


def _labels(number: int, entries: set[str]) -> Iterator[tuple[Node, str]]:
    """Yield a label for each package of a layer: its name, and its modules if only some of them stand there."""
    for name, group in groupby(sorted(entries), package):
        own = [entry.partition(".")[2] for entry in group]
        kind = "/" if (PACKAGE / name).is_dir() else ""
        yield (number, name), f"{name}{kind}" + (" " + ", ".join(own) if all(own) else "")


def _box(node: Node, box: tuple[float, float, float, str]) -> Iterator[str]:
    x, y, width, label = box
    yield (
        f'<rect class="warm" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_HEIGHT}" rx="4" fill="#ffffff"'
        ' stroke="#8b949e"/>'
    )
    yield text(x + width / 2, y + 17, label, anchor="middle")


def _line(upper: tuple[float, float, float, str], lower: tuple[float, float, float, str]) -> str:
    (x1, y1, w1, _), (x2, y2, w2, _) = upper, lower
    begin, end = x1 + w1 / 2, x2 + w2 / 2
    bend = min(40.0, (y2 - y1 - _HEIGHT) / 2)
    return (
        f'<path class="line" d="M{begin:.1f} {y1 + _HEIGHT:.1f} C{begin:.1f} {y1 + _HEIGHT + bend:.1f} {end:.1f} '
        f'{y2 - bend:.1f} {end:.1f} {y2:.1f}" fill="none" stroke="#0969da" stroke-opacity="0.6"/>'
    )


if __name__ == "__main__":
    PICTURE.write_text(picture(), "utf-8")
