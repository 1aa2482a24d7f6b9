"""Ways to have no identity, or the wrong one, in each cloud; each says what an error about it must name."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.rigs.cloud import origins
from tests.rigs.cloud.aws import Aws
from tests.rigs.cloud.origins import Given, write_profiles


@dataclass(frozen=True)
class Failure:
    """`make` makes an identity that the cloud refuses. `names` are regular expressions for who refused, and why."""

    make: Callable[[Any, Path], Given]
    names: tuple[str, ...]


def _nobody(_: object, __: Path) -> Given:
    return Given()


def _wrong_secret(aws: Aws, folder: Path) -> Given:
    given = origins.AWS["keys in the settings"](aws, folder)
    return replace(given, settings={**given.settings, "secret_access_key": "the-wrong-secret"})


def _expired(aws: Aws, _: Path) -> Given:
    return Given(environment=aws.role("reader", aws.home, -60).environment())


def _role_denied(aws: Aws, folder: Path) -> Given:
    aws.denied.add(("user/caller", "sts:AssumeRole"))
    return origins.AWS["profile that assumes a role"](aws, folder)


def _token_denied(aws: Aws, folder: Path) -> Given:
    given = origins.AWS["web identity (IRSA)"](aws, folder)
    aws.tokens.clear()
    return given


def _unreachable(aws: Aws, folder: Path) -> Given:
    aws.missing.add(f"sts.{aws.home}.amazonaws.com")
    return origins.AWS["web identity (IRSA)"](aws, folder)


def _no_token_file(aws: Aws, folder: Path) -> Given:
    given = origins.AWS["web identity (IRSA)"](aws, folder)
    Path(given.environment["AWS_WEB_IDENTITY_TOKEN_FILE"]).unlink()
    return given


def _metadata(status: int, origin: str = "instance of EC2") -> Callable[[Any, Path], Given]:
    def make(cloud: Any, folder: Path) -> Given:
        cloud.metadata_status = status
        known = {**origins.AWS, **origins.AZURE, **origins.GOOGLE}
        return known[origin](cloud, folder)

    return make


def _program(text: str) -> Callable[[Aws, Path], Given]:
    def make(_: Aws, folder: Path) -> Given:
        command = shlex.join([sys.executable, "-c", text])
        return write_profiles(folder, {"profile own": {"credential_process": command}})

    return make


AWS: Mapping[str, Failure] = {
    "no credentials": Failure(_nobody, ("no credentials for s3://", "credential chain")),
    "wrong secret": Failure(_wrong_secret, ("SignatureDoesNotMatch", r"correct .*remote\.storage\.aws\.secret")),
    "expired token": Failure(_expired, ("ExpiredToken", "AWS_SESSION_TOKEN")),
    "STS refuses the role": Failure(
        _role_denied, (r"AWS STS refused AssumeRole for \S+:role/reader with AccessDenied", "check ")
    ),
    "STS refuses the token": Failure(
        _token_denied, (r"AWS STS .*WithWebIdentity for \S+:role/reader with InvalidIdentityToken", "check ")
    ),
    "STS is unreachable": Failure(_unreachable, (r"https://sts\.eu-west-1\.amazonaws\.com", "check ")),
    "no token file": Failure(_no_token_file, ("No such file", "token", "check ")),
    "metadata service responds with 400": Failure(_metadata(400), ("no credentials for s3://", "instance")),
    "metadata service is silent": Failure(_metadata(0), ("no credentials for s3://", "instance")),
    "`credential_process` fails": Failure(
        _program("raise SystemExit('hush')"), ("credential_process failed", "check ")
    ),
    "`credential_process` hangs": Failure(
        _program("import time; time.sleep(600)"), ("credential_process has not ended within", "check ")
    ),
}  # fmt: skip


def _entra(azure: Any, folder: Path) -> Given:
    given = origins.AZURE["service principal with a secret"](azure, folder)
    azure.applications["by-secret"] = "another-secret"
    return given


def _no_assertion(azure: Any, folder: Path) -> Given:
    given = origins.AZURE["federated token (AKS)"](azure, folder)
    (folder / "token").unlink()
    return given


def _no_role(azure: Any, folder: Path) -> Given:
    azure.without_role.add("of-machine")
    return origins.AZURE["managed identity of a machine"](azure, folder)


_MACHINE = "managed identity of a machine"
AZURE: Mapping[str, Failure] = {
    "identity without a role": Failure(_no_role, ("AuthorizationPermissionMismatch", "Storage Blob Data Reader")),
    "Entra refuses the secret": Failure(
        _entra, (r"by-secret.*login\.microsoftonline\.com responded with 401.*AADSTS7000215", "correct its")
    ),
    "no token file": Failure(_no_assertion, ("workload identity by-token.*No such file", "give the pod")),
    "metadata service responds with 400": Failure(
        _metadata(400, _MACHINE), (r"managed identity.*169\.254\.169\.254 responded with 400", "assign the identity")
    ),
    "metadata service is silent": Failure(
        _metadata(0, _MACHINE), (r"managed identity.*169\.254\.169\.254|169\.254\.169\.254.*managed identity", "assign")
    ),
}


def _no_caller(google: Any, folder: Path) -> Given:
    google.without_role.add("user@example.com")
    return origins.GOOGLE["`impersonated_service_account`"](google, folder)


def _no_subject(google: Any, folder: Path) -> Given:
    given = origins.GOOGLE["`external_account`"](google, folder)
    google.subjects.clear()
    return given


def _no_account(google: Any, folder: Path) -> Given:
    given = origins.GOOGLE["key file in the settings"](google, folder)
    google.accounts.clear()
    return given


_HOST = "service account of a machine"
GOOGLE: Mapping[str, Failure] = {
    "no metadata server": Failure(
        _metadata(404, _HOST), (r"service account of the machine.*responded with 404", "attach a service account")
    ),
    "metadata server is silent": Failure(_metadata(0, _HOST), ("service account of the machine", "attach a service")),
    "key of a deleted account": Failure(
        _no_account, (r"storage\.googleapis\.com responded with 401", r"credentials\.path")
    ),
    "impersonation is refused": Failure(
        _no_caller, ("impersonated_service_account in .*", r"iamcredentials\.googleapis\.com|google-auth", "grants")
    ),
    "token exchange is refused": Failure(_no_subject, ("external_account in .*invalid_grant", "check the file")),
}  # fmt: skip

ALL: Mapping[str, Mapping[str, Failure]] = {"AWS": AWS, "Azure": AZURE, "Google": GOOGLE}
