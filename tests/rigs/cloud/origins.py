"""Every origin of an identity in the three clouds: its settings, its environment, and the identity's name there.

The settings are fields of `StoreAccess`. Files are in `folder`.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.cloud.aws import ACCOUNT as AWS_ACCOUNT
from tests.rigs.cloud.aws import Aws
from tests.rigs.cloud.aws_hosts import partition_of
from tests.rigs.cloud.azure import APP_SERVICE, TENANT, Azure
from tests.rigs.cloud.front import METADATA, POD, TASK
from tests.rigs.cloud.google import Google
from tests.rigs.stack.azurite import ACCOUNT

_OF_CLOUDS = ("AWS_", "AZURE_", "GOOGLE_", "IDENTITY_")
_START_URL = "https://company.awsapps.com/start"


@dataclass(frozen=True)
class Given:
    """Settings and environment of a process that uses the identity."""

    settings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let this process have the identity's environment, and nothing else of clouds."""
        for variable in [each for each in os.environ if each.startswith(_OF_CLOUDS)]:
            monkeypatch.delenv(variable)
        for variable, value in self.environment.items():
            monkeypatch.setenv(variable, value)


Origin = Callable[[Any, Path], Given]


def _keys(aws: Aws, _: Path) -> Given:
    key = aws.user("reader", aws.home)
    return Given({"access_key_id": key.key_id, "secret_access_key": key.secret})


def role_arn(aws: Aws, name: str = "reader") -> str:
    return f"arn:{partition_of(aws.home)}:iam::{AWS_ACCOUNT}:role/{name}"


def _token_file(aws: Aws, folder: Path) -> str:
    aws.tokens["token-of-reader"] = "reader"
    (folder / "token").write_text("token-of-reader")
    return str(folder / "token")


def write_profiles(folder: Path, profiles: Mapping[str, Mapping[str, str]]) -> Given:
    """Write the profiles, and choose the profile `own`."""
    lines = (
        line
        for name, settings in profiles.items()
        for line in (f"[{name}]", *(f"{key} = {value}" for key, value in settings.items()))
    )
    (folder / "config").write_text("\n".join(lines))
    return Given(environment={"AWS_CONFIG_FILE": str(folder / "config"), "AWS_PROFILE": "own"})


def _environment(aws: Aws, _: Path) -> Given:
    return Given(environment=aws.user("reader", aws.home).environment())


def _profile(aws: Aws, folder: Path) -> Given:
    """A profile with keys of the user."""
    key = aws.user("reader", aws.home)
    return write_profiles(
        folder, {"profile own": {"aws_access_key_id": key.key_id, "aws_secret_access_key": key.secret}}
    )


def _assumed_role(aws: Aws, folder: Path) -> Given:
    """A profile whose role the user `caller` assumes."""
    caller = aws.user("caller", aws.home)
    keys = {"aws_access_key_id": caller.key_id, "aws_secret_access_key": caller.secret}
    role = {"role_arn": role_arn(aws), "source_profile": "caller", "region": aws.home}
    return write_profiles(folder, {"profile caller": keys, "profile own": role})


def _web_identity(aws: Aws, folder: Path) -> Given:
    """A service account of EKS."""
    region = {"AWS_REGION": aws.home, "AWS_DEFAULT_REGION": aws.home}
    token = _token_file(aws, folder)
    return Given(environment={"AWS_ROLE_ARN": role_arn(aws), "AWS_WEB_IDENTITY_TOKEN_FILE": token, **region})


def _ecs_task(aws: Aws, _: Path) -> Given:
    """A task of ECS."""
    aws.roles[TASK] = "reader"
    return Given(environment={"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/credentials/1"})


def _pod(aws: Aws, folder: Path) -> Given:
    """A pod of EKS with Pod Identity."""
    uri, token = f"http://{POD}/v1/credentials", _token_file(aws, folder)
    named = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": uri, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": token}
    return Given(environment=named)


def _ec2(aws: Aws, _: Path) -> Given:
    """An instance of EC2."""
    aws.roles[METADATA] = "reader"
    return Given()


def _single_sign_on(aws: Aws, folder: Path) -> Given:
    """A profile of IAM Identity Center, after `aws sso login`."""
    # In the home folder of the namespaces, because boto3 determines this folder when it is imported.
    cached = Path.home() / ".aws/sso/cache" / f"{sha1(_START_URL.encode()).hexdigest()}.json"
    cached.parent.mkdir(parents=True, exist_ok=True)
    token = Path(_token_file(aws, folder)).read_text()
    cached.write_text(json.dumps({"accessToken": token, "expiresAt": "2100-01-01T00:00:00Z", "startUrl": _START_URL}))
    profile = {
        "sso_start_url": _START_URL, "sso_region": aws.home, "sso_account_id": AWS_ACCOUNT, "sso_role_name": "reader",
    }  # fmt: skip
    return write_profiles(folder, {"profile own": profile})


def _program(aws: Aws, folder: Path) -> Given:
    """A profile with a program that prints credentials: here, of the task."""
    aws.roles[TASK] = "reader"
    script = folder / "credentials.py"
    script.write_text(
        "import json, urllib.request\n"
        f"with urllib.request.urlopen('http://{TASK}/v2/credentials/1') as response:\n"
        "    found = json.load(response)\n"
        "print(json.dumps({**found, 'Version': 1, 'SessionToken': found['Token']}))\n"
    )
    return write_profiles(folder, {"profile own": {"credential_process": shlex.join([sys.executable, str(script)])}})


CHAIN: Mapping[str, Origin] = {
    "environment": _environment,
    "profile with keys": _profile,
    "profile that assumes a role": _assumed_role,
    "profile with `credential_process`": _program,
    "profile of single sign-on": _single_sign_on,
    "web identity (IRSA)": _web_identity,
    "task of ECS": _ecs_task,
    "pod of EKS": _pod,
    "instance of EC2": _ec2,
}
"""Origins in AWS's chain: https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html."""
AWS: Mapping[str, Origin] = {"keys in the settings": _keys, **CHAIN}


def _key(azure: Azure, _: Path) -> Given:
    return Given({"azure_account_key": azure.key})


def _signature(azure: Azure, _: Path) -> Given:
    return Given({"azure_sas_token": azure.full_access()})


def _connection(azure: Azure, _: Path) -> Given:
    text = f"DefaultEndpointsProtocol=https;AccountName={ACCOUNT};AccountKey={azure.key};EndpointSuffix={azure.domain}"
    return Given({"azure_connection_string": text})


def _secret(azure: Azure, _: Path) -> Given:
    azure.applications["by-secret"] = "the-secret"
    named = {"CLIENT_ID": "by-secret", "TENANT_ID": TENANT, "CLIENT_SECRET": "the-secret"}
    return Given(environment={f"AZURE_{name}": value for name, value in named.items()})


def _workload(azure: Azure, folder: Path) -> Given:
    azure.applications["by-token"] = "the-secret"
    azure.assertions["token-of-reader"] = "by-token"
    (folder / "token").write_text("token-of-reader")
    named = {"CLIENT_ID": "by-token", "TENANT_ID": TENANT, "FEDERATED_TOKEN_FILE": str(folder / "token")}
    return Given(environment={f"AZURE_{name}": value for name, value in named.items()})


def _machine(azure: Azure, _: Path) -> Given:
    azure.managed.append("of-machine")
    return Given()


def _app(azure: Azure, _: Path) -> Given:
    azure.managed.append("of-app")
    azure.app_header = "header"
    return Given(environment={"IDENTITY_ENDPOINT": APP_SERVICE, "IDENTITY_HEADER": "header"})


AZURE: Mapping[str, Origin] = {
    "account key": _key,
    "shared access signature": _signature,
    "connection string": _connection,
    "service principal with a secret": _secret,
    "federated token (AKS)": _workload,
    "managed identity of a machine": _machine,
    "managed identity in App Service": _app,
}


def _written(folder: Path, name: str, document: Mapping[str, object]) -> str:
    (folder / name).write_text(json.dumps(document))
    return str(folder / name)


def _key_file(google: Google, folder: Path) -> Given:
    (folder / "key.json").write_text(google.service_account("by-key"))
    return Given({"gcs_credentials_path": str(folder / "key.json")})


def _default_file(google: Google, folder: Path) -> Given:
    path = _key_file(google, folder).settings["gcs_credentials_path"]
    return Given(environment={"GOOGLE_APPLICATION_CREDENTIALS": path})


def _user(google: Google) -> Mapping[str, object]:
    google.refresh_tokens["refresh"] = "user@example.com"
    return {"type": "authorized_user", "client_id": "id", "client_secret": "the-secret", "refresh_token": "refresh"}


def _user_file(google: Google, folder: Path) -> Given:
    return Given({"gcs_credentials_path": _written(folder, "user.json", _user(google))})


def _instance(google: Google, _: Path) -> Given:
    google.instance = "of-machine@project.iam.gserviceaccount.com"
    return Given()


def _external(google: Google, folder: Path) -> Given:
    google.subjects["token-of-reader"] = "principal://pool/subject/reader"
    (folder / "token").write_text("token-of-reader")
    document = {
        "type": "external_account", "audience": "//iam.googleapis.com/projects/1/locations/global/pool",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": "https://sts.googleapis.com/v1/token", "credential_source": {"file": str(folder / "token")},
    }  # fmt: skip
    return Given({"gcs_credentials_path": _written(folder, "federated.json", document)})


def _impersonated(google: Google, folder: Path) -> Given:
    email = "impersonated@project.iam.gserviceaccount.com"
    url = f"https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/{email}:generateAccessToken"
    document = {
        "type": "impersonated_service_account", "service_account_impersonation_url": url,
        "source_credentials": _user(google), "delegates": [],
    }  # fmt: skip
    return Given({"gcs_credentials_path": _written(folder, "impersonated.json", document)})


GOOGLE: Mapping[str, Origin] = {
    "key file in the settings": _key_file,
    "key file in the environment": _default_file,
    "user of `gcloud`": _user_file,
    "service account of a machine": _instance,
    "`external_account`": _external,
    "`impersonated_service_account`": _impersonated,
}
