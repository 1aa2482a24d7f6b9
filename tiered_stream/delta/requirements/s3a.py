"""Settings for the tasks' access to a table's bucket: the session's `fs.s3a.*`, overridden by `ingest.storage.*`.

Tasks that write a table's files themselves do not use Hadoop, but must reach the bucket in the same way as Spark. So
this module follows hadoop-aws 3.5: `DefaultS3ClientFactory` (endpoint and region), `S3AUtils` (settings of one bucket,
credential files), `CredentialProviderListFactory` (credentials, and class names of the AWS SDK v1). A setting of one
bucket (`fs.s3a.bucket.NAME.*`) overrides the setting for all buckets.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tiered_stream.delta.requirements.hadoop_settings import (
    HadoopSettings,
    NoCredentialsError,
    NotForTasksError,
    SessionStore,
    check_same_store,
)
from tiered_stream.delta.requirements.writer_requirements import Kind, find_requirement
from tiered_stream.delta.settings.ingest_settings import STORAGE_PREFIX, TableStorage
from tiered_stream.errors import ConfigurationError, StorageAccessError, TableAccessError
from tiered_stream.options.types import aes_256_key
from tiered_stream.storage.cloud_endpoints import TABLES, access_point_region, check_bucket, region_of_host

S3A_PREFIX = "fs.s3a."
ACL, STORAGE_CLASS = "acl.default", "create.storage.class"
_CANNED_ACLS = {
    "Private": "private", "PublicRead": "public-read", "PublicReadWrite": "public-read-write",
    "AuthenticatedRead": "authenticated-read", "AwsExecRead": "aws-exec-read", "BucketOwnerRead": "bucket-owner-read",
    "BucketOwnerFullControl": "bucket-owner-full-control",
}  # fmt: skip
"""S3's names of canned ACLs, by the value of `acl.default` (Hadoop: `AWSCannedACL`).

`LogDeliveryWrite` is missing, because it does not apply to objects.
"""
_STORAGE_CLASSES = (
    "STANDARD", "REDUCED_REDUNDANCY", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER", "GLACIER_IR",
    "DEEP_ARCHIVE", "OUTPOSTS",
)  # fmt: skip
"""Values of `create.storage.class`, in any case (Hadoop: `Constants.STORAGE_CLASS_*`)."""
_CUSTOMER_KEY, _KMS = "sse-c", "aws:kms"
_ALGORITHMS = {
    "AES256": "AES256", "SSE-S3": "AES256", "SSE-C": _CUSTOMER_KEY, "SSE-KMS": _KMS, "DSSE-KMS": f"{_KMS}:dsse",
}  # fmt: skip
"""S3's encryption of new objects, by the setting's value in any case (Hadoop: `S3AEncryptionMethods`)."""
_BUCKET_PREFIX = f"{S3A_PREFIX}bucket."
_REGION_WITHOUT_ANY = "us-east-2"
_CENTRAL_ENDPOINT = "s3.amazonaws.com"
_REGIONAL_HOST = re.compile(r"(?:https?://)?s3[.-][a-z]{2,}-[a-z0-9-]+\.amazonaws\.(?:com(?:\.cn)?|eu)/?")
_STANDARD = (
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider,org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider,"
    "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider,"
    "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider"
)
_PROVIDER = re.compile(
    r"(?:org\.apache\.hadoop\.fs\.s3a|com\.amazonaws\.auth|software\.amazon\.awssdk\.auth\.credentials)"
    r"\.(?:auth\.|profile\.)?(\w+)"
)
"""Pattern of the credential providers of Hadoop and of the AWS SDK v1 and v2; group 1 is the class."""
_EARLIER = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_PROFILE")
_OF_CHAIN: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("DefaultAWSCredentialsProviderChain", "DefaultCredentialsProvider"), ()),
    **dict.fromkeys(("ProfileCredentialsProvider", "ProfileAWSCredentialsProvider"), ()),
    **dict.fromkeys(("WebIdentityTokenCredentialsProvider", "WebIdentityTokenFileCredentialsProvider"), _EARLIER[:1]),
    **dict.fromkeys(("IAMInstanceCredentialsProvider", "InstanceProfileCredentialsProvider"), _EARLIER),
    **dict.fromkeys(("EC2ContainerCredentialsProviderWrapper", "ContainerCredentialsProvider"), _EARLIER),
}
"""Credential providers whose credentials AWS's default chain finds, too, by class name.

The value names environment variables. If one of them is set, the chain finds other credentials than the provider.
"""
_KEY_FIELDS = ("access_key_id", "secret_access_key", "session_token")
"""Fields of `TableStorage` for an access key, in the order of Hadoop's and AWS's settings."""


def _begins_with_bucket(name: str) -> bool:
    """Return whether the short name `name` is the rest of another bucket's name, and then the name of a known setting.

    A bucket's name may have dots, so a setting of the bucket `lake.eu` begins as a setting of the bucket `lake`.
    """
    parts = name.split(".")
    return not _is_known(name) and any(_is_known(".".join(parts[at:])) for at in range(1, len(parts)))


def _is_known(name: str) -> bool:
    return find_requirement(Kind.SESSION, S3A_PREFIX + name) is not None


class S3aStore(SessionStore):
    """Bucket in S3. A setting of one bucket (`fs.s3a.bucket.NAME.*`) overrides the setting for all buckets."""

    prefix, connector = S3A_PREFIX, "org.apache.hadoop.fs.s3a.S3AFileSystem"
    own_settings = f"{STORAGE_PREFIX}aws.access.key.id and {STORAGE_PREFIX}aws.secret.access.key"

    def __init__(self, hadoop: HadoopSettings, uri: str) -> None:
        super().__init__(hadoop, uri)
        # S3A's credential files take precedence over Hadoop's for all file systems, as in
        # S3AUtils.patchSecurityCredentialProviders.
        if files := self.text("security.credential.provider.path"):
            of_all = "hadoop.security.credential.provider.path"
            hadoop.set(of_all, ",".join(filter(None, (files, hadoop.get(of_all)))))

    def keys(self, name: str) -> tuple[str, str]:
        return f"{_BUCKET_PREFIX}{self.bucket}.{name}", S3A_PREFIX + name

    def own_names(self) -> Collection[str]:
        """Return the sorted names of the settings that apply to the bucket, without `bucket.NAME.`."""
        prefix, names = f"bucket.{self.bucket}.", super().own_names()
        own = {name.removeprefix(prefix) for name in names if name.startswith(prefix)}
        shared = {name for name in names if name == "bucket.probe" or not name.startswith("bucket.")}
        return sorted(shared.union(name for name in own if not _begins_with_bucket(name)))

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
        """Return the ARN of the access point by which S3A reaches the bucket; None: S3A uses the bucket's name.

        As in S3A, only the setting of this bucket counts.
        """
        return (self.hadoop.get(f"{_BUCKET_PREFIX}{self.bucket}.accesspoint.arn") or "").strip() or None

    def check_address(self) -> None:
        """Check that tasks can address the bucket as S3A does.

        Raises:
            NotForTasksError: a required access point is missing, tasks do not reach this kind of bucket or access
                point, or FIPS endpoints are required together with an endpoint that is not AWS's.
        """
        access_point = self.access_point()
        if access_point is None and self.is_on("accesspoint.required"):
            raise NotForTasksError("fs.s3a.accesspoint.required is set, but the bucket has no access point")
        place = f"{_BUCKET_PREFIX}{self.bucket}.accesspoint.arn" if access_point else "the table's bucket"
        try:
            check_bucket(access_point or self.bucket, place)
        except ConfigurationError as error:
            raise NotForTasksError(str(error)) from None
        if self.is_on("endpoint.fips") and self.endpoint_url():
            raise NotForTasksError("fs.s3a.endpoint.fips is set together with fs.s3a.endpoint")

    def object_settings(self) -> dict[str, Any]:
        """Return ACL, storage class and encryption of new objects as values of `TableStorage`, by field name.

        A value is None if its setting is not set. If KMS encrypts and `kms_key` is None, S3 uses the account's default
        key.

        Raises:
            NotForTasksError: a value is not known (such as client-side encryption), an encryption context for KMS is
                set, or the key for SSE-C is malformed.
        """
        acl = self._known(ACL, self.text(ACL), _CANNED_ACLS)
        storage_class = self._known(STORAGE_CLASS, self.text(STORAGE_CLASS), {name: name for name in _STORAGE_CLASSES})
        # Each of the two settings has an older name.
        algorithm = self.text("encryption.algorithm") or self.text("server-side-encryption-algorithm")
        key = self.secret("encryption.key") or self.secret("server-side-encryption.key")
        encryption, customer_key = self._known("encryption.algorithm", algorithm, _ALGORITHMS), None
        if encryption == _CUSTOMER_KEY:
            try:
                encryption, customer_key = None, aes_256_key(key or "")
            except ValueError as error:
                raise NotForTasksError(f"fs.s3a.encryption.key {error}") from None
        has_kms = encryption is not None and encryption.startswith(_KMS)
        if has_kms and self.text("encryption.context"):
            raise NotForTasksError(
                "fs.s3a.encryption.context is set, which tasks that write files themselves do not send"
            )
        return {
            "acl": acl,
            "storage_class": storage_class,
            "encryption": encryption,
            "kms_key": key if has_kms else None,
            "s3_customer_key": customer_key,
        }

    def _known(self, name: str, value: str | None, known: Mapping[str, str]) -> str | None:
        """Return S3's word for `value`, the value of the setting `name`, or None if `value` is empty.

        `known` has S3's words by value, or by value in upper case.

        Raises:
            NotForTasksError: the value is not in `known`.
        """
        if not value:
            return None
        if word := known.get(value) or known.get(value.upper()):
            return word
        raise NotForTasksError(f"{S3A_PREFIX}{name} is {value}, which tasks that write files themselves do not know")

    def credentials(self) -> dict[str, Any]:
        """Return the credentials of the first provider in `aws.credentials.provider` that has credentials.

        The result has values of `TableStorage`, by field name. If it is empty, AWS's default chain finds credentials.

        Raises:
            NotForTasksError: tasks cannot use the first provider that may have credentials, or would get other
                credentials from it than Spark.
            NoCredentialsError: no provider has credentials.
        """
        pairs = (pair.partition("=") for pair in (self.text("aws.credentials.provider.mapping") or "").split(","))
        mapped = {name.strip(): to.strip() for name, _, to in pairs}
        names = map(str.strip, (self.text("aws.credentials.provider") or _STANDARD).split(","))
        providers = [mapped.get(name, name) for name in names if name]
        for provider in providers:
            credentials = self._credentials_of(provider)
            if credentials is not None:
                return credentials
        raise NoCredentialsError(
            f"no credentials for the bucket {self.bucket}: fs.s3a.aws.credentials.provider is {','.join(providers)}; "
            "set fs.s3a.access.key and fs.s3a.secret.key, or a provider that has some"
        )

    def _credentials_of(self, provider: str) -> dict[str, Any] | None:
        known = _PROVIDER.fullmatch(provider)
        name = known[1] if known else ""
        match name:
            case "SimpleAWSCredentialsProvider" | "TemporaryAWSCredentialsProvider":
                names = ("access.key", "secret.key", *(("session.token",) if name.startswith("Temporary") else ()))
                keys = [self.secret(each) for each in names]
                return dict(zip(_KEY_FIELDS, keys, strict=False)) if all(keys) else None
            case "EnvironmentVariableCredentialsProvider":
                variables = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
                keys = [self.hadoop.environment(each) for each in variables]
                return dict(zip(_KEY_FIELDS, keys, strict=True)) if all(keys[:2]) else None
            case "AnonymousAWSCredentialsProvider" | "AnonymousAWSCredentials" | "AnonymousCredentialsProvider":
                return {"anonymous": True}
            case "ProfileAWSCredentialsProvider" if self.text("auth.profile.name") or self.text("auth.profile.file"):
                why = "has a profile of its own (fs.s3a.auth.profile.*)"
            case _ if name not in _OF_CHAIN:
                why = "is known to Spark alone"
            case _:
                variable = next(filter(self.hadoop.environment, _OF_CHAIN[name]), None)
                if variable is None:
                    return {}
                why = f"takes the machine's role, but {variable} is in the driver's environment"
        raise self.unusable(f"the credential provider {provider} {why}")

    def place(self, own: TableStorage) -> TableStorage:
        with suppress(NotForTasksError):
            return self._placed(own, self.object_settings())
        return self._placed(own, {})

    def _placed(self, own: TableStorage, of_objects: Mapping[str, Any]) -> TableStorage:
        """Return `own`, completed by the session's settings for the address, and by `of_objects`.

        `of_objects` is the result of `object_settings`, or empty. Reads, too, need the key for SSE-C in it.
        """
        access_point = self.access_point()
        storage = replace(
            own,
            **{**of_objects, "s3_customer_key": own.s3_customer_key or of_objects.get("s3_customer_key")},
            s3_path_style=own.s3_path_style or self.is_on("path.style.access"),
            s3_access_point=access_point if access_point and access_point_region(access_point) else None,
            s3_fips=self.is_on("endpoint.fips"),
            s3_requester_pays=own.s3_requester_pays or self.is_on("requester.pays.enabled"),
        )
        if own.s3_endpoint_url is not None:
            return storage
        return replace(storage, s3_endpoint_url=self.endpoint_url(), s3_region=own.s3_region or self.region())

    def access(self, own: TableStorage) -> TableStorage:
        if self.has_connector:
            check_same_store(
                f"{STORAGE_PREFIX}s3.endpoint.url",
                own.s3_endpoint_url,
                self.endpoint_url() or f"https://{_CENTRAL_ENDPOINT}",
                f"bucket {self.bucket}",
                f"set spark.hadoop.{_BUCKET_PREFIX}{self.bucket}.endpoint to the same",
            )
        self.check_supported()
        self.check_address()
        storage = self._placed(own, self.object_settings())
        if own.access_key_id is None and not own.anonymous:
            storage = replace(storage, **{"session_token": None, **self.credentials()})
        return storage if storage.s3_endpoint_url else replace(storage, s3_region=self._region_at_aws(own, storage))

    def _region_at_aws(self, own: TableStorage, storage: TableStorage) -> str | None:
        """Return the region of a bucket at AWS, which S3A finds out itself, whichever region is set.

        `own` is the job's own access, and `storage` is `own` completed by the session's settings. The region in
        `storage` is returned if `own` has a region, or if S3A's settings bind S3A to that region.

        Raises:
            NotForTasksError: AWS's own configuration names an endpoint, which Spark's client can ignore.
            TableAccessError: AWS does not say the region, and no setting does.
        """
        # Imported here, because boto3 takes long to import, and an endpoint needs no rules of AWS's.
        from tiered_stream.storage.s3_client import S3Session

        session = S3Session(storage, self.bucket, TABLES)
        if url := session.configured_endpoint():
            raise NotForTasksError(
                f"the environment or AWS's configuration names {url} as the endpoint of S3, which Spark's session does "
                f"not (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, endpoint_url): set spark.hadoop.{S3A_PREFIX}endpoint"
            )
        stays = self.region() is not None and (self.text("cross.region.access.enabled") or "").lower() == "false"
        if own.s3_region is not None or self.access_point() or stays:
            return storage.s3_region
        try:
            region = session.find_region() or storage.s3_region
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
