"""Requirements that a table and its columns can set for a writer, as a part of the list in `writer_requirements.py`.

Sources: Delta's protocol ("Writer Requirements", "Table Features", "Column Metadata", "Table Properties"),
delta-spark's `TableFeature` and `DeltaConfigs`, and Spark's metadata of columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark.sql.types import DataType, StructField, StructType

from tiered_stream.delta.requirements.requirement import OFF, Handling, Kind, Requirement, entries
from tiered_stream.delta.schema.sql_types import arrow_schema, inner_fields, sql_name
from tiered_stream.delta.settings.ingest_settings import COLUMN_MAPPING
from tiered_stream.formats.columns.conform import widens
from tiered_stream.formats.rows.table_rules import FieldPath, TextLimit

CLUSTERING = "clustering"
"""Name of the table feature of tables that `OPTIMIZE` clusters.

Writers of a table with this feature must add statistics of the clustering columns to each file.
"""
# Length limits of `VARCHAR(n)` and `CHAR(n)`, which Spark keeps in a column's metadata (Spark: `CharVarcharUtils`).
#
# In the log such a column has the type STRING, or a type that contains STRING. The column's metadata has the declared
# type as text, such as `struct<name:varchar(20),codes:array<char(3)>>`.

DECLARED_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
CONSTRAINT_PREFIX = "delta.constraints."
_HONOURED, _NOTHING, _BY_SPARK, _SPARK = Handling.HONOURED, Handling.NOTHING, Handling.BY_SPARK, Handling.SPARK_LANE


def _delta(handling: Handling, *names: str, note: str = "", off: frozenset[str] = OFF) -> list[Requirement]:
    """Return one `Requirement` for each table property `delta.NAME` of `names`; other arguments are its fields."""
    return entries(Kind.PROPERTY, handling, *(f"delta.{name}" for name in names), note=note, off=off)


KNOWN_TYPES = (
    "string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary", "date", "timestamp",
    "timestamp_ntz", "decimal*",
)  # fmt: skip
_UNKNOWN_TYPES = ("variant", "void", "interval*", "geometry*", "geography*", "char*", "varchar*", "string collate *")

TABLE_REQUIREMENTS = (
    *entries(Kind.FEATURE, _NOTHING, "appendOnly", "changeDataFeed", "deletionVectors"),
    *entries(
        Kind.FEATURE, _NOTHING, "invariants", "generatedColumns", "columnMapping", "checkConstraints",
        note="As its columns say, see below.",
    ),
    Requirement(Kind.FEATURE, "timestampNtz", _HONOURED),
    *entries(Kind.FEATURE, _BY_SPARK, CLUSTERING, "domainMetadata", "typeWidening", "typeWidening-preview"),
    Requirement(
        Kind.PROPERTY, f"{CONSTRAINT_PREFIX}*", _HONOURED,
        "If it is [simple](typed-tables.md#constraints); otherwise the Spark lane. Rows that break it: dead letters.",
    ),
    Requirement(
        Kind.PROPERTY, "delta.feature.*", _SPARK, "Or as the feature of that name. For a table that is made.",
        off=frozenset(),
    ),
    *_delta(
        _HONOURED,
        "checkpointInterval", "enableExpiredLogCleanup", "logRetentionDuration", "setTransactionRetentionDuration",
    ),
    *_delta(_BY_SPARK, "autoOptimize", "autoOptimize.autoCompact"),
    Requirement(
        Kind.PROPERTY, "delta.compatibility.symlinkFormatManifest.enabled", _BY_SPARK,
        "delta-spark writes the manifests after each commit.",
    ),
    *_delta(_BY_SPARK, "enableTypeWidening"),
    Requirement(Kind.PROPERTY, COLUMN_MAPPING, _SPARK, label="column mapping", off=OFF | {"none"}),
    *_delta(
        _SPARK,
        "coordinatedCommits.*", "enableIcebergCompatV1", "enableIcebergCompatV2", "enableIcebergCompatV3",
        "enableIcebergWriterCompatV1", "enableIcebergWriterCompatV3", "enableInCommitTimestamps",
        "enableMaterializePartitionColumnsFeature", "enableRowTracking", "enableVariantShredding",
        "randomizeFilePrefixes", "redirectReaderWriter-preview", "redirectWriterOnly-preview",
        "universalFormat.config.*", "universalFormat.enabledFormats", "writePartitionColumnsToParquet",
    ),
    *_delta(_SPARK, "requireCheckpointProtectionBeforeVersion", off=OFF | {"0"}, note="Where it is not 0."),
    *_delta(_SPARK, "checkpointPolicy", off=OFF | {"classic"}, note="Where it is not `classic`."),
    *_delta(_SPARK, "parquet.format.version", off=OFF | {"1.0.0"}, note="Where it is not `1.0.0`."),
    *_delta(
        _NOTHING,
        "appendOnly", "castIcebergTimeType", "checkpointRetentionDuration", "columnMapping.maxColumnId",
        "deletedFileRetentionDuration", "dropFeatureTruncateHistory.retentionDuration", "enableChangeDataCapture",
        "enableChangeDataFeed", "enableDeletionVectors", "enableFullRetentionRollback", "ignoreIcebergBucketPartition",
        "ignoreProtocolDefaults", "inCommitTimestampEnablementTimestamp", "inCommitTimestampEnablementVersion",
        "isolationLevel", "lastCommitTimestamp", "lastUpdateVersion", "minReaderVersion", "minWriterVersion",
        "randomPrefixLength", "rowTracking.materializedRowCommitVersionColumnName",
        "rowTracking.materializedRowIdColumnName", "rowTrackingSuspended", "sampleRetentionDuration",
        "universalFormat.iceberg.atomicConversion.supported",
    ),
    *_delta(
        _NOTHING, "checkpoint.writeStatsAsJson", "checkpoint.writeStatsAsStruct",
        note="It asks something of a checkpoint, which who commits writes in its own way.",
    ),
    *_delta(
        _NOTHING, "dataSkippingNumIndexedCols", "dataSkippingStatsColumns", "dataSkippingStringPrefixLength",
        note="Statistics may be left out: the first 32 columns have them. A clustered table that has one of the first "
        "two is left to the Spark lane.",
    ),
    *_delta(
        _NOTHING, "autoOptimize.optimizeWrite", "targetFileSize", "tuneFileSizesForRewrites",
        note="Files are as large as `ingest.targetFileSize` says.",
    ),
    *_delta(_NOTHING, "parquet.compression.codec", note="`ingest.compression` says it."),
    Requirement(
        Kind.METADATA, DECLARED_TYPE, _HONOURED,
        "The lengths of VARCHAR(n) and CHAR(n), at any depth. A longer text is a dead letter; a CHAR gets blanks up to "
        "n.",
    ),
    Requirement(Kind.METADATA, "delta.invariants", _SPARK, label="an invariant"),
    Requirement(Kind.METADATA, "delta.generationExpression", _SPARK, label="a generation expression"),
    Requirement(Kind.METADATA, "delta.identity.*", _SPARK, label="identity values"),
    Requirement(Kind.METADATA, "CURRENT_DEFAULT", _SPARK, label="a default"),
    Requirement(Kind.METADATA, "EXISTS_DEFAULT", _SPARK, label="a default for rows of older files"),
    Requirement(Kind.METADATA, "delta.columnMapping.*", _SPARK, label="a physical name of its own (column mapping)"),
    Requirement(Kind.METADATA, "__COLLATIONS", _SPARK, label="a collation"),
    Requirement(Kind.METADATA, "parquet.field.id", _SPARK, label="an id in Parquet files"),
    Requirement(Kind.METADATA, "delta.typeChanges", _NOTHING, "It names narrower types in older files, for readers."),
    Requirement(Kind.METADATA, "comment", _NOTHING),
    *entries(Kind.TYPE, _HONOURED, *KNOWN_TYPES),
    *entries(Kind.TYPE, _SPARK, *_UNKNOWN_TYPES),
)  # fmt: skip


_PLAIN = r"(?!(?i:varchar|char)\()[a-zA-Z_]+(?: [a-zA-Z_]+)*+(?:\([\d, ]+\))?+"
_TEXT = rf"(?:((?i:varchar|char))\((\d{{1,9}})\)|{_PLAIN})"
"""Pattern of the declared type of a STRING: group 1 is `varchar` or `char`, and group 2 is the length.

Both groups are empty if the type has no limit.
"""


class UnreadableTypeError(ValueError):
    """Error for a declared type that cannot be parsed, or that does not match the column's type."""


def text_limits(field: Mapping[str, Any], above: FieldPath = ()) -> Iterator[TextLimit]:
    """Yield the length limits of all strings in a column or struct field, at any depth.

    `field` is the column or field in Spark's JSON. `above` is the path of the struct that contains the field, and is
    empty for a column.

    Raises:
        UnreadableTypeError: a declared type cannot be parsed, or does not match the field's type.
    """
    path = (*above, field["name"])
    declared = field.get("metadata", {}).get(DECLARED_TYPE)
    if declared is None:
        for inner in inner_fields(field["type"]):
            yield from text_limits(inner, path)
        return
    texts: list[FieldPath] = []
    match = re.fullmatch(_pattern(path, field["type"], texts), str(declared))
    if match is None:
        raise UnreadableTypeError(f"{str(declared)[:100]!r} is not the type of the column")
    for text, name, length in zip(texts, match.groups()[::2], match.groups()[1::2], strict=True):
        if name:
            yield TextLimit(text, int(length), name.lower() == "char")


def _pattern(path: FieldPath, kind: Any, texts: list[FieldPath]) -> str:
    """Return the regular expression that matches the declared type of the column or field at `path`.

    `kind` is the type of the column or field in Spark's JSON. The function appends the path of each string in the type
    to `texts`, in the order of the expression's groups. Groups that repeat or have alternatives are atomic, so that the
    match is fast for any text.
    """
    if not isinstance(kind, dict):
        if kind == "string":
            texts.append(path)
        return _TEXT if kind == "string" else _PLAIN
    inner = [(field["name"], _pattern((*path, field["name"]), field["type"], texts)) for field in inner_fields(kind)]
    items = ",".join(pattern for _, pattern in inner)
    if kind["type"] == "struct":
        fields = (f"(?:{re.escape(name)}|{re.escape(sql_name([name]))}):{pattern}" for name, pattern in inner)
        # Fields that were added to a struct later, at its end, are not in the declared type.
        items = "".join(f"(?>{',' if number else ''}{field}|(?=>))" for number, field in enumerate(fields))
    return f"{re.escape(kind['type'])}<{items}>"


# Delta's type widening (protocol: "Type Widening"): a column gets a wider type without a rewrite of its files. Readers
# then accept files with the narrower type and files with the wider type. Only delta-spark can commit to a table with
# this feature; deltalake can only open it.

WIDENING_FEATURES = frozenset(("typeWidening", "typeWidening-preview"))


def is_wider(wide: DataType, narrow: DataType) -> bool:
    """Return whether a column of type `narrow` can become type `wide`; neither is a struct, an array or a map."""
    schema = arrow_schema(StructType().add("wide", wide).add("narrow", narrow))
    return widens(schema.field("narrow").type, schema.field("wide").type)


def is_wider_json(wide: Any, narrow: Any) -> bool:
    """Return whether a column of type `narrow` can become type `wide`, both in Spark's JSON; False for nested types."""
    return isinstance(wide, str) and isinstance(narrow, str) and is_wider(_type_of(wide), _type_of(narrow))


def _type_of(name: str) -> DataType:
    return StructField.fromJson({"name": "column", "type": name, "nullable": True, "metadata": {}}).dataType


# Table features by which a table's commits go through a catalog or a commit coordinator.
#
# A version of such a table exists once the catalog has accepted it. The log folder may lack the newest versions, and a
# file that a writer adds there by itself is no commit.

_PREFIXES = ("catalogmanaged", "catalogowned", "coordinatedcommits")
"""Beginnings of the features' names, in lower case: the present name, and the names in earlier previews of Delta."""


def managing_feature(features: Iterable[str]) -> str | None:
    """Return the name of the feature by which a catalog manages the table.

    The result is None if `features` have no such feature.
    """
    return next((name for name in sorted(features) if name.lower().startswith(_PREFIXES)), None)
