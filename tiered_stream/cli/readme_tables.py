"""The README's tables of options: `python -m tiered_stream.cli.readme_tables` writes them anew."""

from __future__ import annotations

from pathlib import Path

from tiered_stream.delta.ingest_settings import INGEST_OPTIONS
from tiered_stream.gateway.gateway_settings import GATEWAY_OPTIONS
from tiered_stream.options.tables import render_option_table, render_table, with_table

README = Path(__file__).parents[2] / "README.md"


def tables() -> dict[str, str]:
    """By the name of its markers."""
    return {
        "options": render_option_table(),
        "ingest options": render_table(INGEST_OPTIONS),
        "gateway options": render_table(GATEWAY_OPTIONS),
    }


def main() -> None:
    text = README.read_text("utf-8")
    for name, table in tables().items():
        text = with_table(text, name, table)
    README.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
