"""List of all requirements that a table, its columns (also nested ones) and the session can set for a writer.

If tasks that write a table's files themselves (direct lane) cannot meet a requirement, Spark's Delta sink writes the
table (Spark lane). It also does so if a table has a requirement that is not in the list.
`tests/docs/writer_requirements.py` writes the table in the docs from the list, with notes on entries.

Sources for tables: Delta's protocol ("Writer Requirements", "Table Features", "Column Metadata", "Table Properties"),
delta-spark's `TableFeature` and `DeltaConfigs`, and Spark's metadata of columns. Sources for settings of file systems:
`core-default.xml`, `Constants` and `RequestFactoryImpl` of hadoop-aws, `ConfigurationKeys` of hadoop-azure 3.5,
`AzureNativeFileSystemStore` of hadoop-azure 3.4, `CONFIGURATION.md` of gcs-connector 2.2, 3.0 and 4.0, and
`GoogleHadoopFileSystemConfiguration` of hadoop-gcp 3.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from tiered_stream.delta.requirements.session_requirements import CODEC
from tiered_stream.delta.schema.sql_types import arrow_schema, inner_fields, sql_name
from tiered_stream.delta.settings.ingest_settings import CODECS
from tiered_stream.formats.columns.conform import widens
from tiered_stream.formats.rows.table_rules import FieldPath, TextLimit


class Kind(Enum):
    """Kind of a requirement for writers, named by the part of a table or of a session that sets the requirement."""

    FEATURE = "table feature"
    PROPERTY = "table property"
    METADATA = "column metadata"
    TYPE = "column type"
    SESSION = "session setting"


class Handling(Enum):
    """Way in which the direct lane handles a requirement for writers: tasks write a table's files, without Spark."""

    HONOURED = "honours it"
    NOTHING = "nothing: it asks nothing of a writer that appends"
    BY_SPARK = "honours it where delta-spark commits (`ingest.commit`); `auto` then takes it"
    SPARK_LANE = "leaves the table to the Spark lane"


OFF = frozenset({"", "false"})
"""Values of a property or setting, in lower case, with which it requires nothing of writers."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """Entry of the list of requirements: one requirement for writers, and how tasks that write files handle it.

    `kind` says what sets the requirement: a table feature, a table property, column metadata, a column type or a
    session setting. `name` is its name. A `name` that ends in `*` stands for all names with this prefix. `handling`
    says what happens to a table with the requirement if tasks would write the table's files (direct lane).
    """

    kind: Kind
    name: str
    handling: Handling
    label: str = ""
    """Words for the requirement in `ImposedRequirement.reason`, such as "an invariant"; if empty, the name is used."""
    off: frozenset[str] = OFF
    """Values of the property or setting, in lower case, with which it requires nothing."""
    of_changes: bool = False
    """True if the requirement asks something of a writer that changes or removes rows, whatever `handling` says."""

    @property
    def is_met(self) -> bool:
        """True if tasks that write a table's files meet the requirement, whichever library commits the files."""
        return self.handling in (Handling.HONOURED, Handling.NOTHING)

    def covers(self, kind: Kind, name: str) -> bool:
        """Return whether the entry covers a requirement of this kind and name.

        An entry whose name ends in `*` covers all names with this prefix. Names of features and properties are compared
        without regard to case, as in Delta.
        """
        if kind in (Kind.FEATURE, Kind.PROPERTY):
            return self.kind is kind and fnmatchcase(name.lower(), self.name.lower())
        return self.kind is kind and fnmatchcase(name, self.name)


@dataclass(frozen=True, slots=True)
class ImposedRequirement:
    """Requirement that a table, one of its columns or the session sets, and the list's `entry` that covers it.

    `name` is the full name in the table or session. `column` is the path of the column that sets the requirement; it is
    empty if the table or the session sets it.
    """

    entry: Requirement
    name: str
    column: str = ""

    @property
    def reason(self) -> str:
        """Clause that names the requirement and what sets it, such as `the table has X` or `the column C has X`."""
        of_session = self.entry.kind is Kind.SESSION
        owner = f"the column {self.column}" if self.column else f"the {'session' if of_session else 'table'}"
        verb = "is" if self.entry.kind is Kind.TYPE and not self.entry.label else "has"
        return f"{owner} {verb} {self.entry.label or self.name}"


def _entries(kind: Kind, handling: Handling, *names: str, prefix: str = "", **fields: Any) -> list[Requirement]:
    """Return one `Requirement` for each of `names`, with `prefix` before the name; `fields` are its other fields."""
    return [Requirement(kind, prefix + name, handling, **fields) for name in names]


def _unless(kind: Kind, name: str, *values: str) -> Requirement:
    """Return the `Requirement` of a property or setting that leads to the Spark lane (writes by Spark's Delta sink).

    The value requires nothing of writers if it is empty, `false` or one of `values`, in any case.
    """
    return Requirement(kind, name, Handling.SPARK_LANE, off=OFF | {value.lower() for value in values})


def _labelled(name: str, label: str) -> Requirement:
    """Return the `Requirement` of column metadata that leads to the Spark lane (writes by Spark's Delta sink).

    `label` has words for the requirement, for errors.
    """
    return Requirement(Kind.METADATA, name, Handling.SPARK_LANE, label)


CLUSTERING = "clustering"
"""Name of the table feature of tables that `OPTIMIZE` clusters.

Writers of a table with this feature must add statistics of the clustering columns to each file.
"""
DECLARED_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
CONSTRAINT_PREFIX = "delta.constraints."
WIDENING_FEATURES = frozenset(("typeWidening", "typeWidening-preview"))
GOOGLES_CONNECTOR = "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem"
HADOOPS_CONNECTOR = "org.apache.hadoop.fs.gs.GoogleHadoopFileSystem"
_HONOURED, _NOTHING, _BY_SPARK, _SPARK = Handling.HONOURED, Handling.NOTHING, Handling.BY_SPARK, Handling.SPARK_LANE
_feature, _delta = partial(_entries, Kind.FEATURE), partial(_entries, Kind.PROPERTY, prefix="delta.")
_s3a, _azure, _gs = (partial(_entries, Kind.SESSION, prefix=f"fs.{name}.") for name in ("s3a", "azure", "gs"))

WRITER_REQUIREMENTS: tuple[Requirement, ...] = (
    *_feature(
        _NOTHING, "appendOnly", "changeDataFeed", "invariants", "generatedColumns", "columnMapping", "checkConstraints",
    ),
    *_feature(_NOTHING, "deletionVectors", of_changes=True),
    *_feature(_HONOURED, "timestampNtz"),
    *_feature(_BY_SPARK, CLUSTERING, "domainMetadata", *sorted(WIDENING_FEATURES)),
    Requirement(Kind.PROPERTY, f"{CONSTRAINT_PREFIX}*", _HONOURED, off=frozenset(), of_changes=True),
    *_delta(
        _HONOURED,
        "checkpointInterval", "enableExpiredLogCleanup", "logRetentionDuration", "setTransactionRetentionDuration",
    ),
    *_delta(
        _BY_SPARK, "autoOptimize", "autoOptimize.autoCompact", "compatibility.symlinkFormatManifest.enabled",
        "enableTypeWidening",
    ),
    *_delta(_SPARK, "feature.*", off=frozenset()),
    *_delta(
        _SPARK,
        "coordinatedCommits.*", "enableIcebergCompatV1", "enableIcebergCompatV2", "enableIcebergCompatV3",
        "enableIcebergWriterCompatV1", "enableIcebergWriterCompatV3", "enableInCommitTimestamps",
        "enableMaterializePartitionColumnsFeature", "enableRowTracking", "enableVariantShredding",
        "randomizeFilePrefixes", "redirectReaderWriter-preview", "redirectWriterOnly-preview",
        "universalFormat.config.*", "universalFormat.enabledFormats", "writePartitionColumnsToParquet",
    ),
    *_delta(_SPARK, "columnMapping.mode", label="column mapping", off=OFF | {"none"}),
    _unless(Kind.PROPERTY, "delta.requireCheckpointProtectionBeforeVersion", "0"),
    _unless(Kind.PROPERTY, "delta.checkpointPolicy", "classic"),
    _unless(Kind.PROPERTY, "delta.parquet.format.version", "1.0.0"),
    *_delta(_NOTHING, "appendOnly", "enableChangeDataFeed", "enableDeletionVectors", of_changes=True),
    *_delta(
        _NOTHING,
        "autoOptimize.optimizeWrite", "castIcebergTimeType", "checkpoint.writeStatsAsJson",
        "checkpoint.writeStatsAsStruct", "checkpointRetentionDuration", "columnMapping.maxColumnId",
        "dataSkippingNumIndexedCols", "dataSkippingStatsColumns", "dataSkippingStringPrefixLength",
        "deletedFileRetentionDuration", "dropFeatureTruncateHistory.retentionDuration", "enableChangeDataCapture",
        "enableFullRetentionRollback", "ignoreIcebergBucketPartition", "ignoreProtocolDefaults",
        "inCommitTimestampEnablementTimestamp", "inCommitTimestampEnablementVersion", "isolationLevel",
        "lastCommitTimestamp", "lastUpdateVersion", "minReaderVersion", "minWriterVersion", "parquet.compression.codec",
        "randomPrefixLength", "rowTracking.materializedRowCommitVersionColumnName",
        "rowTracking.materializedRowIdColumnName", "rowTrackingSuspended", "sampleRetentionDuration", "targetFileSize",
        "tuneFileSizesForRewrites", "universalFormat.iceberg.atomicConversion.supported",
    ),
    Requirement(Kind.METADATA, DECLARED_TYPE, _HONOURED, of_changes=True),
    _labelled("delta.invariants", "an invariant"),
    _labelled("delta.generationExpression", "a generation expression"),
    _labelled("delta.identity.*", "identity values"),
    _labelled("CURRENT_DEFAULT", "a default"),
    _labelled("EXISTS_DEFAULT", "a default for rows of older files"),
    _labelled("delta.columnMapping.*", "a physical name of its own (column mapping)"),
    _labelled("__COLLATIONS", "a collation"),
    _labelled("parquet.field.id", "an id in Parquet files"),
    *_entries(Kind.METADATA, _NOTHING, "delta.typeChanges", "comment"),
    *_entries(
        Kind.TYPE, _HONOURED, "string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary",
        "date", "timestamp", "timestamp_ntz", "decimal*",
    ),
    *_entries(
        Kind.TYPE, _SPARK,
        "variant", "void", "interval*", "geometry*", "geography*", "char*", "varchar*", "string collate *",
    ),
    Requirement(Kind.SESSION, "spark.databricks.delta.autoCompact.enabled", _BY_SPARK),
    Requirement(Kind.SESSION, CODEC, _SPARK, off=frozenset({*CODECS, "uncompressed"})),
    *_s3a(
        _HONOURED, "acl.default", "create.storage.class", "encryption.algorithm", "server-side-encryption-algorithm",
        "requester.pays.enabled",
    ),
    *_s3a(
        _SPARK,
        "access.grants.enabled", "audit.execution.interceptors", "audit.request.handlers",
        "client.s3.custom.headers*", "create.header*", "custom.signers", "delegation.token.binding",
        "http.signer.enabled", "object.content.encoding", "proxy.host", "signing-algorithm",
        "ddb.signing-algorithm", "s3.signing-algorithm", "sts.signing-algorithm",
    ),
    _unless(Kind.SESSION, "fs.s3a.create.checksum.algorithm", "CRC32C", "none"),
    _unless(Kind.SESSION, "fs.s3a.impl", "org.apache.hadoop.fs.s3a.S3AFileSystem"),
    _unless(Kind.SESSION, "fs.s3a.s3.client.factory.impl", "org.apache.hadoop.fs.s3a.DefaultS3ClientFactory"),
    *_s3a(
        _NOTHING,
        "access.grants.fallback.to.iam", "audit.*", "block.size", "checksum.generation", "checksum.validation",
        "classloader.isolation", "client.sts.custom.headers*", "committer.*", "connection.*", "directory.*",
        "encryption.*", "etag.checksum.enabled", "fast.*", "http.signer.class", "input.*",
        "internal.upload.part.count.limit", "metadatastore.*", "multipart.*", "prefetch.*", "request.md5.header",
        "s3guard.*", "select.*", "server-side-encryption.key",
    ),
    *_azure(
        _SPARK,
        "account.oauth2.client.assertion.provider.type", "appendblob.directories", "authorization",
        "block.blob.with.compaction.dir", "client-provided-encryption-key", "enable.delegation.token",
        "encryption.context.provider.type", "encryption.encoded.client-provided-key",
        "encryption.encoded.client-provided-key-sha", "infinite-lease.directories", "page.blob.dir", "secure.mode",
        "storage.emulator.account.name",
    ),
    _unless(
        Kind.SESSION, "fs.azure.account.keyprovider", "org.apache.hadoop.fs.azurebfs.services.SimpleKeyProvider",
        "org.apache.hadoop.fs.azure.SimpleKeyProvider",
    ),
    _unless(
        Kind.SESSION, "fs.azure.account.oauth2.msi.endpoint", "http://169.254.169.254/metadata/identity/oauth2/token"
    ),
    _unless(
        Kind.SESSION, "fs.azure.sas.token.provider.type",
        "org.apache.hadoop.fs.azurebfs.services.FixedSASTokenProvider",
    ),
    *_azure(
        _NOTHING,
        "account.expect.header.enabled", "block.location.impersonatedhost", "block.size", "block.upload.active.blocks",
        "data.blocks.buffer", "enable.checksum.validation", "enable.full.blob.checksum.validation",
        "identity.transformer.*", "metrics.*", "read.*", "readahead.*", "skipUserGroupMetadataDuringInitialization",
        "tracingheader.format",
    ),
    *_gs(
        _SPARK,
        "auth.access.token.provider", "auth.access.token.provider.impl", "auth.impersonation.*", "auth.null.enable",
        "auth.service.account.email", "auth.service.account.keyfile", "auth.service.account.private.key",
        "auth.service.account.private.key.id", "authorization.handler.impl", "config.override.file",
        "delegation.token.binding", "encryption.algorithm", "encryption.key", "encryption.key.hash", "proxy.address",
        "storage.http.headers.*",
    ),
    *_gs(_SPARK, "auth.service.account.enable", off=frozenset({"", "true"})),
    _unless(Kind.SESSION, "fs.gs.impl", GOOGLES_CONNECTOR, HADOOPS_CONNECTOR),
    _unless(Kind.SESSION, "fs.gs.requester.pays.mode", "DISABLED"),
    _unless(Kind.SESSION, "fs.gs.storage.service.path", "storage/v1/"),
    _unless(Kind.SESSION, "fs.gs.token.server.url", "https://oauth2.googleapis.com/token"),
    *_gs(
        _NOTHING,
        "block.size", "checksum.type", "client.upload.type", "grpc.*", "inputstream.*",
        "outputstream.direct.upload.enable", "outputstream.upload.*", "requester.pays.buckets",
        "requester.pays.project.id", "write.parallel.composite.upload.*", "write.rolling.checksum.enable",
    ),
)  # fmt: skip
_FEATURE_PREFIX = "delta.feature."
_RESERVED = re.compile(r"delta\..*|__.*|[A-Z][A-Z_]*", re.DOTALL)
"""Pattern of the keys of column metadata that Delta and Spark reserve; users may add any other keys."""


@lru_cache(1000)
def find_requirement(kind: Kind, name: str) -> Requirement | None:
    """Return the entry for this kind and name in the list of known requirements, or None if there is none.

    An entry with exactly this name takes precedence over an entry with a prefix (`*`).
    """
    covering = (entry for entry in WRITER_REQUIREMENTS if entry.covers(kind, name))
    return min(covering, key=lambda entry: entry.name.endswith("*"), default=None)


def requirements_of_table(
    features: Iterable[str],
    configuration: Mapping[str, str],
    fields: Iterable[Mapping[str, Any]],
    *,
    changes_rows: bool = False,
) -> Iterator[ImposedRequirement]:
    """Yield the table's requirements that tasks do not meet when they write files, or meet only if delta-spark commits.

    A requirement that is not in the list of known requirements counts as not met. With `changes_rows`, a requirement
    that asks something of a writer that changes rows counts as not met, too. `features` are the table's writer
    features, `configuration` its properties, and `fields` its columns in Spark's JSON.
    """
    for imposed in _all_of_table(features, configuration, fields):
        if not imposed.entry.is_met or (changes_rows and imposed.entry.of_changes):
            yield imposed


def requirements_of_session(spark: SparkSession) -> Iterator[ImposedRequirement]:
    """Yield the session's requirements that tasks do not meet when they write files, or only if delta-spark commits.

    Settings of Hadoop's file systems, which count for the tables of one store alone, are left out
    (`SessionStore.check_supported`). Settings that are not in the list of known requirements are ignored.
    """
    for entry in WRITER_REQUIREMENTS:
        if entry.name.startswith("spark."):
            value = spark.conf.get(entry.name, None)
            if value is not None and value.lower() not in entry.off and not entry.is_met:
                yield ImposedRequirement(entry, entry.name)


def _all_of_table(
    features: Iterable[str], configuration: Mapping[str, str], fields: Iterable[Mapping[str, Any]]
) -> Iterator[ImposedRequirement]:
    for column in fields:
        yield from _of_field(column, column["name"])
    for name, value in configuration.items():
        if name.lower().startswith(_FEATURE_PREFIX):
            yield _imposed(Kind.FEATURE, name[len(_FEATURE_PREFIX) :])
        elif name.lower().startswith("delta."):
            imposed = _imposed(Kind.PROPERTY, name)
            if value.lower() not in imposed.entry.off:
                yield imposed
    for name in sorted(features):
        yield _imposed(Kind.FEATURE, name)


def _of_field(field: Mapping[str, Any], column: str) -> Iterator[ImposedRequirement]:
    for key in field.get("metadata", {}):
        if _RESERVED.fullmatch(key) or find_requirement(Kind.METADATA, key):
            yield _imposed(Kind.METADATA, key, column)
    yield from _of_type(field["type"], column)


def _of_type(kind: Any, column: str) -> Iterator[ImposedRequirement]:
    if isinstance(kind, str):
        yield _imposed(Kind.TYPE, kind, column)
        return
    for field in inner_fields(kind):
        yield from _of_field(field, f"{column}.{field['name']}")
    if kind.get("type") not in ("struct", "array", "map"):
        yield _imposed(Kind.TYPE, str(kind.get("type")), column)


def _imposed(kind: Kind, name: str, column: str = "") -> ImposedRequirement:
    """Return the requirement with its entry in the list of known requirements.

    An unknown requirement gets a new entry that leads to the Spark lane (writes by Spark's Delta sink).
    """
    entry = find_requirement(kind, name)
    if entry is None:
        label = f"the {kind.value.split()[-1]} {name}, which is not known here"
        entry = Requirement(kind, name, Handling.SPARK_LANE, label=label, off=frozenset())
    return ImposedRequirement(entry, name, column)


# Length limits of `VARCHAR(n)` and `CHAR(n)`, which Spark keeps in a column's metadata (Spark: `CharVarcharUtils`).
#
# In the log such a column has the type STRING, or a type that contains STRING. The column's metadata has the declared
# type as text, such as `struct<name:varchar(20),codes:array<char(3)>>`.

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
