"""Options of `IAMLoginModule` (aws-msk-iam-auth): each is honoured, warned of as without effect, or refused.

The options choose the identity that logs in. So an unknown option is an error: without it, another identity than the
intended one might log in.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Mapping

from tiered_stream.broker.login.aws_login import AssumedRole, AwsIdentity, AwsLogin
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.types import whole_number

_log = logging.getLogger(__name__)

_JAAS = "kafka.sasl.jaas.config"
_SESSION_NAME = "aws-msk-iam-auth"
"""Default session name of Java's module. It is fixed: brokers refuse another principal when a session is renewed."""
_OF_ROLES = (
    "awsRoleSessionName", "awsRoleExternalId", "awsRoleAccessKeyId", "awsRoleSecretAccessKey", "awsRoleSessionToken",
    "awsStsRegion", "awsShouldUseFips",
)  # fmt: skip
_NO_EFFECT = {"awsDebugCreds": "credentials are never logged"}
_KNOWN = (
    "awsProfileName", "awsRoleArn", *_OF_ROLES, "awsMaxRetries", "awsMaxBackOffTimeMs", "awsAddDefaultProviders",
    "awsMskRegionProvider", *_NO_EFFECT,
)  # fmt: skip
_NAME, _LONGEST_EXTERNAL_ID = re.compile(r"[\w+=,.@-]{2,64}", re.ASCII), 1224
"""STS's rules for a role session's name and for the length of an external id."""
_ARN = re.compile(r"arn:[a-z-]+:iam::\d+:role/.+")
_MOST_RETRIES, _LONGEST_WAIT_MS = 100, 600_000


def aws_login(options: Mapping[str, str]) -> AwsLogin:
    """Return the source of logins for the AWS identity that the login module's options name.

    Raises:
        ConfigurationError: an option is unknown, malformed, not supported, or contradicts another.
    """
    _check_names(options)
    profile, role = options.get("awsProfileName"), _role(options)
    if profile is not None and role is not None:
        raise ConfigurationError(
            f"{_JAAS}: awsProfileName and awsRoleArn are both given: keep one. A profile may name a role (role_arn)"
        )
    if profile is not None and not profile.strip():
        raise ConfigurationError(f"{_JAAS}: awsProfileName is empty")
    retries = _number(options, "awsMaxRetries", 3, _MOST_RETRIES)
    longest_wait = _number(options, "awsMaxBackOffTimeMs", 5_000, _LONGEST_WAIT_MS) / 1000
    return AwsLogin(AwsIdentity(profile, role, retries, longest_wait))


def _check_names(options: Mapping[str, str]) -> None:
    for name in options:
        if name not in _KNOWN:
            near = difflib.get_close_matches(name, _KNOWN, 1)
            raise ConfigurationError(
                f"{_JAAS}: IAMLoginModule has no option {name}{f' ({near[0]}?)' if near else ''}: remove it"
            )
        if name in _NO_EFFECT:
            _log.warning("%s: %s has no effect: %s", _JAAS, name, _NO_EFFECT[name])
    if "awsMskRegionProvider" in options:
        raise ConfigurationError(
            f"{_JAAS}: awsMskRegionProvider is not supported: Java's classes do not run here. Remove it and set "
            "AWS_REGION on the driver and on the executors"
        )
    if _boolean(options, "awsAddDefaultProviders"):
        raise ConfigurationError(
            f"{_JAAS}: awsAddDefaultProviders = 'true' is not supported: where a profile or a role cannot be had, no "
            "other identity logs in instead. Remove it"
        )


def _role(options: Mapping[str, str]) -> AssumedRole | None:
    if "awsRoleArn" not in options:
        if alone := next((name for name in _OF_ROLES if name in options), None):
            raise ConfigurationError(f"{_JAAS}: {alone} is for awsRoleArn, which is missing")
        return None
    arn = options["awsRoleArn"]
    if not _ARN.fullmatch(arn):
        raise ConfigurationError(f"{_JAAS}: awsRoleArn = {arn!r} is no role, arn:aws:iam::<account>:role/<name>")
    key, secret = options.get("awsRoleAccessKeyId"), options.get("awsRoleSecretAccessKey")
    token, region, fips = options.get("awsRoleSessionToken"), options.get("awsStsRegion"), "awsShouldUseFips"
    if (key is None) != (secret is None) or (token is not None and key is None):
        raise ConfigurationError(
            f"{_JAAS}: awsRoleAccessKeyId and awsRoleSecretAccessKey go together, and awsRoleSessionToken with them"
        )
    if _boolean(options, fips) and region is None:
        raise ConfigurationError(f"{_JAAS}: {fips} needs awsStsRegion: STS has FIPS endpoints in regions alone")
    name, external_id = options.get("awsRoleSessionName", _SESSION_NAME), options.get("awsRoleExternalId")
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{_JAAS}: awsRoleSessionName = {name!r}: must be 2 to 64 letters, digits and characters of _+=,.@-"
        )
    if external_id is not None and not 2 <= len(external_id) <= _LONGEST_EXTERNAL_ID:
        raise ConfigurationError(f"{_JAAS}: awsRoleExternalId must have from 2 to {_LONGEST_EXTERNAL_ID} characters")
    return AssumedRole(
        arn=arn,
        session_name=name,
        external_id=external_id,
        sts_region=None if region == "aws-global" else region,
        fips=_boolean(options, fips),
        keys=None if key is None or secret is None else (key, secret, token),
    )


def _boolean(options: Mapping[str, str], name: str) -> bool:
    given = options.get(name, "false").lower()
    if given not in ("true", "false"):
        raise ConfigurationError(f"{_JAAS}: {name} = {given!r}: must be true or false")
    return given == "true"


def _number(options: Mapping[str, str], name: str, default: int, most: int) -> int:
    try:
        number = whole_number(options.get(name, str(default)))
    except ValueError:
        number = -1
    if not 0 <= number <= most:
        raise ConfigurationError(f"{_JAAS}: {name} = {options[name]!r}: must be a whole number from 0 to {most}")
    return number
