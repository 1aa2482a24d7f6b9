"""Every origin of an identity in the three clouds: its settings, its environment, and the identity's name there.

The settings are fields of `StoreAccess`. Files are in `folder`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.rigs.cloud import aws_sources
from tests.rigs.cloud.aws import Aws
from tests.rigs.cloud.azure import APP_SERVICE, TENANT, Azure
from tests.rigs.cloud.google import Google
from tests.rigs.stack.azurite import ACCOUNT


@dataclass(frozen=True)
class Given:
    """Settings and environment of a process that uses the identity."""

    settings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


Origin = Callable[[Any, Path], Given]


def _keys(aws: Aws, _: Path) -> Given:
    key = aws.user("reader", aws.home)
    return Given({"access_key_id": key.key_id, "secret_access_key": key.secret})


def _of_chain(source: str) -> Origin:
    return lambda aws, folder: Given(environment=aws_sources.SOURCES[source](aws, folder))


AWS: Mapping[str, Origin] = {
    "keys in the settings": _keys,
    "environment": _of_chain("environment"),
    "profile with keys": _of_chain("profile"),
    "profile that assumes a role": _of_chain("assumed role"),
    "profile with `credential_process`": _of_chain("process"),
    "profile of single sign-on": _of_chain("single sign-on"),
    "web identity (IRSA)": _of_chain("web identity"),
    "task of ECS": _of_chain("task"),
    "pod of EKS": _of_chain("pod"),
    "instance of EC2": _of_chain("instance"),
}


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
