"""What Spark's session may ask of a writer: the session's part of the list in `writer_requirements.py`.

A setting with the handling `SPARK_LANE` keeps every table from the direct lane while it is set to a value that is not
among the entry's `off`.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

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


def settings_in_list(spark: SparkSession) -> dict[str, str]:
    """The session's settings that the list knows. Each name is a call to the JVM, so only a prefix asks for all."""
    prefixes = tuple(each.name[:-1] for each in SESSION_REQUIREMENTS if each.name.endswith("*"))
    found = {name: value for name, value in spark.conf.getAll.items() if name.startswith(prefixes)} if prefixes else {}
    for each in SESSION_REQUIREMENTS:
        if not each.name.endswith("*") and (value := spark.conf.get(each.name, None)) is not None:
            found[each.name] = value
    return found
