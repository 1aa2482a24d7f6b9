"""Requirements that a table and its columns can set for a writer, as a part of the list in `writer_requirements.py`.

Sources: Delta's protocol ("Writer Requirements", "Table Features", "Column Metadata", "Table Properties"),
delta-spark's `TableFeature` and `DeltaConfigs`, and Spark's metadata of columns.
"""

from __future__ import annotations

from collections.abc import Iterator

from tiered_stream.delta.requirements.requirement import OFF, Handling, Kind, Requirement, entries
from tiered_stream.delta.requirements.text_limits import DECLARED_TYPE
from tiered_stream.delta.settings.ingest_settings import COLUMN_MAPPING

CLUSTERING = "clustering"
"""Name of the table feature of tables that `OPTIMIZE` clusters.

Writers of a table with this feature must add statistics of the clustering columns to each file.
"""
CONSTRAINT_PREFIX = "delta.constraints."
_HONOURED, _NOTHING, _BY_SPARK, _SPARK = Handling.HONOURED, Handling.NOTHING, Handling.BY_SPARK, Handling.SPARK_LANE


def _features() -> Iterator[Requirement]:
    of_columns = "As its columns say, see below."
    yield from entries(Kind.FEATURE, _NOTHING, "appendOnly", "changeDataFeed", "deletionVectors")
    yield from entries(
        Kind.FEATURE, _NOTHING, "invariants", "generatedColumns", "columnMapping", "checkConstraints", note=of_columns
    )
    yield Requirement(Kind.FEATURE, "timestampNtz", _HONOURED)
    yield from entries(Kind.FEATURE, _BY_SPARK, CLUSTERING, "domainMetadata", "typeWidening", "typeWidening-preview")
    yield from entries(
        Kind.FEATURE, _SPARK,
        "adaptiveMetadata-preview", "allowColumnDefaults", "catalogManaged", "catalogOwned-preview",
        "checkpointProtection", "collations", "collations-preview", "coordinatedCommits-preview", "geospatial",
        "geospatial-dev", "icebergCompatV1", "icebergCompatV2", "icebergCompatV3", "icebergWriterCompatV1",
        "icebergWriterCompatV3", "identityColumns", "inCommitTimestamp", "materializePartitionColumns",
        "redirectReaderWriter-preview", "redirectWriterOnly-preview", "rowTracking", "v2Checkpoint",
        "vacuumProtocolCheck", "variantShredding", "variantShredding-preview", "variantType", "variantType-preview",
    )  # fmt: skip


def _delta(handling: Handling, *names: str, note: str = "", off: frozenset[str] = OFF) -> list[Requirement]:
    """Return entries for table properties; `names` are without the prefix `delta.`."""
    return entries(Kind.PROPERTY, handling, *(f"delta.{name}" for name in names), note=note, off=off)


def _properties() -> Iterator[Requirement]:
    yield Requirement(
        Kind.PROPERTY, f"{CONSTRAINT_PREFIX}*", _HONOURED,
        "If it is [simple](typed-tables.md#constraints); otherwise the Spark lane. Rows that break it: dead letters.",
    )  # fmt: skip
    yield Requirement(
        Kind.PROPERTY, "delta.feature.*", _SPARK, "Or as the feature of that name. For a table that is made.",
        off=frozenset(),
    )  # fmt: skip
    yield from _delta(
        _HONOURED,
        "checkpointInterval", "enableExpiredLogCleanup", "logRetentionDuration", "setTransactionRetentionDuration",
    )  # fmt: skip
    yield from _delta(_BY_SPARK, "autoOptimize", "autoOptimize.autoCompact")
    yield Requirement(
        Kind.PROPERTY, "delta.compatibility.symlinkFormatManifest.enabled", _BY_SPARK,
        "delta-spark writes the manifests after each commit.",
    )  # fmt: skip
    yield from _delta(_BY_SPARK, "enableTypeWidening")
    yield Requirement(Kind.PROPERTY, COLUMN_MAPPING, _SPARK, label="column mapping", off=OFF | {"none"})
    yield from _delta(
        _SPARK,
        "coordinatedCommits.*", "enableIcebergCompatV1", "enableIcebergCompatV2", "enableIcebergCompatV3",
        "enableIcebergWriterCompatV1", "enableIcebergWriterCompatV3", "enableInCommitTimestamps",
        "enableMaterializePartitionColumnsFeature", "enableRowTracking", "enableVariantShredding",
        "randomizeFilePrefixes", "redirectReaderWriter-preview", "redirectWriterOnly-preview",
        "universalFormat.config.*", "universalFormat.enabledFormats", "writePartitionColumnsToParquet",
    )  # fmt: skip
    yield from _delta(_SPARK, "requireCheckpointProtectionBeforeVersion", off=OFF | {"0"}, note="Where it is not 0.")
    yield from _delta(_SPARK, "checkpointPolicy", off=OFF | {"classic"}, note="Where it is not `classic`.")
    yield from _delta(_SPARK, "parquet.format.version", off=OFF | {"1.0.0"}, note="Where it is not `1.0.0`.")
    yield from _properties_without_effect()


def _properties_without_effect() -> Iterator[Requirement]:
    yield from _delta(
        _NOTHING,
        "appendOnly", "castIcebergTimeType", "checkpointRetentionDuration", "columnMapping.maxColumnId",
        "deletedFileRetentionDuration", "dropFeatureTruncateHistory.retentionDuration", "enableChangeDataCapture",
        "enableChangeDataFeed", "enableDeletionVectors", "enableFullRetentionRollback", "ignoreIcebergBucketPartition",
        "ignoreProtocolDefaults", "inCommitTimestampEnablementTimestamp", "inCommitTimestampEnablementVersion",
        "isolationLevel", "lastCommitTimestamp", "lastUpdateVersion", "minReaderVersion", "minWriterVersion",
        "randomPrefixLength", "rowTracking.materializedRowCommitVersionColumnName",
        "rowTracking.materializedRowIdColumnName", "rowTrackingSuspended", "sampleRetentionDuration",
        "universalFormat.iceberg.atomicConversion.supported",
    )  # fmt: skip
    yield from _delta(
        _NOTHING, "checkpoint.writeStatsAsJson", "checkpoint.writeStatsAsStruct",
        note="It asks something of a checkpoint, which who commits writes in its own way.",
    )  # fmt: skip
    yield from _delta(
        _NOTHING, "dataSkippingNumIndexedCols", "dataSkippingStatsColumns", "dataSkippingStringPrefixLength",
        note="Statistics may be left out: the first 32 columns have them. A clustered table that has one of the first "
        "two is left to the Spark lane.",
    )  # fmt: skip
    yield from _delta(
        _NOTHING, "autoOptimize.optimizeWrite", "targetFileSize", "tuneFileSizesForRewrites",
        note="Files are as large as `ingest.targetFileSize` says.",
    )  # fmt: skip
    yield from _delta(_NOTHING, "parquet.compression.codec", note="`ingest.compression` says it.")


def _of_columns() -> Iterator[Requirement]:
    kind = Kind.METADATA
    yield Requirement(
        kind, DECLARED_TYPE, _HONOURED,
        "The lengths of VARCHAR(n) and CHAR(n), at any depth. A longer text is a dead letter; a CHAR gets blanks up to "
        "n.",
    )  # fmt: skip
    yield Requirement(kind, "delta.invariants", _SPARK, label="an invariant")
    yield Requirement(kind, "delta.generationExpression", _SPARK, label="a generation expression")
    yield Requirement(kind, "delta.identity.*", _SPARK, label="identity values")
    yield Requirement(kind, "CURRENT_DEFAULT", _SPARK, label="a default")
    yield Requirement(kind, "EXISTS_DEFAULT", _SPARK, label="a default for rows of older files")
    yield Requirement(kind, "delta.columnMapping.*", _SPARK, label="a physical name of its own (column mapping)")
    yield Requirement(kind, "__COLLATIONS", _SPARK, label="a collation")
    yield Requirement(kind, "parquet.field.id", _SPARK, label="an id in Parquet files")
    yield Requirement(kind, "delta.typeChanges", _NOTHING, "It names narrower types in older files, for readers.")
    yield Requirement(kind, "comment", _NOTHING)


KNOWN_TYPES = (
    "string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary", "date", "timestamp",
    "timestamp_ntz", "decimal*",
)  # fmt: skip
_UNKNOWN_TYPES = ("variant", "void", "interval*", "geometry*", "geography*", "char*", "varchar*", "string collate *")

_SCHEMA_ENTRIES = (
    ("NOT NULL of a column", _HONOURED, "Rows that break it are dead letters."),
    ("NOT NULL of a field in structs", _HONOURED,
     "As in Delta, the structs around it must not be null either. Rows that break it are dead letters."),
    ("elements of lists and values of maps that must not be null, NOT NULL within them", _HONOURED,
     "Delta's own sink writes zeros in place of nulls; here, in both lanes, such rows are dead letters."),
    ("NOT NULL of the day's column", _SPARK, ""),
    ("columns whose names differ from what is written by case only", _SPARK, ""),
    ("partition columns other than the day", _SPARK, ""),
)  # fmt: skip

TABLE_REQUIREMENTS = (
    *_features(),
    *_properties(),
    *_of_columns(),
    *entries(Kind.TYPE, _HONOURED, *KNOWN_TYPES),
    *entries(Kind.TYPE, _SPARK, *_UNKNOWN_TYPES),
    *(Requirement(Kind.SCHEMA, *schema_entry) for schema_entry in _SCHEMA_ENTRIES),
)
