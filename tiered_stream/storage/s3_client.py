"""Credentials, region and URL of an S3 bucket by AWS's own rules, from boto3; the only module that imports boto3.

Credentials come from the options or from AWS's chain (environment, profiles, assumed roles, web identity, SSO,
`credential_process`, instances and pods). The URL of a bucket follows from region, path or host style, FIPS and
dual-stack endpoints, and access points.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

import boto3
import botocore.loaders
import botocore.session
from botocore import UNSIGNED
from botocore import exceptions as aws
from botocore.config import Config

from tiered_stream.errors import ConfigurationError, StorageAccessError
from tiered_stream.options.parsing import S3Access
from tiered_stream.process.logs import muted
from tiered_stream.storage.cloud_endpoints import StoreUse, access_point_region

if TYPE_CHECKING:
    from botocore.config import _S3Dict
    from botocore.credentials import Credentials
    from botocore.loaders import Loader
    from mypy_boto3_s3 import S3Client
    from obstore.store import S3Credential

LOGGERS_WITH_SECRETS = ("botocore", "urllib3")
"""Loggers whose debug lines hold signatures, tokens and signed URLs; code that uses boto3 mutes them."""
_FALLBACK_REGION = "us-east-1"
_ANY_KEY = "key"
_ENVIRONMENT, _SETTINGS = "env", "explicit"
"""botocore's names of the providers of credentials in environment variables, and in this package's settings."""
_CREDENTIALS_LIFETIME = timedelta(minutes=10)
"""Time for which obstore may use credentials before it requests them again.

botocore renews credentials that would expire sooner before it returns them.
"""


def credentials_hint(use: StoreUse, provider: str = "") -> str:
    """Return advice for missing or refused credentials.

    `provider` is botocore's name of the provider that the credentials come from; empty: there are none, or it is not
    known. With it, the advice names this origin alone.
    """
    settings = f"{use.prefix}aws.access.key.id and {use.prefix}aws.secret.access.key"
    if provider == _ENVIRONMENT:
        return (
            "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN in the environment, which the "
            f"credentials come from, or give {settings}{use.otherwise}"
        )
    if provider not in ("", _SETTINGS):
        return (
            f"check the provider {provider} of AWS's credential chain, which the credentials come from, or give "
            f"{settings}{use.otherwise}"
        )
    return (
        f"check {use.prefix}aws.access.key.id, {use.prefix}aws.secret.access.key and {use.prefix}aws.session.token"
        f"{use.otherwise}, or where they are not given the AWS credential chain (environment, profile, instance or pod "
        "role)"
    )


def special_url(access: S3Access, bucket: str) -> str | None:
    """Return the URL of a bucket at AWS if it is not the plain one; otherwise None.

    It is another one with an access point, and if FIPS or dual-stack endpoints are set in `access` or for AWS's clients
    (`AWS_USE_FIPS_ENDPOINT`, `AWS_USE_DUALSTACK_ENDPOINT`).

    Raises: the errors of `S3Session`.
    """
    if access.s3_endpoint_url is not None:
        return None
    session = _session(access)
    if access.s3_access_point or _uses_fips(access, session) or session.get_config_variable("use_dualstack_endpoint"):
        return S3Session(access, bucket).bucket_url
    return None


class S3Session:
    """Credentials, region and URL of one bucket, from a botocore session of its own.

    `region` and `bucket_url` are the region and the URL to use now.
    """

    def __init__(self, access: S3Access, bucket: str, hint: str = "") -> None:
        """Determine the bucket's region and URL from the options and AWS's configuration.

        Args:
            bucket: name of the bucket, or ARN of an access point. `access.s3_access_point` takes precedence.
            hint: advice for errors about credentials.

        Raises:
            ConfigurationError: the endpoint, a profile or AWS's configuration file is malformed.
        """
        self._access = access
        self._bucket = access.s3_access_point or bucket
        self._hint = hint
        self.provider = ""
        """botocore's name of the provider that the credentials come from; empty before `credentials` has found some."""
        try:
            with muted(*LOGGERS_WITH_SECRETS):
                self._session = _session(access)
                # One for all clients, because boto3 registers its handlers with the botocore session each time.
                self._clients = boto3.session.Session(botocore_session=self._session)
                configured = access.s3_region or self._session.get_config_variable("region") or _FALLBACK_REGION
                self.region: str = access_point_region(self._bucket) or configured
                self.bucket_url = self._find_url()
        except (aws.BotoCoreError, ValueError) as error:
            raise ConfigurationError(f"no S3 client can be made for s3://{bucket}: {error}") from error

    def _find_url(self) -> str:
        """Return the bucket's URL by botocore's rules for endpoints."""
        config = Config(signature_version=UNSIGNED, s3=self._style())
        client = _client(self._clients, self._access, config, self.region)
        url = client.generate_presigned_url("get_object", Params={"Bucket": self._bucket, "Key": _ANY_KEY})
        return url.removesuffix(f"/{_ANY_KEY}")

    def _style(self) -> _S3Dict:
        if self._access.s3_path_style:
            return {"addressing_style": "path"}
        # With `auto`, botocore makes the URL of the FIPS endpoint of us-east-1, whatever the bucket's region is.
        return {"addressing_style": "virtual" if _uses_fips(self._access, self._session) else "auto"}

    def follow_region(self, named: str) -> bool:
        """Use the bucket's region from now on, if it differs from the region in use; return whether it differs.

        `named` is the region that the service has named; if it is empty, AWS is asked. An S3 service other than AWS is
        not asked.
        """
        region = named or self._find_region()
        if not region or region == self.region:
            return False
        self.region = region
        self.bucket_url = self._find_url()
        return True

    def _find_region(self) -> str:
        """Ask AWS for the bucket's region, and return it; empty: AWS does not say it, or the service is not AWS."""
        if self._access.s3_endpoint_url is not None:
            return ""
        client = _client(self._clients, self._access, Config(s3=self._style()), self.region)
        try:
            with muted(*LOGGERS_WITH_SECRETS):
                return client.head_bucket(Bucket=self._bucket).get("BucketRegion", "")
        except aws.ClientError as error:
            headers = error.response["ResponseMetadata"].get("HTTPHeaders", {})
            return str(headers.get("x-amz-bucket-region", ""))
        except aws.BotoCoreError:
            return ""

    def credentials(self) -> Callable[[], S3Credential]:
        """Return a function that returns valid credentials; botocore renews credentials that expire.

        Raises:
            StorageAccessError: no credentials are found, or a provider of the chain fails.
        """
        try:
            with muted(*LOGGERS_WITH_SECRETS):
                credentials: Credentials | None = self._session.get_credentials()
        except (aws.BotoCoreError, aws.ClientError) as error:
            raise StorageAccessError(
                f"no credentials for s3://{self._bucket}: {type(error).__name__}; {self._hint}"
            ) from error
        if credentials is None:
            raise StorageAccessError(f"no credentials for s3://{self._bucket}: {self._hint}")
        self.provider = credentials.method

        def valid_now() -> S3Credential:
            with muted(*LOGGERS_WITH_SECRETS):
                frozen = credentials.get_frozen_credentials()
            return {
                "access_key_id": frozen.access_key or "",
                "secret_access_key": frozen.secret_key or "",
                "token": frozen.token,
                "expires_at": datetime.now(UTC) + _CREDENTIALS_LIFETIME,
            }

        return valid_now

    def ca_bundle(self) -> bytes | None:
        """Return certificates to trust in addition to the system's, as PEM; None: no file with certificates is set.

        The file is named by `AWS_CA_BUNDLE`, by `ca_bundle` in AWS's configuration, or by `REQUESTS_CA_BUNDLE`.

        Raises:
            ConfigurationError: the file cannot be read.
        """
        path = self._session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
        if not path:
            return None
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise ConfigurationError(f"the CA bundle {path} cannot be read: {error}") from error


def s3_client(access: S3Access, config: Config) -> S3Client:
    """Return a new boto3 client for S3, which raises botocore's errors."""
    return _client(boto3.session.Session(botocore_session=_session(access)), access, config, access.s3_region)


def load_models() -> None:
    """Load botocore's service descriptions before this process is forked, without any request or credentials."""
    access = S3Access(access_key_id="none", secret_access_key="none", s3_region="us-east-1")  # noqa: S106 - signs nothing
    s3_client(access, Config(s3={"addressing_style": "path"})).close()


def credential_provider(access: S3Access) -> str | None:
    """Return the source of the credentials: `settings`, or botocore's name of the provider in AWS's chain (`env`, …).

    Return None if there are no credentials.

    Raises:
        StorageAccessError: a provider in the chain fails.
    """
    if access.access_key_id is not None:
        return "settings"
    try:
        with muted(*LOGGERS_WITH_SECRETS):
            credentials = boto3.session.Session().get_credentials()
    except (aws.BotoCoreError, aws.ClientError) as error:
        raise StorageAccessError(f"AWS's chain of credential providers fails: {type(error).__name__}") from error
    return credentials.method if credentials else None


def _session(access: S3Access) -> botocore.session.Session:
    """Return a session with the configured credentials, or with the credentials of AWS's chain."""
    session = botocore.session.get_session()
    session.register_component("data_loader", _models_in(session.get_config_variable("data_path")))
    if access.access_key_id is not None and access.secret_access_key is not None:
        session.set_credentials(access.access_key_id, access.secret_access_key, access.session_token)
    return session


def _uses_fips(access: S3Access, session: botocore.session.Session) -> bool:
    """Return whether FIPS endpoints of AWS are used; a service other than AWS has none."""
    chosen = access.s3_fips or session.get_config_variable("use_fips_endpoint")
    return bool(chosen) and access.s3_endpoint_url is None


def _client(session: boto3.session.Session, access: S3Access, config: Config, region: str | None) -> S3Client:
    config = config.merge(Config(use_fips_endpoint=access.s3_fips or None))
    return session.client("s3", endpoint_url=access.s3_endpoint_url, region_name=region, config=config)


@cache
def _models_in(data_path: str | None) -> Loader:
    """Return botocore's loader of AWS's service descriptions; it reads them once a process, in 0.06 s."""
    return botocore.loaders.create_loader(data_path)
