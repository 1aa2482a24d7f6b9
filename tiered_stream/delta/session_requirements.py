"""What Spark's session may ask of a writer: the session's part of the list in `writer_requirements.py`.

A setting with the handling `SPARK_LANE` keeps every table from the direct lane while it is set to a value that is not
among the entry's `off`.
"""

from __future__ import annotations

from tiered_stream.delta.requirement import Handling, Kind, Requirement


def _setting(name: str, handling: Handling, note: str = "", said: str = "") -> Requirement:
    return Requirement(Kind.SESSION, name, handling, note, said)


SESSION_REQUIREMENTS = (
    _setting(
        "spark.databricks.delta.autoCompact.enabled", Handling.BY_SPARK,
        "For a table in a local folder; in S3 `auto` takes delta-spark anyway.",
    ),
    _setting(
        "spark.sql.legacy.charVarcharAsString", Handling.NOTHING,
        "Lengths of VARCHAR(n) and CHAR(n) that a table has are kept to, whatever it says.",
    ),
)  # fmt: skip
