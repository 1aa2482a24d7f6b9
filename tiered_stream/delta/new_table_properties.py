"""The properties of a table that is made: those that the job gives, and the session's defaults for new tables.

As delta-spark has it (`DeltaConfigs.mergeGlobalConfigs`): what is given for a table goes before the session's defaults.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import SparkSession

from tiered_stream.delta.ingest_settings import PROPERTY_PREFIX, table_properties
from tiered_stream.errors import ConfigurationError

DEFAULTS_PREFIX = "spark.databricks.delta.properties.defaults."
_DELTA, _FEATURE = "delta.", "delta.feature."
_IGNORE_PROTOCOL = "delta.ignoreProtocolDefaults"
_PROTOCOL = ("delta.minReaderVersion", "delta.minWriterVersion", _IGNORE_PROTOCOL)

MADE_ALIKE = frozenset(
    ("delta.appendOnly", "delta.autoOptimize.autoCompact", "delta.autoOptimize.optimizeWrite",
     "delta.checkpoint.writeStatsAsJson", "delta.checkpoint.writeStatsAsStruct", "delta.checkpointInterval",
     "delta.dataSkippingNumIndexedCols", "delta.dataSkippingStatsColumns", "delta.deletedFileRetentionDuration",
     "delta.enableExpiredLogCleanup", "delta.isolationLevel", "delta.logRetentionDuration",
     "delta.randomPrefixLength", "delta.randomizeFilePrefixes", "delta.setTransactionRetentionDuration")
)  # fmt: skip
"""Properties with which deltalake 1.6 makes the same table as delta-spark, metadata and protocol."""
MADE_WELL = MADE_ALIKE | {"delta.enableChangeDataFeed"}
"""With these the table has another protocol, by which readers and writers do the same.

Of the others deltalake refuses most; it would give `delta.enableDeletionVectors` a feature too many, and
`delta.columnMapping.mode` too few.
"""


def session_defaults(spark: SparkSession, given: Mapping[str, str]) -> dict[str, str]:
    """The session's defaults for a new table that is `given` properties: those that these leave open."""
    conf: Any = spark._jsparkSession.sessionState().conf()
    names = str(conf.getAllConfs().keySet().mkString("\n")).split("\n")  # one call, where each would take one
    found = {name: str(conf.getConfString(name)) for name in names if name.startswith(DEFAULTS_PREFIX)}
    return merged_defaults({_DELTA + name[len(DEFAULTS_PREFIX) :]: value for name, value in found.items()}, given)


def merged_defaults(defaults: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """The defaults that count beside what is given; both by the properties' names, in which Delta heeds no case."""
    own = {name.lower(): value for name, value in given.items()}
    ignored = own.get(_IGNORE_PROTOCOL.lower(), defaults.get(_IGNORE_PROTOCOL, "false")).lower() == "true"
    return {
        name: value
        for name, value in defaults.items()
        if name.lower() not in own and name != _IGNORE_PROTOCOL and not (ignored and _is_protocol(name))
    }


def new_table_properties(spark: SparkSession, settings: Mapping[str, str]) -> dict[str, str]:
    """All properties of a table that is made."""
    given = table_properties(settings)
    return session_defaults(spark, given) | given


def is_made_by_spark(spark: SparkSession, settings: Mapping[str, str], *, has_delta: bool) -> bool:
    """Whether delta-spark has to make the table, whoever commits to it: it also checks the session's defaults.

    Raises:
        ConfigurationError: it has to, and the session has none.
    """
    given = table_properties(settings)
    defaults = session_defaults(spark, given)
    if has_delta:
        return bool(defaults) or not MADE_ALIKE.issuperset(given)
    check_made_by_deltalake(defaults, given)
    return False


def check_made_by_deltalake(defaults: Mapping[str, str], given: Iterable[str]) -> None:
    """Raises ConfigurationError: names a setting by which a table gets what deltalake cannot give it."""
    settings = {name: DEFAULTS_PREFIX + name.removeprefix(_DELTA) for name in defaults}
    settings |= {name: PROPERTY_PREFIX + name for name in given}
    for name, setting in settings.items():
        if name not in MADE_WELL:
            raise ConfigurationError(
                f"{setting} asks for a property that deltalake gives no new table, and the session has no delta-spark: "
                "add it (conf/spark-defaults.conf), or take the setting away"
            )


def _is_protocol(name: str) -> bool:
    return name in _PROTOCOL or name.startswith(_FEATURE)
