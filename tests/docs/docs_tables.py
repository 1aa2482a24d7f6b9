"""Write the documentation's tables of options, metrics and requirements from their declarations in the code.

Run it as `python -m tests.docs.docs_tables`.
"""

from __future__ import annotations

from pathlib import Path

from tiered_stream.broker.properties.property_table import render_client_properties
from tiered_stream.delta.requirements.writer_requirements import render_writer_requirements
from tiered_stream.delta.settings.ingest_settings import INGEST_OPTIONS
from tiered_stream.delta.settings.row_settings import ROW_OPTIONS
from tiered_stream.gateway.counters import GatewayMetrics
from tiered_stream.gateway.gateway_settings import GATEWAY_OPTIONS
from tiered_stream.options.limit_options import LIMIT_OPTIONS
from tiered_stream.options.plugin_properties import render_plugin_properties
from tiered_stream.options.tables import render_option_table, render_table, with_table

DOCS = Path(__file__).parents[2] / "docs"


def tables() -> dict[tuple[str, str], str]:
    """Return the tables as Markdown, by the page and the name of the markers between which the table stands."""
    return {
        ("options.md", "options"): render_option_table(),
        ("options.md", "client properties"): render_client_properties(),
        ("options.md", "plugin properties"): render_plugin_properties(),
        ("options.md", "limits"): render_table(LIMIT_OPTIONS.values()),
        ("guides/ingest.md", "ingest options"): render_table(INGEST_OPTIONS),
        ("guides/typed-tables.md", "row options"): render_table(ROW_OPTIONS),
        ("guides/table-requirements.md", "writer requirements"): render_writer_requirements(),
        ("guides/gateway.md", "gateway options"): render_table(GATEWAY_OPTIONS),
        ("metrics.md", "gateway metrics"): _gateway_metrics(),
    }


def _gateway_metrics() -> str:
    lines = ["| Metric | Type | Meaning |", "|---|---|---|"]
    for family in GatewayMetrics().registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        lines.append(f"| `{name}` | {family.type} | {family.documentation} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    for (page, name), table in tables().items():
        path = DOCS / page
        path.write_text(with_table(path.read_text("utf-8"), name, table), "utf-8")


if __name__ == "__main__":
    main()
