"""All declared options of the source, and Markdown tables of options."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tiered_stream.options import remote_options, spark_options
from tiered_stream.options.limit_options import LIMIT_OPTIONS
from tiered_stream.options.types import Option, Queries, declared_in

_OTHERS: tuple[Option[Any], ...] = (
    *declared_in(vars(spark_options)),
    *spark_options.REFUSED,
    *declared_in(vars(remote_options)),
)
OPTIONS = (*_OTHERS, *LIMIT_OPTIONS.values())


def render_table(options: Iterable[Option[Any]]) -> str:
    """Return a Markdown table of the options, without internal ones.

    The table has a column for batch or streaming if an option is not for all queries.
    """
    shown = [option for option in options if not option.internal]
    by_queries = any(option.queries is not Queries.ALL for option in shown)
    titles = ["Option", "Default", *(["Queries"] if by_queries else []), "Meaning"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for option in shown:
        default = f"`{option.shown}`" if option.shown else ""
        queries = [option.queries.value] if by_queries else []
        lines.append(
            f"| {' | '.join([f'`{option.name}`', default, *queries, option.doc.replace('|', chr(92) + '|')])} |"
        )
    return "\n".join(lines) + "\n"


def render_option_table() -> str:
    """Return the Markdown table of all the source's options except the limits."""
    others = "| other `kafka.*` | | all | [Kafka's client properties](#kafkas-client-properties). |"
    return f"{render_table(_OTHERS)}{others}\n"


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
