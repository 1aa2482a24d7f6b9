"""The table of requirements for writers in the docs: the list in the code, and notes on its entries."""

from __future__ import annotations

from tests.rigs.tables import markdown
from tiered_stream.delta.requirements.s3a import S3A_PREFIX
from tiered_stream.delta.requirements.store_access import ABFS_PREFIX, GS_PREFIX
from tiered_stream.delta.requirements.writer_requirements import WRITER_REQUIREMENTS, Handling, Kind

_COLUMNS = "As its columns say, see below."
_CHECKPOINTS = "It asks something of a checkpoint, which who commits writes in its own way."
_STATISTICS = (
    "Statistics may be left out: the first 32 columns have them. A clustered table that has one of the first two is "
    "left to the Spark lane."
)
_SIZES = "Files are as large as `ingest.targetFileSize` says."
_UPLOADED = (
    "Files are uploaded with it. A value that Hadoop 3.5 does not know leads to the Spark lane. deltalake does not "
    "follow it: where it is to commit, the query is refused."
)
_ENCRYPTION = (
    "`AES256`, `SSE-S3`, `SSE-C`, and `SSE-KMS` and `DSSE-KMS` with their key. Encryption by the client and an "
    "`encryption.context` for KMS lead to the Spark lane."
)
_CHECKSUM, _OWN_CHECK = "Uploads always have a checksum.", "It is Spark's own check."
_WITH_ALGORITHM, _WITH_SETTING = "It goes with the algorithm.", "It goes with the setting that takes it."
NOTES: dict[tuple[Kind, str], str] = {
    **{
        (Kind.FEATURE, name): _COLUMNS
        for name in ("invariants", "generatedColumns", "columnMapping", "checkConstraints")
    },
    **{
        (Kind.PROPERTY, f"delta.{name}"): note
        for name, note in {
            "constraints.*": "If it is [simple](typed-tables.md#constraints); otherwise the Spark lane. Rows that "
            "break it: dead letters.",
            "feature.*": "Or as the feature of that name. For a table that is made.",
            "compatibility.symlinkFormatManifest.enabled": "delta-spark writes the manifests after each commit.",
            "requireCheckpointProtectionBeforeVersion": "Where it is not 0.",
            "checkpointPolicy": "Where it is not `classic`.",
            "parquet.format.version": "Where it is not `1.0.0`.",
            "checkpoint.writeStatsAsJson": _CHECKPOINTS,
            "checkpoint.writeStatsAsStruct": _CHECKPOINTS,
            "dataSkippingNumIndexedCols": _STATISTICS,
            "dataSkippingStatsColumns": _STATISTICS,
            "dataSkippingStringPrefixLength": _STATISTICS,
            "autoOptimize.optimizeWrite": _SIZES,
            "targetFileSize": _SIZES,
            "tuneFileSizesForRewrites": _SIZES,
            "parquet.compression.codec": "`ingest.compression` says it.",
        }.items()
    },
    (Kind.METADATA, "__CHAR_VARCHAR_TYPE_STRING"): "The lengths of VARCHAR(n) and CHAR(n), at any depth. A longer text "
    "is a dead letter; a CHAR gets blanks up to n.",
    (Kind.METADATA, "delta.typeChanges"): "It names narrower types in older files, for readers.",
    **{
        (Kind.SESSION, name): note
        for name, note in {
            "spark.databricks.delta.autoCompact.enabled": "For a table in a local folder; in S3 `auto` takes "
            "delta-spark anyway.",
            "spark.sql.parquet.compression.codec": "Where it is not `zstd`, `snappy`, `gzip`, `none` or "
            "`uncompressed`. These are the compression of data files, unless `ingest.compression` says otherwise.",
            "fs.s3a.acl.default": _UPLOADED,
            "fs.s3a.create.storage.class": _UPLOADED,
            "fs.s3a.encryption.algorithm": _ENCRYPTION,
            "fs.s3a.server-side-encryption-algorithm": _ENCRYPTION,
            "fs.s3a.create.checksum.algorithm": "Other than `CRC32C`, by which tasks upload.",
            "fs.s3a.impl": "Other than `S3AFileSystem`.",
            "fs.s3a.s3.client.factory.impl": "Other than `DefaultS3ClientFactory`.",
            "fs.s3a.encryption.*": _WITH_ALGORITHM,
            "fs.s3a.server-side-encryption.key": _WITH_ALGORITHM,
            "fs.s3a.checksum.generation": _CHECKSUM,
            "fs.s3a.checksum.validation": _CHECKSUM,
            "fs.s3a.request.md5.header": _CHECKSUM,
            "fs.azure.account.keyprovider": "Other than `SimpleKeyProvider`.",
            "fs.azure.account.oauth2.msi.endpoint": "Other than the endpoint of Azure's machines.",
            "fs.azure.sas.token.provider.type": "Other than `FixedSASTokenProvider`.",
            "fs.azure.enable.checksum.validation": _OWN_CHECK,
            "fs.azure.enable.full.blob.checksum.validation": _OWN_CHECK,
            "fs.gs.impl": "Other than Google's connector and Hadoop's own.",
            "fs.gs.storage.service.path": "Other than `storage/v1/`.",
            "fs.gs.token.server.url": "Other than Google's.",
            "fs.gs.requester.pays.mode": "Other than `DISABLED`.",
            "fs.gs.auth.service.account.enable": "Other than `true`.",
            "fs.gs.requester.pays.buckets": _WITH_SETTING,
            "fs.gs.requester.pays.project.id": _WITH_SETTING,
            "fs.gs.checksum.type": _OWN_CHECK,
            "fs.gs.write.rolling.checksum.enable": _OWN_CHECK,
        }.items()
    },
}
"""Details of what the direct lane does, or why, by kind and name of an entry."""
_UNKNOWN = "Where its name speaks of what is written, as `tag` or `header` do. Others ask nothing."
_SINCE = "0.1.0"
"""Version of tiered_stream that added the entries."""


def render_writer_requirements() -> str:
    """Return the list of requirements for writers as a Markdown table.

    Entries with the same text share a row, but each of Hadoop's file systems has rows of its own.
    """
    names: dict[tuple[Kind, str, str], list[str]] = {}
    for entry in WRITER_REQUIREMENTS:
        store = ".".join(entry.name.split(".")[:2]) if entry.name.startswith("fs.") else ""
        row = entry.kind, store, _done(entry.handling, NOTES.get((entry.kind, entry.name), ""))
        names.setdefault(row, []).append(f"`{entry.name}`")
    rows = [(kind.value, ", ".join(each), done, _SINCE) for (kind, _, done), each in names.items()]
    rows.append(("a table", "a name that is not in this table", _done(Handling.SPARK_LANE), _SINCE))
    for prefix in (S3A_PREFIX, ABFS_PREFIX, GS_PREFIX):
        unknown = f"`{prefix}*` that is not in this table"
        rows.append((Kind.SESSION.value, unknown, _done(Handling.SPARK_LANE, _UNKNOWN), _SINCE))
    return markdown(("Kind", "Name", "The direct lane", "Since"), rows)


def _done(handling: Handling, note: str = "") -> str:
    done = f"{handling.value}. {note}".strip()
    return f"{done[0].upper()}{done[1:]}"
