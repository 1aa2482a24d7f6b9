"""Requirements that the session's `fs.s3a.*` settings can set for a writer, for Hadoop 3.5.

The requirements are a part of the list in `writer_requirements.py`. Names of settings are written here without
`fs.s3a.`, which is added in the list. A setting of one bucket (`fs.s3a.bucket.NAME.*`) overrides the setting for all
buckets. Sources: `core-default.xml`, `Constants` and `RequestFactoryImpl` of hadoop-aws.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from tiered_stream.delta.requirements.requirement import OFF, Handling, Kind, Requirement, entries

S3A_PREFIX = "fs.s3a."
ACL, STORAGE_CLASS = "acl.default", "create.storage.class"
ENCRYPTION = ("encryption.algorithm", "server-side-encryption-algorithm")
"""Name of the encryption setting, and its older name."""
ENCRYPTION_KEY = ("encryption.key", "server-side-encryption.key")
"""Name of the setting of KMS's key, and its older name."""
CUSTOMER_KEYS = "sse-c"
"""Value of the encryption setting, in lower case, by which each request has the key of the objects."""
ACCESS_POINT, ACCESS_POINT_REQUIRED, FIPS = "accesspoint.arn", "accesspoint.required", "endpoint.fips"
REQUESTER_PAYS = "requester.pays.enabled"
ENCRYPTION_CONTEXT = "encryption.context"
CANNED_ACLS = {
    "Private": "private", "PublicRead": "public-read", "PublicReadWrite": "public-read-write",
    "AuthenticatedRead": "authenticated-read", "AwsExecRead": "aws-exec-read", "BucketOwnerRead": "bucket-owner-read",
    "BucketOwnerFullControl": "bucket-owner-full-control",
}  # fmt: skip
"""S3's names of canned ACLs, by the value of `acl.default` (Hadoop: `AWSCannedACL`).

`LogDeliveryWrite` is missing, because it does not apply to objects.
"""
STORAGE_CLASSES = frozenset(
    ("STANDARD", "REDUCED_REDUNDANCY", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER", "GLACIER_IR",
     "DEEP_ARCHIVE", "OUTPOSTS")
)  # fmt: skip
"""Values of `create.storage.class`, in any case (Hadoop: `Constants.STORAGE_CLASS_*`)."""
KMS_ALGORITHMS = {"sse-kms": "aws:kms", "dsse-kms": "aws:kms:dsse"}
ALGORITHMS = {"aes256": "AES256", "sse-s3": "AES256", **KMS_ALGORITHMS}
"""S3's encryption of new objects, by the setting's value in lower case (Hadoop: `S3AEncryptionMethods`)."""
_entries = partial(entries, Kind.SESSION, prefix=S3A_PREFIX)

S3A_REQUIREMENTS: tuple[Requirement, ...] = (
    *_entries(
        Handling.HONOURED,
        "access.key", "aws.credentials.provider", "aws.credentials.provider.mapping", "connection.ssl.enabled",
        "endpoint", "endpoint.region", "path.style.access", "secret.key", "security.credential.provider.path",
        "session.token",
    ),
    *_entries(
        Handling.HONOURED, ACL, STORAGE_CLASS,
        note="Files are uploaded with it. A value that Hadoop 3.5 does not know leads to the Spark lane. deltalake "
        "does not follow it: where it is to commit, the query is refused.",
    ),
    *_entries(
        Handling.HONOURED,
        *ENCRYPTION,
        note="`AES256`, `SSE-S3`, `SSE-C`, and `SSE-KMS` and `DSSE-KMS` with their key. Encryption by the client and "
        "an `encryption.context` for KMS lead to the Spark lane.",
    ),
    *_entries(
        Handling.HONOURED, ACCESS_POINT,
        note="As a setting of one bucket, which alone counts in S3A. ARNs of multi-region and Outposts access points "
        "lead to the Spark lane.",
    ),
    *_entries(Handling.HONOURED, ACCESS_POINT_REQUIRED, note="Without an access point, the Spark lane is taken."),
    *_entries(Handling.HONOURED, FIPS, note="At AWS. With an `endpoint` of one's own, the Spark lane is taken."),
    *_entries(Handling.HONOURED, REQUESTER_PAYS),
    *_entries(
        Handling.SPARK_LANE,
        "access.grants.enabled", "audit.execution.interceptors", "audit.request.handlers",
        "client.s3.custom.headers*", "create.header*", "custom.signers", "delegation.token.binding",
        "http.signer.enabled", "object.content.encoding", "proxy.host", "signing-algorithm",
    ),
    *_entries(
        Handling.SPARK_LANE, "create.checksum.algorithm", note="Other than `CRC32C`, by which tasks upload.",
        off=OFF | {"none", "crc32c"},
    ),
    *_entries(
        Handling.SPARK_LANE,
        "impl",
        note="Other than `S3AFileSystem`.",
        off=OFF | {"org.apache.hadoop.fs.s3a.s3afilesystem"},
    ),
    *_entries(
        Handling.SPARK_LANE, "s3.client.factory.impl", note="Other than `DefaultS3ClientFactory`.",
        off=OFF | {"org.apache.hadoop.fs.s3a.defaults3clientfactory"},
    ),
    *_entries(
        Handling.NOTHING, "auth.profile.*", "assumed.role.*", note="As the credential provider that takes it."
    ),
    *_entries(Handling.NOTHING, "encryption.*", "server-side-encryption.key", note="It goes with the algorithm."),
    *_entries(Handling.NOTHING, "checksum.generation", "checksum.validation", "request.md5.header",
                    note="Uploads always have a checksum."),
    *_entries(
        Handling.NOTHING,
        "access.grants.fallback.to.iam", "analytics.accelerator*", "attempts.maximum", "audit.*", "authoritative.path",
        "block.size", "bucket.probe", "buffer.dir", "bulk.delete.page.size", "change.detection.*",
        "classloader.isolation", "client.sts.custom.headers*", "committer.*", "connection.*",
        "create.conditional.enabled", "create.multipart", "create.performance*", "cross.region.access.enabled",
        "directory.*", "downgrade.syncable.exceptions", "etag.checksum.enabled", "executor.capacity", "experimental.*",
        "failinject.*", "fast.*", "http.signer.class", "impl.disable.cache", "input.*",
        "internal.upload.part.count.limit", "io.rate.limit", "list.version", "max.total.tasks", "metadatastore.*",
        "multiobjectdelete.enable", "multipart.*", "optimized.copy.from.local.enabled", "paging.maximum",
        "performance.flags", "prefetch.*", "proxy.*", "readahead.range", "retry.*", "s3express.create.session",
        "s3guard.*", "select.*", "socket.*", "ssl.channel.mode", "threads.*", "user.agent.prefix", "vectored.*",
    ),
)  # fmt: skip


def names_of_bucket(bucket: str, names_of_session: Iterable[str]) -> list[str]:
    """Return the sorted names of the S3A settings that apply to the bucket, without `fs.s3a.` and `bucket.NAME.`.

    `names_of_session` are the names of all S3A settings, without `fs.s3a.`. Settings of other buckets are left out.
    """
    own = f"bucket.{bucket}."
    names = (name.removeprefix(own) for name in names_of_session)
    return sorted({name for name in names if name == "bucket.probe" or not name.startswith("bucket.")})
