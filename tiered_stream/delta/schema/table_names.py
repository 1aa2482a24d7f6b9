"""Names of tables in Spark's catalog as SQL, and the table that a name with `{topic}` means for a topic.

A topic's name may have characters that mean something in SQL: `--` begins a comment, and `.` separates parts of a name.
So each part of a name is quoted, and a topic never adds a part.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tiered_stream.delta.schema.sql_types import sql_name
from tiered_stream.delta.settings.ingest_settings import TOPIC
from tiered_stream.errors import ConfigurationError

PLAIN = re.compile(r"\w+", re.ASCII)
_PART = r"(?:\s*`(?:[^`]|``)+`\s*|[^`.]+)"


def name_parts(table: str) -> tuple[str, ...]:
    """Return the parts of a table's name in the catalog, without quotes: (catalog, database, table), or fewer.

    Parts are separated by dots. A part may be in back quotes, in which two back quotes stand for one.

    Raises:
        ConfigurationError: a part is empty, has a single back quote, or has control characters.
    """
    whole = re.fullmatch(rf"{_PART}(?:\.{_PART})*", table)
    parts = [part.strip() for part in re.findall(_PART, table)] if whole else []
    parts = [part[1:-1].replace("``", "`") if part.startswith("`") else part for part in parts]
    if not parts or not all(part and part.isprintable() for part in parts):
        raise ConfigurationError(
            f"{table!r:.300} is no name of a table: write table, database.table or catalog.database.table, each part "
            "in back quotes if it has other characters than letters, digits and _"
        )
    return tuple(parts)


def quoted_name(parts: Sequence[str]) -> str:
    """Return a name in the catalog as SQL text: parts with other characters than ASCII's letters, digits and _ quoted.

    The text is also what `name_parts` parses.
    """
    return ".".join(part if PLAIN.fullmatch(part) else sql_name([part]) for part in parts)


def table_for(table: str, topic: str) -> str:
    """Return the table that the path or name `table` means for a topic: the topic stands in place of `{topic}`.

    In a name in the catalog, the topic is within one part.
    """
    if "/" in table or TOPIC not in table:
        return table.replace(TOPIC, topic)
    return quoted_name([part.replace(TOPIC, topic) for part in name_parts(table)])
