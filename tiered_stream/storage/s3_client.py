"""Credentials, region and URL of an S3 bucket by AWS's own rules, from boto3; the only module that imports boto3.

Credentials come from the options or from AWS's chain (environment, profiles, assumed roles, web identity, SSO,
`credential_process`, instances and pods). The URL of a bucket follows from region, path or host style, FIPS and
dual-stack endpoints, and access points.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from functools import cache
from ipaddress import ip_address
from math import inf
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import boto3
import botocore.loaders
import botocore.session
from botocore import UNSIGNED
from botocore import exceptions as aws
from botocore.config import Config
from botocore.credentials import ProcessProvider, RefreshableCredentials

from tiered_stream.errors import ConfigurationError, StorageAccessError, StorageUnavailableError
from tiered_stream.options.parsing import S3Access
from tiered_stream.process.caches import PerProcess
from tiered_stream.process.logs import muted
from tiered_stream.storage.attempts import FAILURE_HELD, AttemptError, Attempts, FailureKind, RequestTimeouts
from tiered_stream.storage.cloud_endpoints import SEGMENTS, TABLES, StoreUse, access_point_region, region_of_host
from tiered_stream.storage.identity.credential_process import bound_programs

if TYPE_CHECKING:
    from botocore.credentials import Credentials, ReadOnlyCredentials
    from botocore.loaders import Loader
    from mypy_boto3_s3 import S3Client
    from obstore.store import S3Credential

LOGGERS_WITH_SECRETS = ("botocore", "urllib3")
"""Loggers whose debug lines hold signatures, tokens and signed URLs; code that uses boto3 mutes them."""
_FALLBACK_REGION = "us-east-1"
OF_DELTALAKE = (
    "SERVER_SIDE_ENCRYPTION", "SSE_KMS_KEY_ID", "SSE_CUSTOMER_KEY_BASE64", "SSE_BUCKET_KEY_ENABLED", "PROXY_URL",
    "ALLOW_INVALID_CERTIFICATES",
)  # fmt: skip
"""Environment variables that deltalake reads with and without the prefix `AWS_`. Its options cannot unset them."""
_OF_OBJECT_STORE = [f"AWS_{name}" for name in OF_DELTALAKE]
"""Environment variables that the crate `object_store` reads, and that its settings cannot unset."""
_SHOWN = ("provider", "profile", "endpoint_url", "cred_var")
"""Fields of botocore's errors that say which source of credentials failed. Others may have a program's output."""
WAITS_FOR_CREDENTIALS = 4
"""Maximum number of waits in a request for credentials: two attempts, each of which waits to connect and to read."""
_NO_CREDENTIALS = (aws.BotoCoreError, aws.ClientError, OSError, ValueError, LookupError, RuntimeError)
"""Errors of botocore if there are no credentials; RuntimeError means that new credentials have expired already."""
_UNREACHABLE = (aws.ConnectionError, aws.HTTPClientError, aws.MetadataRetrievalError, aws.NoCredentialsError)
"""Errors of botocore after which another attempt may succeed.

MetadataRetrievalError comes from the services that give tasks and pods their credentials. NoCredentialsError may hide
an outage of an instance's metadata service.
"""
_ATTEMPTS = 2
"""Maximum number of attempts to find credentials that time out."""
_LONG_ATTEMPT = 1.0
"""A failed attempt counts as a timeout if it took at least this number of seconds.

1 s is botocore's default timeout for an instance's metadata service.
"""
_MACHINE = "iam-role"
"""botocore's name of the provider that asks an instance's metadata service."""
_ANY_KEY = "key"
_ENVIRONMENT, _SETTINGS = "env", "explicit"
"""botocore's names of the providers of credentials in environment variables, and in this package's settings."""
_CREDENTIALS_LIFETIME = timedelta(minutes=10)
"""Time for which obstore and botocore's clients may use credentials before they ask again, at most."""


class S3Session:
    """Region, URL and credentials of one bucket, from the options and from AWS's configuration.

    obstore, deltalake and boto3 get each value from here, so that no library finds another one in the environment.
    `region` and `bucket_url` are the region and the URL to use now. Endpoints that AWS's configuration names
    (`AWS_ENDPOINT_URL_S3`, `endpoint_url` of a profile) count only if `use.follows_endpoints` is true.
    """

    def __init__(self, access: S3Access, bucket: str, use: StoreUse = SEGMENTS, timeout_ms: int = 20_000) -> None:
        """Determine the bucket's region and URL from the options and AWS's configuration.

        Args:
            bucket: name of the bucket, or ARN of an access point. `access.s3_access_point` takes precedence.
            timeout_ms: time limit of a request for credentials, in milliseconds, including its second attempt.

        Raises:
            ConfigurationError: the endpoint, a profile or AWS's configuration file is malformed.
        """
        self._access = access
        self._bucket = access.s3_access_point or bucket
        self._use = use
        self._timeout = timeout_ms / 1000
        self.provider = ""
        """botocore's name of the provider that the credentials come from; empty before `credentials` has found some."""
        self._credentials: Credentials | None = None
        self._ends: tuple[tuple[datetime, datetime], ...] = ()
        """Pairs for credentials that end: the time until which clients use them, and the time at which they end."""
        self._failure: tuple[float, StorageAccessError] | None = None
        self._moving = Lock()
        """Lock while `region` and `bucket_url` change, so that no client gets the new region with the old URL."""
        try:
            with muted(*LOGGERS_WITH_SECRETS):
                self._session = _session(access, self._timeout)
                self._session.register_component("credential_provider", self)
                # One for all clients, because boto3 registers its handlers with the botocore session each time.
                self._clients = boto3.session.Session(botocore_session=self._session)
                self.endpoint_url = access.s3_endpoint_url or (
                    self.configured_endpoint() if use.follows_endpoints else None
                )
                region = (
                    access_point_region(self._bucket)
                    or access.s3_region
                    or region_of_host(self.endpoint_url)
                    or os.environ.get("AWS_REGION")
                    or self._session.get_config_variable("region")
                )
                self.knows_region = bool(region)
                self.region = region or _FALLBACK_REGION
                self.bucket_url = self._find_url()
        except (aws.BotoCoreError, ValueError) as error:
            raise ConfigurationError(f"no S3 client can be made for s3://{bucket}: {error}") from error

    def configured_endpoint(self) -> str | None:
        """Return the endpoint that AWS's configuration names for S3, or None if it names none.

        Raises:
            ConfigurationError: the endpoint has a user's name or a password, which messages would show.
        """
        urls = [
            self._clients.client(
                "s3", region_name=_FALLBACK_REGION, config=Config(signature_version=UNSIGNED, **_ignoring(ignored))
            ).meta.endpoint_url
            for ignored in (False, True)
        ]
        if urls[0] == urls[1]:
            return None
        if "@" in urlsplit(urls[0]).netloc:
            raise ConfigurationError(
                "the endpoint in AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or AWS's configuration (endpoint_url) has a "
                "name or a password before its host: remove it, and give credentials in their own settings"
            )
        return urls[0]

    def _find_url(self) -> str:
        """Return the bucket's URL by botocore's rules for endpoints."""
        client = self.client(Config(signature_version=UNSIGNED))
        url = client.generate_presigned_url("get_object", Params={"Bucket": self._bucket, "Key": _ANY_KEY})
        return url.removesuffix(f"/{_ANY_KEY}")

    def _style(self) -> Literal["path", "virtual", "auto"]:
        """Return botocore's addressing style, which says whether the bucket is in the URL's path or in its host.

        For AWS, `auto` would lead to its global host, which newer regions refuse, or to the FIPS endpoint of us-east-1.
        For another endpoint, `auto` puts the bucket in the path, which almost all services accept. Buckets of tables
        are addressed as Hadoop's S3A addresses them.
        """
        if self._access.s3_path_style or _is_ip_address(urlsplit(self.endpoint_url or "").hostname):
            return "path"
        is_open = self._access.s3_path_style is None and self._use.follows_endpoints
        return "auto" if self.endpoint_url and is_open else "virtual"

    def client(self, config: Config) -> S3Client:
        """Return a new boto3 client for requests to the bucket, which raises botocore's errors.

        Raises:
            StorageAccessError: there are no credentials.
        """
        of_aws = self.endpoint_url is None
        addressing = Config(
            signature_version=UNSIGNED if self._access.anonymous else "s3v4",
            use_fips_endpoint=None if of_aws and not self._access.s3_fips else of_aws,
            use_dualstack_endpoint=None if of_aws else False,
            s3={
                "addressing_style": self._style(),
                "us_east_1_regional_endpoint": "regional",
                "payload_signing_enabled": False,
                **({} if of_aws and self._use.follows_endpoints else {"use_accelerate_endpoint": False}),
            },
            **_ignoring(True),
        )
        return self._clients.client(
            "s3", endpoint_url=self.endpoint_url, region_name=self.region, config=addressing.merge(config)
        )

    def object_store_config(self) -> dict[str, str]:
        """Return the settings of the crate `object_store` for requests to the bucket, without credentials.

        With these settings and with credentials, no environment variable changes the target or the signer of requests.

        Raises:
            ConfigurationError: an environment variable that no setting can override would change the requests.
        """
        key = self._access.s3_customer_key
        encryption = {"aws_server_side_encryption": "sse-c", "aws_sse_customer_key_base64": key} if key else {}
        check_environment(_OF_OBJECT_STORE)
        with self._moving:
            url, region = self.bucket_url, self.region
        return {
            "aws_endpoint": url,
            "aws_endpoint_url_s3": url,
            "aws_virtual_hosted_style_request": "true",  # the URL is the bucket's own, whichever style it has
            "aws_region": region,
            "aws_s3_express": "false",
            "aws_request_payer": str(self._access.s3_requester_pays).lower(),
            "aws_skip_signature": str(self._access.anonymous).lower(),
            "aws_unsigned_payload": "false",
            "aws_conditional_put": "etag",
            "aws_copy_if_not_exists": "multipart",
            "aws_disable_tagging": "false",
            **encryption,
        }

    def follow_region(self, named: str) -> bool:
        """Set `region` and `bucket_url` to the bucket's actual region; return whether it differs from `region` so far.

        `named` is the region that the service has named. If `named` is empty, AWS is asked for the region; other S3
        services are not asked.
        """
        region = named or self.find_region()
        if not region:
            return False
        with self._moving:
            differs = region != self.region
            if differs:
                self.region = region
                self.bucket_url = self._find_url()
            self.knows_region = True
        return differs

    def find_region(self) -> str:
        """Ask AWS for the bucket's region, and return it; empty: AWS does not say it, or the service is not AWS."""
        if self.endpoint_url is not None:
            return ""
        try:
            with muted(*LOGGERS_WITH_SECRETS):
                return self.client(Config()).head_bucket(Bucket=self._bucket).get("BucketRegion", "")
        except aws.ClientError as error:
            headers = error.response["ResponseMetadata"].get("HTTPHeaders", {})
            return str(headers.get("x-amz-bucket-region", ""))
        except aws.BotoCoreError:
            return ""

    def credentials(self) -> S3Credential:
        """Return valid credentials in obstore's form; `expires_at` is the time at which obstore is to ask again.

        botocore renews credentials that expire. Other credentials are looked for again at each call.

        Raises:
            StorageAccessError: no credentials are found, or a provider of the chain fails.
        """
        if (failure := self._failure) is not None and time.monotonic() < failure[0]:
            raise failure[1]
        last: Exception | None = None

        def attempt(_: float) -> tuple[Credentials, ReadOnlyCredentials]:
            nonlocal last
            began = time.monotonic()
            try:
                return self._find_credentials()
            except _NO_CREDENTIALS as error:
                last = error
            kind = FailureKind.TIMEOUT if time.monotonic() - began >= _LONG_ATTEMPT else FailureKind.BROKEN
            raise AttemptError(kind if _may_pass(last) else FailureKind.CREDENTIALS)

        milliseconds = int(self._timeout * 1000)
        limits = RequestTimeouts(milliseconds, milliseconds, milliseconds, _ATTEMPTS)
        try:
            found, frozen = Attempts(limits, lambda name, _: name).send("credentials", attempt)
        except (AttemptError, StorageUnavailableError):
            assert last is not None
            refused = StorageAccessError(self._without_credentials(last))
            self._failure = time.monotonic() + FAILURE_HELD, refused
            raise refused from None
        now = datetime.now(UTC)
        expiry: datetime | None = getattr(found, "_expiry_time", None)
        lifetime = min(_CREDENTIALS_LIFETIME, (expiry - now) / 2) if expiry else _CREDENTIALS_LIFETIME
        if expiry:
            self._ends = *(each for each in self._ends if each[0] > now), (now + lifetime, expiry)
        return {
            "access_key_id": frozen.access_key or "",
            "secret_access_key": frozen.secret_key or "",
            "token": frozen.token,
            "expires_at": now + lifetime,
        }

    def credentials_seconds_left(self) -> float:
        """Return the seconds until the earliest end of credentials that a client may still use.

        The result is infinity if no such credentials end.
        """
        now = datetime.now(UTC)
        return min(((end - now).total_seconds() for until, end in self._ends if until > now), default=inf)

    def _find_credentials(self) -> tuple[Credentials, ReadOnlyCredentials]:
        """Return botocore's credentials, and their current keys. Raises an error in `_NO_CREDENTIALS`."""
        with muted(*LOGGERS_WITH_SECRETS):
            found = self._credentials  # of this thread: others may look for credentials, or forget them
            if not isinstance(found, RefreshableCredentials):
                session = _session(self._access, self._timeout)
                bound_programs(session, self._timeout)
                found = self._credentials = session.get_credentials()
            if found is None:
                raise aws.NoCredentialsError
            self.provider = found.method
            return found, found.get_frozen_credentials()

    def forget_credentials(self) -> None:
        """Drop the known credentials, so that the next call of `credentials` looks for new ones."""
        self._credentials = None

    def load_credentials(self) -> RefreshableCredentials:
        """Return the credentials in botocore's form; botocore's clients ask for new credentials when these expire.

        Raises:
            StorageAccessError: no credentials are found, or a provider of the chain fails.
        """
        renew = self._for_botocore
        return RefreshableCredentials.create_from_metadata(renew(), renew, "", advisory_timeout=0, mandatory_timeout=0)

    def _for_botocore(self) -> dict[str, str | None]:
        valid = self.credentials()
        return {
            "access_key": valid["access_key_id"],
            "secret_key": valid["secret_access_key"],
            "token": valid.get("token"),
            "expiry_time": str(valid["expires_at"]),
        }

    def _without_credentials(self, error: Exception) -> str:
        """Return the message for botocore's `error` about missing credentials, without output of users' programs."""
        known = getattr(error, "kwargs", {})
        says = " ".join(str(known[name]) for name in _SHOWN if name in known)
        if isinstance(error, aws.ClientError):
            service, what = "AWS", error.operation_name
            if what.startswith("AssumeRole"):
                role = os.environ.get("AWS_ROLE_ARN") or self._session.get_scoped_config().get("role_arn", "a role")
                service, what = "AWS STS", f"{what} for {role}"
            says = f"{service} refused {what} with {error.response['Error'].get('Code', '')}"
        elif isinstance(error, OSError):
            says = str(error)
        elif known.get("provider") == ProcessProvider.METHOD:
            says = "the program of credential_process failed, or printed no credentials"
        reason = "" if isinstance(error, aws.NoCredentialsError) else f" ({f'{type(error).__name__} {says}'.strip()})"
        return f"no credentials for s3://{self._bucket}{reason}: {self.access_hint()}"

    def access_hint(self) -> str:
        """Return advice on missing or refused credentials; if their source is known, the advice names this source."""
        use, keys = self._use, f"{self._use.prefix}aws.access.key.id and {self._use.prefix}aws.secret.access.key"
        origin = f"the provider {self.provider} of AWS's credential chain"
        if self.provider == _ENVIRONMENT:
            origin = "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN in the environment"
        if self.provider not in ("", _SETTINGS):
            return f"check {origin}, which the credentials come from, or give {keys}{use.otherwise}"
        return (
            f"check {use.prefix}aws.access.key.id, {use.prefix}aws.secret.access.key and {use.prefix}aws.session.token"
            f"{use.otherwise}, or where they are not given the AWS credential chain (environment, profile, instance or "
            "pod role)"
        )

    def ca_bundle(self) -> tuple[str, bytes] | None:
        """Return path and PEM of the certificates to trust in addition to the system's, or None if no such file is set.

        The file is named by `AWS_CA_BUNDLE`, by `ca_bundle` in AWS's configuration, or by `REQUESTS_CA_BUNDLE`.

        Raises:
            ConfigurationError: the file cannot be read.
        """
        path = self._session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
        if not path:
            return None
        try:
            with open(path, "rb") as file:
                return path, file.read()
        except OSError as error:
            raise ConfigurationError(f"the CA bundle {path} cannot be read: {error}") from error


_table_sessions: PerProcess[S3Session] = PerProcess()


def table_session(access: S3Access, bucket: str) -> S3Session:
    """Return the process's shared `S3Session` for the bucket of a table.

    Raises:
        ConfigurationError: the endpoint, a profile or AWS's configuration file is malformed.
    """
    return _table_sessions.get({"access": access, "bucket": bucket}, lambda: S3Session(access, bucket, TABLES))


def load_models() -> None:
    """Load botocore's service descriptions before this process is forked, without any request or credentials."""
    S3Session(S3Access("http://127.0.0.1:1", "us-east-1", True, "none", "none"), "none")


def _ignoring(ignored: bool) -> dict[str, Any]:
    """Return botocore's setting, which botocore-stubs lacks, to ignore endpoints in AWS's configuration.

    Such endpoints are, for example, in `AWS_ENDPOINT_URL`. If `ignored` is false, they count.
    """
    return {"ignore_configured_endpoint_urls": ignored}


def check_environment(variables: Collection[str]) -> None:
    """Check that none of these environment variables is set, because no setting of a library overrides them.

    `variables` has names in upper case; a variable whose name is in lower case counts, too.

    Raises:
        ConfigurationError: a variable is set.
    """
    if found := next((name for name in os.environ if name.upper() in variables and os.environ[name]), None):
        raise ConfigurationError(
            f"the environment variable {found} would change requests to the storage, because a library reads it: "
            "unset it for the driver and the executors"
        )


def _session(access: S3Access, timeout: float) -> botocore.session.Session:
    """Return a botocore session with the configured credentials, or with the credentials of AWS's chain.

    `timeout` is the time limit of a request for credentials in seconds, including its second attempt.
    """
    session = botocore.session.get_session()
    session.register_component("data_loader", _models_in(session.get_config_variable("data_path")))
    seconds = timeout / WAITS_FOR_CREDENTIALS
    # Clients of the services that give credentials have no other configuration.
    limits = Config(connect_timeout=seconds, read_timeout=seconds, retries={"total_max_attempts": 2})
    session.set_default_client_config(limits)
    if access.access_key_id is not None and access.secret_access_key is not None:
        session.set_credentials(access.access_key_id, access.secret_access_key, access.session_token)
    return session


def _may_pass(error: Exception) -> bool:
    """Return whether another request for credentials may succeed after the `error` of botocore."""
    if isinstance(error, aws.ClientError):
        return int(error.response["ResponseMetadata"].get("HTTPStatusCode", 0)) >= 500
    if isinstance(error, aws.CredentialRetrievalError):  # of a renewal, which found nothing
        return error.kwargs.get("provider") == _MACHINE
    return isinstance(error, _UNREACHABLE)


def _is_ip_address(host: str | None) -> bool:
    try:
        return bool(ip_address(host or ""))
    except ValueError:
        return False


@cache
def _models_in(data_path: str | None) -> Loader:
    """Return botocore's loader of AWS's service descriptions; it reads them once a process, in 0.06 s."""
    return botocore.loaders.create_loader(data_path)
