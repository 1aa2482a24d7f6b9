"""Settings for the tasks' access to a table's bucket: the session's `fs.s3a.*`, overridden by `ingest.storage.*`.

Tasks of the direct lane do not use Hadoop, but must reach the bucket in the same way as Spark. So this module follows
hadoop-aws 3.5: `DefaultS3ClientFactory` (endpoint and region), `S3AUtils` (settings of one bucket, credential files),
`CredentialProviderListFactory` (credentials, and class names of the AWS SDK v1).

`S3A_REQUIREMENTS` are the requirements that these settings can set for a writer: a part of the list in
`writer_requirements.py`. Names there are without `fs.s3a.`. A setting of one bucket (`fs.s3a.bucket.NAME.*`) overrides
the setting for all buckets. Sources: `core-default.xml`, `Constants` and `RequestFactoryImpl` of hadoop-aws.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tiered_stream.delta.requirements.hadoop_settings import (
    HadoopSettings,
    NoCredentialsError,
    NotForTasksError,
    SessionStore,
    check_same_store,
)
from tiered_stream.delta.requirements.requirement import OFF, Handling, Kind, Requirement, entries
from tiered_stream.delta.settings.ingest_settings import STORAGE_PREFIX, TableStorage
from tiered_stream.errors import ConfigurationError, StorageAccessError, TableAccessError
from tiered_stream.options.types import aes_256_key
from tiered_stream.storage.cloud_endpoints import TABLES, access_point_region, check_bucket, region_of_host

if TYPE_CHECKING:
    from tiered_stream.storage.s3_client import S3Session

S3A_PREFIX = "fs.s3a."
ACL, STORAGE_CLASS = "acl.default", "create.storage.class"
ENCRYPTION = ("encryption.algorithm", "server-side-encryption-algorithm")
"""Name of the encryption setting, and its older name."""
ENCRYPTION_KEY = ("encryption.key", "server-side-encryption.key")
"""Name of the setting of KMS's key, and its older name."""
CUSTOMER_KEYS = "sse-c"
"""Value of the encryption setting, in lower case, by which each request has the key of the objects."""
ACCESS_POINT, ACCESS_POINT_REQUIRED, FIPS = "accesspoint.arn", "accesspoint.required", "endpoint.fips"
REQUESTER_PAYS, CROSS_REGION = "requester.pays.enabled", "cross.region.access.enabled"
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
    *_entries(Handling.NOTHING, "encryption.*", "server-side-encryption.key", note="It goes with the algorithm."),
    *_entries(Handling.NOTHING, "checksum.generation", "checksum.validation", "request.md5.header",
                    note="Uploads always have a checksum."),
    *_entries(
        Handling.NOTHING,
        "access.grants.fallback.to.iam", "audit.*", "block.size", "classloader.isolation", "client.sts.custom.headers*",
        "committer.*", "connection.*", "directory.*", "etag.checksum.enabled", "fast.*", "http.signer.class", "input.*",
        "internal.upload.part.count.limit", "metadatastore.*", "multipart.*", "prefetch.*", "s3guard.*", "select.*",
    ),
)  # fmt: skip


def names_of_bucket(bucket: str, names_of_session: Iterable[str]) -> list[str]:
    """Return the sorted names of the S3A settings that apply to the bucket, without `fs.s3a.` and `bucket.NAME.`.

    `names_of_session` are the names of all S3A settings, without `fs.s3a.`. Settings of other buckets are left out.
    """
    own = f"bucket.{bucket}."
    names = (name.removeprefix(own) for name in names_of_session)
    return sorted({name for name in names if name == "bucket.probe" or not name.startswith("bucket.")})


ACCESS_KEY, SECRET_KEY, SESSION_TOKEN = "access.key", "secret.key", "session.token"
PROVIDERS = "aws.credentials.provider"

_BUCKET_PREFIX = f"{S3A_PREFIX}bucket."
_CREDENTIAL_FILES = "security.credential.provider.path"
_REGION_WITHOUT_ANY = "us-east-2"
_CENTRAL_ENDPOINT = "s3.amazonaws.com"
_AWS_URL = f"https://{_CENTRAL_ENDPOINT}"
_REGIONAL_HOST = re.compile(r"(?:https?://)?s3[.-][a-z]{2,}-[a-z0-9-]+\.amazonaws\.(?:com(?:\.cn)?|eu)/?")

_V1, _V2, _HADOOP = "com.amazonaws.auth.", "software.amazon.awssdk.auth.credentials.", "org.apache.hadoop.fs.s3a."
_TEMPORARY, _SIMPLE = f"{_HADOOP}TemporaryAWSCredentialsProvider", f"{_HADOOP}SimpleAWSCredentialsProvider"
_PROFILE = f"{_HADOOP}auth.ProfileAWSCredentialsProvider"
_STANDARD = (
    f"{_TEMPORARY},{_SIMPLE},{_V2}EnvironmentVariableCredentialsProvider,{_HADOOP}auth.IAMInstanceCredentialsProvider"
)
_ANONYMOUS = {
    f"{_HADOOP}AnonymousAWSCredentialsProvider", f"{_V1}AnonymousAWSCredentials", f"{_V2}AnonymousCredentialsProvider",
}  # fmt: skip
_ENVIRONMENT = {f"{_V1}EnvironmentVariableCredentialsProvider", f"{_V2}EnvironmentVariableCredentialsProvider"}
_WEB_IDENTITY = {f"{_V1}WebIdentityTokenCredentialsProvider", f"{_V2}WebIdentityTokenFileCredentialsProvider"}
_MACHINE = {
    f"{_HADOOP}auth.IAMInstanceCredentialsProvider", f"{_V1}InstanceProfileCredentialsProvider",
    f"{_V1}EC2ContainerCredentialsProviderWrapper", f"{_V2}InstanceProfileCredentialsProvider",
    f"{_V2}ContainerCredentialsProvider", *_WEB_IDENTITY,
}  # fmt: skip
"""Providers that use the role of the machine or its container, which AWS's default chain tries last."""
_EARLIER = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_PROFILE")
"""Environment variables of credentials that AWS's default chain tries before the role of the machine."""
_CHAIN = {
    f"{_V1}DefaultAWSCredentialsProviderChain", f"{_V2}DefaultCredentialsProvider",
    f"{_V1}profile.ProfileCredentialsProvider", f"{_V2}ProfileCredentialsProvider", _PROFILE,
}  # fmt: skip


_KEY_FIELDS = ("access_key_id", "secret_access_key", "session_token")
"""Fields of `TableStorage` for static keys."""


class S3aStore(SessionStore):
    """Bucket in S3. A setting of one bucket (`fs.s3a.bucket.NAME.*`) overrides the setting for all buckets."""

    prefix, library, connector = S3A_PREFIX, "S3 (hadoop-aws)", f"{_HADOOP}S3AFileSystem"
    requirements = S3A_REQUIREMENTS
    own_settings = f"{STORAGE_PREFIX}aws.access.key.id and {STORAGE_PREFIX}aws.secret.access.key"

    def __init__(self, hadoop: HadoopSettings, uri: str) -> None:
        super().__init__(hadoop, uri)
        # S3A's credential files take precedence over Hadoop's for all file systems, as in
        # S3AUtils.patchSecurityCredentialProviders.
        if files := self.text(_CREDENTIAL_FILES):
            of_all = f"hadoop.{_CREDENTIAL_FILES}"
            hadoop.set(of_all, ",".join(filter(None, (files, hadoop.get(of_all)))))

    def keys(self, name: str) -> tuple[str, str]:
        return f"{_BUCKET_PREFIX}{self.bucket}.{name}", S3A_PREFIX + name

    def own_names(self) -> Collection[str]:
        return names_of_bucket(self.bucket, super().own_names())

    def endpoint_url(self) -> str | None:
        """Return the URL of the bucket's endpoint; None: a public endpoint of AWS, because no other one is set.

        The result is also None if S3A reaches the bucket by an access point, because that is always at AWS.
        """
        text = self.text("endpoint") or ""
        is_aws = not text or text.endswith(_CENTRAL_ENDPOINT) or _REGIONAL_HOST.fullmatch(text)
        if is_aws or self.access_point():  # S3A reaches an access point at AWS, whatever the endpoint is
            return None
        scheme = "http" if (self.text("connection.ssl.enabled") or "").lower() == "false" else "https"
        return (text if "://" in text else f"{scheme}://{text}").rstrip("/")

    def region(self) -> str | None:
        """Return the region from the setting `endpoint.region`, or else from the endpoint's host.

        The region of an access point is in its ARN. For an endpoint whose host has no region, the result is
        `us-east-2`. None: nothing names a region, or the setting is empty or `sdk`.
        """
        if access_point := self.access_point():
            return access_point_region(access_point)
        region = self.text("endpoint.region")
        if region is not None:
            return None if region in ("", "sdk") else region
        return region_of_host(self.text("endpoint")) or (_REGION_WITHOUT_ANY if self.endpoint_url() else None)

    def access_point(self) -> str | None:
        """Return the ARN of the access point by which S3A reaches the bucket, or None if it is reached by its name.

        As in S3A, only the setting of this bucket counts.
        """
        return (self.hadoop.get(f"{_BUCKET_PREFIX}{self.bucket}.{ACCESS_POINT}") or "").strip() or None

    def check_address(self) -> None:
        """Check that tasks can address the bucket as S3A does.

        Raises:
            NotForTasksError: an access point is missing, tasks do not reach this kind of bucket or access point, or
                FIPS is to be used at an endpoint of one's own.
        """
        access_point = self.access_point()
        if access_point is None and self.is_on(ACCESS_POINT_REQUIRED):
            raise NotForTasksError(f"{S3A_PREFIX}{ACCESS_POINT_REQUIRED} is set, but the bucket has no access point")
        place = f"{_BUCKET_PREFIX}{self.bucket}.{ACCESS_POINT}" if access_point else "the table's bucket"
        try:
            check_bucket(access_point or self.bucket, place)
        except ConfigurationError as error:
            raise NotForTasksError(str(error)) from None
        if self.is_on(FIPS) and self.endpoint_url():
            raise NotForTasksError(f"{S3A_PREFIX}{FIPS} is set together with {S3A_PREFIX}endpoint")

    def customer_key(self) -> str | None:
        """Return the key for SSE-C in base64, or None if another encryption, or none, is set."""
        if self._algorithm().lower() != CUSTOMER_KEYS:
            return None
        try:
            return aes_256_key(next(filter(None, map(self.secret, ENCRYPTION_KEY)), ""))
        except ValueError as error:
            raise NotForTasksError(f"{S3A_PREFIX}{ENCRYPTION_KEY[0]} {error}") from None

    def _algorithm(self) -> str:
        return next(filter(None, map(self.text, ENCRYPTION)), "")

    def acl(self) -> str | None:
        """Return S3's name of the canned ACL for new objects, or None if it is not set."""
        return self._known(ACL, self.text(ACL), CANNED_ACLS)

    def storage_class(self) -> str | None:
        """Return S3's name of the storage class for new objects, or None if it is not set."""
        classes = {name: name for name in STORAGE_CLASSES}
        return self._known(STORAGE_CLASS, self.text(STORAGE_CLASS), classes, str.upper)

    def encryption(self) -> tuple[str | None, str | None]:
        """Return S3's name of the server-side encryption for new objects, and the id of KMS's key for it.

        Both are None if no encryption, or SSE-C, is set. The key is also None for an encryption without KMS. For KMS it
        is None if no key is set: S3 then uses its own key of the account.

        Raises:
            NotForTasksError: another encryption is set, such as encryption by the client, or KMS has a context.
        """
        algorithm = self._algorithm()
        is_own = algorithm.lower() == CUSTOMER_KEYS
        name = None if is_own else self._known(ENCRYPTION[0], algorithm, ALGORITHMS, str.lower)
        if name not in KMS_ALGORITHMS.values():
            return name, None
        if self.text(ENCRYPTION_CONTEXT):
            raise NotForTasksError(
                f"{S3A_PREFIX}{ENCRYPTION_CONTEXT} is set, which tasks that write files themselves do not send"
            )
        return name, next(filter(None, map(self.secret, ENCRYPTION_KEY)), None)

    def _known(
        self, name: str, value: str | None, known: Mapping[str, str], form: Callable[[str], str] = str
    ) -> str | None:
        """Return S3's word for `value`, the value of the setting `name`; None: it has no value.

        `known` has S3's words by value in the form that `form` returns.

        Raises:
            NotForTasksError: the value is not in `known`.
        """
        if value and form(value) not in known:
            raise NotForTasksError(
                f"{S3A_PREFIX}{name} is {value}, which tasks that write files themselves do not know"
            )
        return known[form(value)] if value else None

    def credentials(self) -> dict[str, Any]:
        """Return the credentials of the first provider in `aws.credentials.provider` that has credentials.

        The result are fields of `TableStorage`. If it is empty, AWS's default chain finds credentials.

        Raises:
            NotForTasksError: tasks cannot use the first provider that may have credentials, or would get other
                credentials from it than Spark.
            NoCredentialsError: no provider has credentials.
        """
        providers = list(self._providers())
        for provider in providers:
            credentials = self._credentials_of(provider)
            if credentials is not None:
                return credentials
        raise NoCredentialsError(
            f"no credentials for the bucket {self.bucket}: {S3A_PREFIX}{PROVIDERS} is {','.join(providers)}; set "
            f"{S3A_PREFIX}{ACCESS_KEY} and {S3A_PREFIX}{SECRET_KEY}, or a provider that has some"
        )

    def _providers(self) -> Iterator[str]:
        pairs = (pair.partition("=") for pair in (self.text(f"{PROVIDERS}.mapping") or "").split(","))
        mapped = {name.strip(): to.strip() for name, _, to in pairs}
        for name in (self.text(PROVIDERS) or _STANDARD).split(","):
            if name.strip():
                yield mapped.get(name.strip(), name.strip())

    def _credentials_of(self, provider: str) -> dict[str, Any] | None:
        if provider in (_SIMPLE, _TEMPORARY):
            names = (ACCESS_KEY, SECRET_KEY, SESSION_TOKEN) if provider == _TEMPORARY else (ACCESS_KEY, SECRET_KEY)
            keys = [self.secret(name) for name in names]
            return dict(zip(_KEY_FIELDS, keys, strict=False)) if all(keys) else None
        if provider in _ENVIRONMENT:
            variables = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
            found = list(map(self.hadoop.environment, variables))
            return dict(zip(_KEY_FIELDS, found, strict=True)) if all(found[:2]) else None
        if provider in _ANONYMOUS:
            return {"anonymous": True}
        why = "is known to Spark alone"
        earlier = _EARLIER[:1] if provider in _WEB_IDENTITY else _EARLIER
        if provider in _MACHINE and (variable := next(filter(self.hadoop.environment, earlier), None)):
            why = f"takes the machine's role, but {variable} is in the driver's environment"
        elif provider == _PROFILE and (self.text("auth.profile.name") or self.text("auth.profile.file")):
            why = f"has a profile of its own ({S3A_PREFIX}auth.profile.*)"
        elif provider in _MACHINE | _CHAIN:
            return {}
        raise self.unusable(f"the credential provider {provider} {why}")

    def find(self, own: TableStorage) -> tuple[TableStorage, str | None]:
        # AWS is asked for the bucket's region, because S3A goes to the region of the bucket, whichever is set.
        if self.has_connector:
            check_same_store(
                f"{STORAGE_PREFIX}s3.endpoint.url", own.s3_endpoint_url, self.endpoint_url() or _AWS_URL,
                f"bucket {self.bucket}", f"set spark.hadoop.{_BUCKET_PREFIX}{self.bucket}.endpoint to the same",
            )  # fmt: skip
        path_style = own.s3_path_style or self.is_on("path.style.access")
        storage, why_not = replace(own, s3_path_style=path_style), None
        if own.s3_endpoint_url is None:
            storage = replace(storage, s3_endpoint_url=self.endpoint_url(), s3_region=own.s3_region or self.region())
        try:
            self.check_supported()
            self.check_address()
            if storage.s3_endpoint_url is None:
                self._check_configured_endpoint(storage)
            encryption, kms_key = self.encryption()
            storage = replace(
                storage,
                acl=self.acl() or own.acl,
                storage_class=self.storage_class() or own.storage_class,
                encryption=encryption or own.encryption,
                kms_key=kms_key or own.kms_key,
                s3_customer_key=own.s3_customer_key or self.customer_key(),
                s3_access_point=self.access_point(),
                s3_fips=self.is_on(FIPS),
                s3_requester_pays=own.s3_requester_pays or self.is_on(REQUESTER_PAYS),
            )
            if own.access_key_id is None and not own.anonymous:
                storage = replace(storage, **{"session_token": None, **self.credentials()})
        except NotForTasksError as error:
            why_not = str(error)
        if storage.s3_endpoint_url is None and why_not is None and self._asks_for_region(own):
            storage = replace(storage, s3_region=self._find_region(storage))
        return storage, why_not

    def _check_configured_endpoint(self, storage: TableStorage) -> None:
        """Raise NotForTasksError if AWS's own configuration names an endpoint, because Spark's client can ignore it."""
        if url := self._access(storage).configured_endpoint():
            raise NotForTasksError(
                f"the environment or AWS's configuration names {url} as the endpoint of S3, which Spark's session does "
                f"not (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, endpoint_url): set spark.hadoop.{S3A_PREFIX}endpoint"
            )

    def _asks_for_region(self, own: TableStorage) -> bool:
        """Return whether S3A finds out the bucket's region: no setting names it, or S3A may go to another region."""
        if own.s3_region is not None or self.access_point():
            return False
        return self.region() is None or (self.text(CROSS_REGION) or "true").lower() != "false"

    def _find_region(self, storage: TableStorage) -> str:
        try:
            region = self._access(storage).find_region() or storage.s3_region
        except StorageAccessError:  # with a region, the first request of a task or of deltalake reports it
            if storage.s3_region is None:
                raise
            return storage.s3_region
        if not region:
            raise TableAccessError(
                f"AWS does not say in which region the bucket {self.bucket} is: set "
                "spark.hadoop.fs.s3a.endpoint.region. For an S3 service other than AWS's, set "
                "spark.hadoop.fs.s3a.endpoint"
            )
        return region

    def _access(self, storage: TableStorage) -> S3Session:
        # Imported here, because boto3 takes long to import, and an endpoint needs no rules of AWS's.
        from tiered_stream.storage.s3_client import S3Session

        return S3Session(storage, self.bucket, TABLES)
