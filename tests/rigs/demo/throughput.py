"""Rows a second over time, of those who landed the same topic, in one SVG."""

from __future__ import annotations

from collections.abc import Mapping

from tests.rigs.demo.race import Landed
from tests.svg import LEFT, page, text

_WIDTH, _HEIGHT = 760, 380
_FIRST, _TOP, _RIGHT, _BOTTOM = 90, 84, 736, 336
"""Of the curves."""
_COLOURS = ("#0969da", "#bc4c00")


def draw(landed: Mapping[str, Landed], title: str) -> str:
    """A micro-batch counts from its predecessor's commit to its own; the first, from when it began.

    The area below a curve is the topic's rows, so both are of one size.
    """
    curves = {name: _steps(each) for name, each in landed.items()}
    seconds = max(points[-1][0] for points in curves.values())
    highest = max(rate for points in curves.values() for _, rate in points)

    def at(point: tuple[float, float]) -> tuple[float, float]:
        across, up = point[0] / seconds, point[1] / highest
        return _FIRST + (_RIGHT - _FIRST) * across, _BOTTOM - (_BOTTOM - _TOP) * up

    parts = _axes(seconds, highest)
    for number, ((name, points), colour) in enumerate(zip(curves.items(), _COLOURS, strict=True)):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(at, points))
        parts.append(f'<polygon points="{path}" fill="{colour}" fill-opacity="0.35" stroke="{colour}"/>')
        left = LEFT + 360 * number
        parts.append(f'<rect x="{left}" y="42" width="12" height="12" fill="{colour}"/>')
        parts.append(text(left + 20, 53, f"{name}: {points[-1][0]:.1f} s"))
    return page(_WIDTH, _HEIGHT, title, parts)


def _steps(landed: Landed) -> list[tuple[float, float]]:
    """Corners, from nothing to nothing: seconds since the start, and rows a second."""
    points, last = [(landed.run.start_up, 0.0)], landed.run.start_up
    for seconds, rows in landed.micro_batches:
        rate = rows / max(seconds - last, 1e-3)  # times of files are as coarse as the kernel's clock
        points += [(last, rate), (seconds, rate)]
        last = seconds
    return [*points, (last, 0.0)]


def _axes(seconds: float, highest: float) -> list[str]:
    """Lines at four heights and four times, and what they stand for."""
    parts = []
    for quarter in range(5):
        y = _BOTTOM - (_BOTTOM - _TOP) * quarter / 4
        line = f'<line class="grid" x1="{_FIRST}" y1="{y:.1f}" x2="{_RIGHT}" y2="{y:.1f}" stroke="#d0d7de"/>'
        parts += [line, text(_FIRST - 8, y + 4, f"{highest * quarter / 4 / 1000:,.0f} k/s", "note", "end")]
        x = _FIRST + (_RIGHT - _FIRST) * quarter / 4
        parts.append(text(x, _BOTTOM + 20, f"{seconds * quarter / 4:.1f} s", "note", "middle"))
    return parts
