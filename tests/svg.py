"""Pictures without a plotting library: a page of SVG that reads the same on a light and on a dark background."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape

LEFT = 12
"""Where a page's title begins, and whatever is flush with it."""
_STYLE = """<style>
  /* It brings its own background, so it reads the same on a light and on a dark page. */
  @media (prefers-color-scheme: dark) {
    .page { fill: #161b22 } .warm { fill: #21262d } .text { fill: #e6edf3 } .note { fill: #adbac7 }
    .line { stroke: #58a6ff } .grid { stroke: #30363d }
  }
</style>"""


def page(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """The parts are elements; those of the classes in the style above have their colours by attributes as well."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            ' font-family="system-ui, sans-serif" font-size="12">',
            _STYLE,
            f'<rect class="page" width="{width}" height="{height}" fill="#f6f8fa"/>',
            f'<text class="text" x="{LEFT}" y="26" font-size="16" fill="#1f2328">{escape(title)}</text>',
            *parts,
            "</svg>\n",
        ]
    )


def text(x: float, y: float, said: str, kind: str = "text", anchor: str = "start") -> str:
    """`kind`: `text`, or `note` for what is less important."""
    fill = "#1f2328" if kind == "text" else "#424a53"
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}">{escape(said)}</text>'
