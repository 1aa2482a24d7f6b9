"""AWS_MSK_IAM logins: the options of Java's `IAMLoginModule` (aws-msk-iam-auth), and the user's AWS credentials.

The credentials come from AWS's credential chain, a profile, or an assumed role. No login falls back to another
identity. If there are no credentials for the configured identity, the login fails.

An option is supported, has no effect (a warning says so), or is refused. The options choose the identity that logs in.
So an unknown option is an error: if it were ignored, another identity than the user intends might log in.
"""

from __future__ import annotations

import logging
import os
import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import botocore.session
from botocore import exceptions as aws
from botocore.config import Config
from botocore.credentials import Credentials, ReadOnlyCredentials, RefreshableCredentials
from botocore.parsers import ResponseParserError

from tiered_stream.broker.kafka_properties import ConfigValues
from tiered_stream.broker.login.renewed_login import Refresh, RenewedLogin
from tiered_stream.broker.wire.kafka_python import AwsMskIamClient, SaslMechanismAwsMskIam, register_sasl_mechanism
from tiered_stream.errors import BrokerAuthorizationError, BrokerUnavailableError, ConfigurationError, TieredStreamError
from tiered_stream.options import types
from tiered_stream.options.types import option
from tiered_stream.options.unknown_names import hint_for
from tiered_stream.process.logs import muted

if TYPE_CHECKING:
    from botocore.session import Session

_LOGGERS_WITH_SECRETS = ("botocore", "urllib3")
"""Names of loggers to mute: at DEBUG, they log requests and responses of STS, with keys and web-identity tokens."""
_REFRESH = Refresh(factor=0.8, jitter=0.05, min_period=60, buffer=300)
_CHAIN_INTERVAL_SECONDS = 300.0
"""Seconds between two requests to botocore for the credentials of AWS's chain.

botocore itself renews them 10 to 15 minutes before they expire.
"""
_FIRST_WAIT_SECONDS = 0.5
_STS_SECONDS = 10
_REGION = re.compile(
    r"(?<![a-z0-9])(?:[a-z]{2,4})(?:-[a-z]{2,5})?-(?:central|(?:north|south)(?:east|west)?|east|west)-\d(?![a-z0-9])"
)
_RETRIABLE_CODES = re.compile(
    r"Throttl|RequestLimit|ServiceUnavailable|InternalError|InternalFailure|IDPCommunicationError|5\d\d"
)
"""Pattern of the AWS error codes after which the same request may succeed."""
_CONNECTION_ERRORS = (aws.HTTPClientError, aws.ConnectionError, aws.EndpointConnectionError)
_PROVIDER_ERRORS = (
    aws.CredentialRetrievalError, aws.TokenRetrievalError, aws.MetadataRetrievalError, aws.SSOError,
    aws.NoAuthTokenError, ResponseParserError,
)  # fmt: skip
"""Errors of botocore's credential providers after which another request to the same provider may succeed.

The texts of these errors are not shown, because they may repeat the output of a program.
"""
_ERRORS_WITHOUT_SECRETS = (
    aws.ProfileNotFound, aws.ConfigNotFound, aws.ConfigParseError, aws.InvalidConfigError, aws.InfiniteLoopConfigError,
    aws.PartialCredentialsError, aws.UnknownCredentialError, aws.InvalidRegionError,
)  # fmt: skip
"""Errors of botocore whose texts we may show: they name settings and no secret.

Texts of other errors may contain a part of a response.
"""
_NO_CREDENTIALS = (
    "AWS's chain has no credentials on this machine: give it some (environment, ~/.aws/credentials, a role of the "
    "instance, the container or the pod), or name a profile that has, by awsProfileName in kafka.sasl.jaas.config"
)
_log = logging.getLogger(__name__)
_JAAS = "kafka.sasl.jaas.config"
_SESSION_NAME = "aws-msk-iam-auth"
"""Session name of an assumed role if the user names none; Java's login module has the same default.

A new login on an open connection (KIP-368) must have the same principal, which contains the session name.
"""
_ROLE_OPTIONS = (
    "awsRoleSessionName", "awsRoleExternalId", "awsRoleAccessKeyId", "awsRoleSecretAccessKey", "awsRoleSessionToken",
    "awsStsRegion", "awsShouldUseFips",
)  # fmt: skip
_NO_EFFECT = {"awsDebugCreds": "credentials are never logged"}
_USE_FIPS = option("awsShouldUseFips", types.boolean, "false", "")
_ADD_DEFAULT_PROVIDERS = option("awsAddDefaultProviders", types.boolean, "false", "")
_MAX_RETRIES = option("awsMaxRetries", types.integer(0, 100), "3", "")
_MAX_BACK_OFF_MS = option("awsMaxBackOffTimeMs", types.integer(0, 600_000), "5000", "")
_KNOWN = (
    "awsProfileName", "awsRoleArn", *_ROLE_OPTIONS, _MAX_RETRIES.name, _MAX_BACK_OFF_MS.name,
    _ADD_DEFAULT_PROVIDERS.name, "awsMskRegionProvider", *_NO_EFFECT,
)  # fmt: skip
_SESSION_NAME_RULE, _MAX_EXTERNAL_ID_LENGTH = re.compile(r"[\w+=,.@-]{2,64}", re.ASCII), 1224
"""Rules of STS for a role session's name, and for the length of an external id."""
_ARN = re.compile(r"arn:[a-z-]+:iam::\d+:role/.+")


@dataclass(frozen=True, slots=True)
class AssumedRole:
    """IAM role to log in as.

    Args:
        external_id: the external id that the role's trust policy asks for; None: it asks for none.
        sts_region: the region of the STS endpoint; None: the global endpoint.
        fips: true if STS's FIPS endpoint is used.
        keys: access key id, secret access key and session token of the user who assumes the role; None: AWS's chain
            finds the user's credentials.
    """

    arn: str
    session_name: str
    external_id: str | None = field(repr=False)
    sts_region: str | None
    fips: bool
    keys: tuple[str, str, str | None] | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class AwsIdentity:
    """AWS identity to log in as: a profile or a role; if both are None, the identity that AWS's chain finds.

    A failed request for credentials is repeated up to `retries` times, each time after a wait of at most `max_wait`
    seconds.
    """

    profile: str | None = None
    role: AssumedRole | None = None
    retries: int = 3
    max_wait: float = 5.0

    def __str__(self) -> str:
        if self.role is not None:
            return f"kafka.sasl.jaas.config: awsRoleArn = {self.role.arn!r}"
        return f"kafka.sasl.jaas.config: awsProfileName = {self.profile!r}" if self.profile else "AWS_MSK_IAM"


@dataclass(frozen=True, slots=True)
class AwsCredentials:
    """AWS credentials `keys`, and the region that the environment or the profile names (None: neither names one).

    `expires_at` is in seconds since the epoch; None: unknown. For credentials of AWS's chain, `expires_at` is 300 s
    after the request, because botocore itself renews these credentials.
    """

    keys: ReadOnlyCredentials = field(repr=False)
    region: str | None
    expires_at: float | None


def region_of(host: str) -> str | None:
    """Return the last AWS region in a host name, such as `….kafka.eu-west-1.amazonaws.com`; None: there is none."""
    regions = _REGION.findall(host.lower())
    return regions[-1] if regions else None


class AwsLogin(RenewedLogin[AwsCredentials]):
    """Source of the messages for one client's AWS_MSK_IAM logins. Its credentials are renewed before they expire.

    A role is assumed again at each renewal. Without a role, credentials that botocore itself renews are kept.
    """

    kind, source = "credentials", "services that hand out AWS credentials"

    def __init__(self, identity: AwsIdentity) -> None:
        super().__init__(str(identity), self.obtain, _REFRESH)
        self._identity = identity
        self._session: Session | None = None

    def message(self, host: str) -> bytes:
        """Return the only message of a login at `host`, signed now by the current credentials, without waiting.

        The message contains the session token, but not the secret key.

        Raises:
            BrokerUnavailableError: there are no credentials, or they have expired.
            ConfigurationError: neither the host's name nor the environment or the profile names an AWS region.
        """
        credentials = self.current()
        region = region_of(host) or credentials.region
        if region is None:
            raise ConfigurationError(
                f"AWS_MSK_IAM: the name of the broker {host!r} has no AWS region in it: set AWS_REGION on the driver "
                "and on the executors"
            )
        keys = credentials.keys
        client = AwsMskIamClient(host, keys.access_key, keys.secret_key, region, keys.token)
        return bytes(client.first_message())

    def obtain(self) -> AwsCredentials:
        """Request credentials, and return them. Repeat a failed request after waits that grow.

        There are up to `retries` repetitions (`AwsIdentity`). Each wait is a random time up to a maximum: 0.5 s at
        first, and twice as long each time, up to `max_wait` seconds.

        Raises:
            BrokerAuthorizationError: AWS refuses the credentials or the role.
            BrokerUnavailableError: AWS was not reached, or could not respond.
            ConfigurationError: there are no credentials, or a setting for them is wrong.
        """
        wait = _FIRST_WAIT_SECONDS
        for _ in range(self._identity.retries):
            try:
                return self._ask()
            except (BrokerUnavailableError, _NoCredentialsError):
                time.sleep(random.uniform(0, min(wait, self._identity.max_wait)))
                wait *= 2
        return self._ask()

    def _ask(self) -> AwsCredentials:
        try:
            with muted(*_LOGGERS_WITH_SECRETS):
                if self._identity.role:
                    return self._assume_role(self._identity.role)
                session, credentials = self._chain(self._identity.profile)
                return _with_expiry(credentials, session, time.time() + _CHAIN_INTERVAL_SECONDS)
        except TieredStreamError:
            raise
        except Exception as error:  # noqa: BLE001 - botocore may raise any exception
            raise _fault(str(self._identity), error) from None  # the error's text may contain secrets

    def _chain(self, profile: str | None) -> tuple[Session, ReadOnlyCredentials]:
        """Return a session and the credentials that AWS's chain finds for `profile` (None: the default profile).

        Credentials that botocore itself renews are kept with their session for the next call. Other credentials are
        searched for again at each call.

        Raises:
            _NoCredentialsError: the chain has no credentials. Errors of botocore are raised unchanged.
        """
        session = self._session or _open_session(profile)
        credentials = session.get_credentials()  # a session searches only once
        if credentials is None:
            raise _NoCredentialsError(f"{self._identity}: {_NO_CREDENTIALS}")
        self._session = session if isinstance(credentials, RefreshableCredentials) else None
        return session, credentials.get_frozen_credentials()

    def _assume_role(self, role: AssumedRole) -> AwsCredentials:
        if role.keys is not None:
            session, source = _open_session(None), Credentials(*role.keys).get_frozen_credentials()
        else:
            session, source = self._chain(None)
        client: Any = session.create_client(
            "sts",
            region_name=role.sts_region or "aws-global",
            aws_access_key_id=source.access_key,
            aws_secret_access_key=source.secret_key,
            aws_session_token=source.token,
            config=Config(
                use_fips_endpoint=role.fips or None,
                connect_timeout=_STS_SECONDS,
                read_timeout=_STS_SECONDS,
                retries={"mode": "standard", "total_max_attempts": 2},
            ),
        )
        try:
            external = {"ExternalId": role.external_id} if role.external_id is not None else {}
            response = client.assume_role(RoleArn=role.arn, RoleSessionName=role.session_name, **external)
        finally:
            client.close()
        assumed = response["Credentials"]
        keys = ReadOnlyCredentials(assumed["AccessKeyId"], assumed["SecretAccessKey"], assumed["SessionToken"])
        return _with_expiry(keys, session, assumed["Expiration"].timestamp())


class _MskIam(SaslMechanismAwsMskIam):  # type: ignore[misc]
    """AWS_MSK_IAM login of one connection, which takes its message from an `AwsLogin`.

    kafka-python's own mechanism requests credentials from AWS on the network thread at each login. It is used if the
    connection has no `AwsLogin`, because another kafka-python client in this process has opened it.
    """

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self._login = config.get("sasl_oauth_token_provider")

    def auth_bytes(self) -> bytes:
        return self._login.message(self.host) if isinstance(self._login, AwsLogin) else bytes(super().auth_bytes())


register_sasl_mechanism("AWS_MSK_IAM", _MskIam, overwrite=True)


class _NoCredentialsError(ConfigurationError):
    """Error that AWS's chain has no credentials.

    The request is repeated after this error, because botocore also finds no credentials if the service that issues them
    does not respond for a while.
    """


def _open_session(profile: str | None) -> Session:
    session = botocore.session.Session(profile=profile)
    if region := os.environ.get("AWS_REGION"):  # AWS's other SDKs read it; Lambda, EKS and ECS set it
        session.set_config_variable("region", region)
    return session


def _with_expiry(keys: ReadOnlyCredentials, session: Session, expires_at: float) -> AwsCredentials:
    if not keys.access_key or not keys.secret_key:
        raise ConfigurationError("AWS_MSK_IAM: a provider of AWS's chain gave empty credentials")
    return AwsCredentials(keys, session.get_config_variable("region"), expires_at)


def _fault(origin: str, error: Exception) -> TieredStreamError:
    """Return the package's error for an error of botocore, without secrets; `origin` names the setting in the message.

    The result is BrokerUnavailableError if the same request may succeed later.
    """
    if isinstance(error, aws.ClientError):
        code, call = str(error.response.get("Error", {}).get("Code", "")), error.operation_name
        if _RETRIABLE_CODES.search(code):
            return BrokerUnavailableError(f"{origin}: AWS responded to {call} with {code}")
        return BrokerAuthorizationError(
            f"{origin}: AWS refused {call}: {code}; check the credentials, the role's trust policy and its external id"
        )
    if isinstance(error, _CONNECTION_ERRORS):
        return BrokerUnavailableError(f"{origin}: AWS was not reached for credentials: {type(error).__name__}")
    if isinstance(error, _PROVIDER_ERRORS):
        return BrokerUnavailableError(f"{origin}: AWS's chain got no credentials: {type(error).__name__}")
    shown = f"{type(error).__name__}: {error}" if isinstance(error, _ERRORS_WITHOUT_SECRETS) else type(error).__name__
    return ConfigurationError(f"{origin}: AWS's chain got no credentials: {shown}")


def aws_login(options: Mapping[str, str]) -> AwsLogin:
    """Return the source of login messages for the AWS identity that the login module's `options` name.

    Raises:
        ConfigurationError: an option is unknown, malformed, not supported, or contradicts another option.
    """
    try:
        return AwsLogin(_identity(options))
    except ConfigurationError as error:
        raise ConfigurationError(f"{_JAAS}: {error}") from None


def _identity(options: Mapping[str, str]) -> AwsIdentity:
    _check_names(options)
    profile, role, values = options.get("awsProfileName"), _role(options), ConfigValues(options)
    if profile is not None and role is not None:
        raise ConfigurationError(
            "awsProfileName and awsRoleArn are both given: keep one. A profile may name a role (role_arn)"
        )
    if profile is not None and not profile.strip():
        raise ConfigurationError("awsProfileName is empty")
    return AwsIdentity(profile, role, values.read(_MAX_RETRIES), values.read(_MAX_BACK_OFF_MS) / 1000)


def _check_names(options: Mapping[str, str]) -> None:
    for name in options:
        if name not in _KNOWN:
            hint = hint_for(name, _KNOWN, " ({}?)")
            raise ConfigurationError(f"IAMLoginModule has no option {name}{hint}: remove it")
        if name in _NO_EFFECT:
            _log.warning("%s: %s has no effect: %s", _JAAS, name, _NO_EFFECT[name])
    if "awsMskRegionProvider" in options:
        raise ConfigurationError(
            "awsMskRegionProvider is not supported: Java's classes do not run here. Remove it and set "
            "AWS_REGION on the driver and on the executors"
        )
    if ConfigValues(options).read(_ADD_DEFAULT_PROVIDERS):
        raise ConfigurationError(
            "awsAddDefaultProviders = 'true' is not supported: where a profile or a role cannot be had, no "
            "other identity logs in instead. Remove it"
        )


def _role(options: Mapping[str, str]) -> AssumedRole | None:
    if "awsRoleArn" not in options:
        if role_option := next((name for name in _ROLE_OPTIONS if name in options), None):
            raise ConfigurationError(f"{role_option} is for awsRoleArn, which is missing")
        return None
    arn = options["awsRoleArn"]
    if not _ARN.fullmatch(arn):
        raise ConfigurationError(f"awsRoleArn = {arn!r} is no role, arn:aws:iam::<account>:role/<name>")
    key, secret = options.get("awsRoleAccessKeyId"), options.get("awsRoleSecretAccessKey")
    token, region = options.get("awsRoleSessionToken"), options.get("awsStsRegion")
    if (key is None) != (secret is None) or (token is not None and key is None):
        raise ConfigurationError(
            "awsRoleAccessKeyId and awsRoleSecretAccessKey go together, and awsRoleSessionToken with them"
        )
    fips = ConfigValues(options).read(_USE_FIPS)
    if fips and region is None:
        raise ConfigurationError("awsShouldUseFips needs awsStsRegion: STS has FIPS endpoints in regions alone")
    name, external_id = options.get("awsRoleSessionName", _SESSION_NAME), options.get("awsRoleExternalId")
    if not _SESSION_NAME_RULE.fullmatch(name):
        raise ConfigurationError(
            f"awsRoleSessionName = {name!r}: must be 2 to 64 letters, digits and characters of _+=,.@-"
        )
    if external_id is not None and not 2 <= len(external_id) <= _MAX_EXTERNAL_ID_LENGTH:
        raise ConfigurationError(f"awsRoleExternalId must have from 2 to {_MAX_EXTERNAL_ID_LENGTH} characters")
    return AssumedRole(
        arn=arn,
        session_name=name,
        external_id=external_id,
        sts_region=None if region == "aws-global" else region,
        fips=fips,
        keys=None if key is None or secret is None else (key, secret, token),
    )
