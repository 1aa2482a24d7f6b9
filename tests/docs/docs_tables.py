"""Write the documentation's tables of options, metrics and requirements from their declarations in the code.

Run it as `python -m tests.docs.docs_tables`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.docs import identities, schema_features
from tests.docs.writer_requirements import render_writer_requirements
from tests.rigs.tables import markdown
from tests.spark import abilities
from tiered_stream.broker.kafka_properties import CLIENT_PROPERTIES
from tiered_stream.delta.settings.ingest_settings import INGEST_OPTIONS
from tiered_stream.delta.settings.row_settings import ROW_OPTIONS
from tiered_stream.formats.sql.functions import FUNCTIONS, Function
from tiered_stream.gateway.gateway_metrics import GatewayMetrics
from tiered_stream.gateway.gateway_settings import GATEWAY_OPTIONS
from tiered_stream.gateway.locations.faulty_partitions import FaultyPartitions
from tiered_stream.options.given_options import OPTIONS_WITHOUT_LIMITS
from tiered_stream.options.plugin_properties import PLUGIN_PROPERTIES
from tiered_stream.options.remote_options import LIMIT_OPTIONS
from tiered_stream.options.types import KnownProperty, Option, Queries, Use

DOCS = Path(__file__).parents[2] / "docs"


def tables() -> dict[tuple[str, str], str]:
    """Return the tables as Markdown, by the page and the name of the markers between which the table stands."""
    return {
        ("options.md", "options"): render_option_table(),
        ("options.md", "client properties"): render_properties(CLIENT_PROPERTIES.values()),
        ("options.md", "plugin properties"): render_properties(PLUGIN_PROPERTIES.values()),
        ("options.md", "limits"): render_table(LIMIT_OPTIONS.values()),
        ("guides/ingest.md", "ingest options"): render_table(INGEST_OPTIONS),
        ("guides/typed-tables.md", "row options"): render_table(ROW_OPTIONS),
        ("guides/typed-tables.md", "sql functions"): render_functions(FUNCTIONS.values()),
        ("guides/table-requirements.md", "writer requirements"): render_writer_requirements(),
        ("guides/gateway.md", "gateway options"): render_table(GATEWAY_OPTIONS),
        ("metrics.md", "gateway metrics"): _gateway_metrics(),
        ("compatibility.md", "versions of Spark"): abilities.render(),
        **{("cloud-identities.md", cloud): identities.render_signed(cloud) for cloud in identities.CLOUDS},
        **{("refused-identities.md", cloud): identities.render_refused(cloud) for cloud in identities.CLOUDS},
        **{("guides/schema-features.md", name): table for name, table in schema_features.render().items()},
    }


def render_table(options: Iterable[Option[Any]]) -> str:
    """Return a Markdown table of the options, without internal ones.

    The table has a column for batch or streaming if an option is not for all queries.
    """
    shown = [option for option in options if not option.internal]
    by_queries = any(option.queries is not Queries.ALL for option in shown)
    titles = ["Option", "Default", *(["Queries"] if by_queries else []), "Meaning"]
    rows = []
    for option in shown:
        default = f"`{option.shown}`" if option.shown else ""
        queries = [option.queries.value] if by_queries else []
        rows.append([f"`{option.name}`", default, *queries, option.doc.replace("|", "\\|")])
    return markdown(titles, rows)


def render_option_table() -> str:
    """Return the Markdown table of all the source's options except the limits."""
    others = "| other `kafka.*` | | all | [Kafka's client properties](#kafkas-client-properties). |"
    return f"{render_table(OPTIONS_WITHOUT_LIMITS)}{others}\n"


def render_properties(properties: Iterable[KnownProperty]) -> str:
    """Return a Markdown table of the properties. Those that are not honoured and have the same text share a row."""
    rows: dict[tuple[str, ...], list[KnownProperty]] = {}
    for known in properties:
        own_row = (known.name,) if known.use is Use.HONOURED else ()
        rows.setdefault((known.use.value, known.doc, *own_row), []).append(known)
    with_defaults = any(known.default for same in rows.values() for known in same)
    titles = ["Property", *(["Default"] if with_defaults else []), "Given, it is", "Meaning"]
    cells = []
    for same in rows.values():
        names, first = ", ".join(f"`{known.name}`" for known in same), same[0]
        accepted = f", but for {' and '.join(f'`{value}`' for value in first.accepted)}" if first.accepted else ""
        replaced = f", unless {' or '.join(f'`{option.name}`' for option in first.replaced_by)} is given"
        effect = f"{first.use.value}{accepted}{replaced if first.replaced_by else ''}"
        defaults = [f"`{first.default}`" if first.default else ""] if with_defaults else []
        cells.append([names, *defaults, effect, first.doc])
    return markdown(titles, cells)


def with_table(text: str, name: str, table: str) -> str:
    """Put the table between the markers `<!-- NAME -->` and `<!-- /NAME -->`, and return the new text.

    Raises:
        ValueError: the text does not have both markers.
    """
    before, begin, rest = text.partition(f"<!-- {name} -->")
    _, end, after = rest.partition(f"<!-- /{name} -->")
    if not (begin and end):
        raise ValueError(f"there are no markers <!-- {name} --> and <!-- /{name} -->")
    return f"{before}{begin}\n{table}{end}{after}"


def render_functions(functions: Iterable[Function]) -> str:
    """Return a Markdown table of the SQL that `ingest.select` and `ingest.where` may have, by groups."""
    rows = []
    for group, members in groupby(functions, key=lambda function: function.group):
        for meaning, alike in groupby(members, key=lambda function: function.meaning):
            rows.append((group, ", ".join(function.forms for function in alike).replace("|", "\\|"), meaning))
    return markdown(("", "SQL", ""), rows)


def _gateway_metrics() -> str:
    rows = []
    registry = GatewayMetrics().registry
    FaultyPartitions(registry)
    for family in registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        rows.append((f"`{name}`", family.type, family.documentation))
    return markdown(("Metric", "Type", "Meaning"), rows)


def main() -> None:
    for (page, name), table in tables().items():
        path = DOCS / page
        path.write_text(with_table(path.read_text("utf-8"), name, table), "utf-8")


if __name__ == "__main__":
    main()
