"""Tables that programs print, or write into pages."""

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


def markdown(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    head = [f"| {' | '.join(titles)} |".replace("  ", " "), "|---" * len(titles) + "|"]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows), ""])
