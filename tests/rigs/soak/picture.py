"""A run's figures as curves, one panel each, in an SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.svg import LEFT, page, text

MINUTES = "minutes"
_COLUMNS, _WIDTH, _HEIGHT = 3, 330, 130
_TOP, _RIGHT, _BOTTOM = 44, 318, 112
"""Of a curve, in its panel, where it begins flush left."""


def draw(samples: Sequence[Mapping[str, float]], title: str) -> str:
    """All figures over their minutes; what lies in the first quarter, the warm-up, is shaded."""
    names = [name for name in samples[0] if name != MINUTES]
    rows = -(-len(names) // _COLUMNS)
    width, height = _COLUMNS * _WIDTH, rows * _HEIGHT + 40
    panels = [
        f'<g transform="translate({number % _COLUMNS * _WIDTH} {number // _COLUMNS * _HEIGHT + 40})">'
        f"{_panel(name, [sample[MINUTES] for sample in samples], [sample[name] for sample in samples])}</g>"
        for number, name in enumerate(names)
    ]
    return page(width, height, title, panels)


def _panel(name: str, minutes: Sequence[float], values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    # A curve begins at zero: what changes by a hundredth is to look flat.
    points = " ".join(
        f"{LEFT + (_RIGHT - LEFT) * minute / (minutes[-1] or 1):.1f},"
        f"{_BOTTOM - (_BOTTOM - _TOP) * value / (high or 1):.1f}"
        for minute, value in zip(minutes, values, strict=True)
    )
    return (
        f'<rect class="warm" x="{LEFT}" y="{_TOP}" width="{(_RIGHT - LEFT) / 4}" height="{_BOTTOM - _TOP}"'
        ' fill="#eaeef2"/>'
        f"{text(LEFT, 18, name)}{text(LEFT, 34, f'{low:,.4g} to {high:,.4g}, last {values[-1]:,.4g}', 'note')}"
        f'<polyline class="line" points="{points}" fill="none" stroke="#0969da" stroke-width="1.5"/>'
    )
