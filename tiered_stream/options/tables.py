"""All declared options together, and the README's table of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tiered_stream.options import remote_options, spark_options
from tiered_stream.options.types import Option

OPTIONS: tuple[Option[Any], ...] = (
    *(value for value in vars(spark_options).values() if isinstance(value, Option)),
    *spark_options.REFUSED,
    *(value for value in vars(remote_options).values() if isinstance(value, Option)),
)
"""In the order in which they are declared."""

_BEGIN, _END = "<!-- options -->", "<!-- /options -->"


def render_option_table() -> str:
    """The options as a Markdown table; those that are internal are left out."""
    lines = ["| Option | Default | Queries | Meaning |", "|---|---|---|---|"]
    for option in OPTIONS:
        if not option.internal:
            default = f"`{option.shown}`" if option.shown else ""
            doc = option.doc.replace("|", "\\|")
            lines.append(f"| `{option.name}` | {default} | {option.queries.value} | {doc} |")
    lines.append("| other `kafka.*` | | all | Handed to the Kafka client, the prefix taken off. |")
    return "\n".join(lines) + "\n"


def write_option_table(readme: Path) -> None:
    """Put the table between the markers in `readme`; a file that is not there yet gets a title and the table.

    Raises:
        ValueError: the file has no markers.
    """
    text = readme.read_text("utf-8") if readme.exists() else f"# tiered_stream\n\n## Options\n\n{_BEGIN}\n{_END}\n"
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise ValueError(f"{readme} has no markers {_BEGIN} and {_END}")
    readme.write_text(f"{before}{_BEGIN}\n{render_option_table()}{_END}{after}", "utf-8")
