"""Tables of figures that programs print."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from rich.table import Table


def table(
    title: str | None, columns: Sequence[str], rows: Iterable[Sequence[str]], texts: Collection[str] = ("",)
) -> Table:
    """Return a table; the columns `texts` have no figures."""
    shown = Table(title=title)
    for column in columns:
        shown.add_column(column, justify="left" if column in texts else "right")
    for row in rows:
        shown.add_row(*row)
    return shown
