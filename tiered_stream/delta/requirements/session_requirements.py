"""Settings of Spark's session for writers: the compression of files, and the properties of new tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from tiered_stream.delta.settings import ingest_settings as ingest
from tiered_stream.delta.settings.query_settings import QuerySettings
from tiered_stream.errors import ConfigurationError

# Properties of a new table: the properties that the job sets, and the session's defaults for new tables.
#
# A property that is set for the table overrides the session's default, as in delta-spark
# (`DeltaConfigs.mergeGlobalConfigs`).

DEFAULTS_PREFIX = "spark.databricks.delta.properties.defaults."
STORE_ASSIGNMENT = "spark.sql.storeAssignmentPolicy"
OUTPUT_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
SESSION_TRANSACTION = ("spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion")
CODEC = "spark.sql.parquet.compression.codec"
_CODECS = {**{codec: codec for codec in ingest.CODECS}, "uncompressed": ingest.UNCOMPRESSED}
"""Value of `ingest.compression` for each value of the session's setting `CODEC` that tasks can follow."""


def with_session_codec(spark: SparkSession, query: QuerySettings) -> QuerySettings:
    """Return the settings with the session's compression in each table's specification that has no compression.

    The settings are returned unchanged if the session sets no compression, or one with which tasks cannot write files.
    """
    codec = _CODECS.get((spark.conf.get(CODEC, None) or "").lower())
    if codec is None:
        return query
    topics = {topic: replace(spec, compression=spec.compression or codec) for topic, spec in query.topics.items()}
    return replace(query, spec=replace(query.spec, compression=query.spec.compression or codec), topics=topics)


def codec_option(spark: SparkSession, spec: ingest.TableSpec) -> dict[str, str]:
    """Return the option of Spark's Delta writer that gives data files the compression of `spec`, as a dictionary.

    The result is empty if only the session sets a compression, because the writer follows the session without an
    option.
    """
    is_sessions = spec.compression is None and spark.conf.get(CODEC, None) is not None
    return {} if is_sessions else {"compression": spec.codec}


_DELTA, _FEATURE, _IGNORE_PROTOCOL = "delta.", "delta.feature.", "delta.ignoreProtocolDefaults"
_VERSIONS = ("delta.minReaderVersion", "delta.minWriterVersion")
_PROTOCOL = (*_VERSIONS, _FEATURE)
"""Beginnings of the names of properties for protocol versions and features."""

CREATED_ALIKE = frozenset(
    ("delta.appendOnly", "delta.autoOptimize.autoCompact", "delta.autoOptimize.optimizeWrite",
     "delta.checkpoint.writeStatsAsJson", "delta.checkpoint.writeStatsAsStruct", "delta.checkpointInterval",
     "delta.dataSkippingNumIndexedCols", "delta.dataSkippingStatsColumns", "delta.deletedFileRetentionDuration",
     "delta.enableExpiredLogCleanup", "delta.isolationLevel", "delta.logRetentionDuration",
     "delta.randomPrefixLength", "delta.randomizeFilePrefixes", "delta.setTransactionRetentionDuration")
)  # fmt: skip
"""Properties with which deltalake 1.6 creates a table with the same metadata and protocol as delta-spark does."""
CREATED_WELL = CREATED_ALIKE | {"delta.enableChangeDataFeed"}
"""Properties with which deltalake 1.6 creates a table that readers and writers treat like delta-spark's.

With `delta.enableChangeDataFeed`, deltalake gives the table another protocol than delta-spark does, with the same
effect. deltalake refuses most other properties. With `delta.enableDeletionVectors`, deltalake would create a table with
one table feature more than delta-spark does. With `delta.columnMapping.mode`, the table would lack features.
"""


def session_defaults(spark: SparkSession, own_properties: Mapping[str, str]) -> dict[str, str]:
    """Return the table properties that the session sets by default for a new table, by name (`delta.*`).

    The session's settings are `spark.databricks.delta.properties.defaults.*`. Defaults that `own_properties` override
    are left out (see `merged_defaults`).
    """
    conf: Any = spark._jsparkSession.sessionState().conf()
    names = str(conf.getAllConfs().keySet().mkString("\n")).split("\n")  # one call into the JVM for all names
    defaults = {name: str(conf.getConfString(name)) for name in names if name.startswith(DEFAULTS_PREFIX)}
    return merged_defaults(
        {_DELTA + name[len(DEFAULTS_PREFIX) :]: value for name, value in defaults.items()}, own_properties
    )


def merged_defaults(defaults: Mapping[str, str], own_properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties in `defaults` that apply to a new table whose own properties are `own_properties`.

    Both arguments are values by property name. A default does not apply if `own_properties` has the same name; names
    are compared without regard to case. If `delta.ignoreProtocolDefaults` is true, defaults for protocol versions and
    features do not apply either.
    """
    own = {name.lower(): value for name, value in own_properties.items()}
    ignored = own.get(_IGNORE_PROTOCOL.lower(), defaults.get(_IGNORE_PROTOCOL, "false")).lower() == "true"
    return {
        name: value
        for name, value in defaults.items()
        if name.lower() not in own and name != _IGNORE_PROTOCOL and not (ignored and name.startswith(_PROTOCOL))
    }


def new_table_properties(spark: SparkSession, spec: ingest.TableSpec) -> dict[str, str]:
    """Return all properties of a new table, by name.

    The result has the properties of `spec`, and the session's defaults for other names.
    """
    return session_defaults(spark, spec.properties) | spec.properties


def lacking_properties(
    properties: Mapping[str, str], known: Mapping[str, str], writer_features: Iterable[str]
) -> dict[str, str]:
    """Return the entries of `properties` that a table lacks or has with another value.

    `known` has the table's properties, and `writer_features` its features for writers. Protocol versions are left out.
    """
    features = {_FEATURE + name for name in writer_features}
    known = {name.lower(): value for name, value in known.items()}
    return {
        name: value
        for name, value in properties.items()
        if known.get(name.lower()) != value and name not in {*features, *_VERSIONS, _IGNORE_PROTOCOL}
    }


def is_created_by_spark(spark: SparkSession, spec: ingest.TableSpec, *, has_delta: bool) -> bool:
    """Return whether delta-spark must create the table, even if deltalake commits to it later.

    If `has_delta` is false (the session has no delta-spark), the result is false. Otherwise it is true if the session
    has default properties for new tables, or if `spec` has a property that is not in `CREATED_ALIKE`.

    Raises:
        ConfigurationError: the session has no delta-spark, and a property is not in `CREATED_WELL`.
    """
    own_properties = spec.properties
    defaults = session_defaults(spark, own_properties)
    if has_delta:
        return bool(defaults) or not CREATED_ALIKE.issuperset(own_properties)
    check_created_by_deltalake(defaults, own_properties)
    return False


def check_created_by_deltalake(defaults: Mapping[str, str], own_properties: Iterable[str]) -> None:
    """Raise ConfigurationError if a name in `defaults` or in `own_properties` is not in `CREATED_WELL`.

    deltalake cannot create a table with such a property.
    """
    settings = {name: DEFAULTS_PREFIX + name.removeprefix(_DELTA) for name in defaults}
    settings |= {name: ingest.PROPERTY_PREFIX + name for name in own_properties}
    for name, setting in settings.items():
        if name not in CREATED_WELL:
            raise ConfigurationError(
                f"{setting} asks for a property that deltalake gives no new table, and the session has no delta-spark: "
                "add it (conf/spark-defaults.conf), or take the setting away"
            )
