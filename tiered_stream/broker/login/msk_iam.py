"""Options of `IAMLoginModule` (aws-msk-iam-auth), and the AWS identity that they name.

An option is honoured, has no effect and is warned of, or is refused. The options choose the identity that logs in. So
an unknown option is an error: if it were ignored, another identity than the user intends might log in.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

from tiered_stream.broker.login.aws_login import AssumedRole, AwsIdentity, AwsLogin
from tiered_stream.broker.properties.property_values import ConfigValues
from tiered_stream.errors import ConfigurationError
from tiered_stream.options import types
from tiered_stream.options.types import option
from tiered_stream.options.unknown_names import is_typing_error, nearest_name

_log = logging.getLogger(__name__)

_JAAS = "kafka.sasl.jaas.config"
_SESSION_NAME = "aws-msk-iam-auth"
"""Default session name of Java's module.

The name is always the same, because brokers refuse a renewed session (KIP-368) with another principal.
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
            nearest = nearest_name(name, _KNOWN)
            hint = f" ({nearest}?)" if is_typing_error(name.lower(), nearest.lower()) else ""
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
