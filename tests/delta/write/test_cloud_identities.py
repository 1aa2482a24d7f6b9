"""Who signs the requests of obstore and of deltalake: the given identity, whatever the environment has."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.rigs.stack.azurite import KEY
from tests.storage.identity.services import CloudServices
from tiered_stream.delta.commit.deltalake_commit import open_table
from tiered_stream.delta.settings.ingest_settings import TableSpec, TableStorage
from tiered_stream.errors import ConfigurationError, StorageError
from tiered_stream.storage.cloud_endpoints import TABLES
from tiered_stream.storage.identity import azure_identity
from tiered_stream.storage.open_store import open_store

URI = "az://lake/orders"
FABRIC = dict.fromkeys(azure_identity._FABRIC_VARIABLES, "fabric")


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[CloudServices]:
    for name in list(os.environ):
        if name.startswith(("AZURE_", "GOOGLE_", "GCE_")) or name in (
            "SERVICE_ACCOUNT",
            "IDENTITY_ENDPOINT",
            "CLOUDSDK_CONFIG",
        ):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    with CloudServices() as services:
        monkeypatch.setattr(azure_identity, "_MACHINE", f"{services.url}/imds/token")
        yield services


@dataclass(frozen=True)
class Way:
    """Settings that name an identity, and the name by which the services know it."""

    settings: Mapping[str, Any]
    identity: str


def ways(cloud: CloudServices, folder: Path) -> dict[str, Way]:
    own = {"azure_authority_url": cloud.url, "azure_tenant_id": "tenant", "azure_client_id": "app"}
    (folder / "own-token").write_text("assertion")
    connection = f"AccountName=mine;SharedAccessSignature=sv=1&sig=theirs;BlobEndpoint={cloud.url}/mine"
    return {
        "key": Way({"azure_account_key": KEY}, "SharedKey mine"),
        "SAS": Way({"azure_sas_token": "?sv=1&sig=mine"}, "SAS mine"),
        "connection string": Way({"azure_connection_string": connection, "azure_endpoint_url": None}, "SAS theirs"),
        "secret": Way({**own, "azure_client_secret": "hush"}, "Bearer hush-app"),
        "workload": Way({**own, "azure_token_file": str(folder / "own-token")}, "Bearer assertion-app"),
        "machine": Way({"azure_managed_identity": True}, "Bearer machine-imds"),
        "named machine": Way({"azure_managed_identity": True, "azure_client_id": "app"}, "Bearer machine-imds-app"),
    }


def environments(elsewhere: str, folder: Path) -> dict[str, dict[str, str]]:
    (folder / "pod-token").write_text("pod")
    pod = {
        "AZURE_FEDERATED_TOKEN_FILE": str(folder / "pod-token"), "AZURE_CLIENT_ID": "env", "AZURE_TENANT_ID": "env",
        "AZURE_AUTHORITY_HOST": f"{elsewhere}/",
    }  # fmt: skip
    key = {"AZURE_STORAGE_ACCOUNT_KEY": "a2V5"}
    libraries = {
        "AZURE_STORAGE_USE_EMULATOR": "true", "AZURE_SKIP_SIGNATURE": "true", "AZURE_STORAGE_TOKEN": "env",
        "AZURE_STORAGE_ENDPOINT": f"{elsewhere}/env", "AZURE_PROXY_URL": elsewhere, "AZURE_CONTAINER_NAME": "env",
        "AZURE_STORAGE_ACCOUNT_NAME": "env", "AZURE_USE_FABRIC_ENDPOINT": "true",
    }  # fmt: skip
    machine = {
        "IDENTITY_ENDPOINT": f"{elsewhere}/token", "AZURE_OBJECT_ID": "env", "AZURE_MSI_RESOURCE_ID": "env",
        "IDENTITY_HEADER": "env",
    }  # fmt: skip
    others = {
        "SAS": {"AZURE_STORAGE_SAS_TOKEN": "sv=1&sig=env"}, "command": {"AZURE_USE_AZURE_CLI": "true"},
        "secret": {**pod, "AZURE_CLIENT_SECRET": "env"}, "libraries": libraries, "machine": machine,
        "master key": {"AZURE_STORAGE_MASTER_KEY": "a2V5"}, "empty key": {"AZURE_STORAGE_ACCOUNT_KEY": ""},
        "Fabric": FABRIC,
    }  # fmt: skip
    return {"nothing": {}, "pod": pod, "key": key, "pod and key": pod | key, **others, "all": pod | libraries | machine}


GIVEN = ("key", "SAS", "connection string", "secret", "workload", "machine", "named machine")
IN_ENVIRONMENT = (
    "nothing", "pod", "key", "pod and key", "SAS", "command", "secret", "libraries", "machine", "master key", "Fabric",
    "empty key", "all",
)  # fmt: skip
REFUSED_BY_DELTALAKE = {
    **{(given, "Fabric"): "AZURE_FABRIC_TOKEN_SERVICE_URL" for given in GIVEN},
    **{
        (given, env): f"AZURE_STORAGE_{'MASTER' if env == 'master key' else 'ACCOUNT'}_KEY"
        for given in GIVEN if given != "key" for env in ("key", "pod and key", "master key", "empty key")
    },
}  # fmt: skip
"""Variables that no setting of deltalake overrides, by given identity and environment."""


def sent_by_obstore(uri: str, storage: TableStorage) -> None:
    with suppress(StorageError):
        open_store(storage.at(uri), TABLES).size("key")


def sent_by_deltalake(uri: str, storage: TableStorage) -> None:
    assert open_table(TableSpec(uri, storage)) is None


@pytest.mark.parametrize("environment", IN_ENVIRONMENT)
@pytest.mark.parametrize("given", GIVEN)
def test_obstore_and_deltalake_use_the_given_identity_of_azures(
    cloud: CloudServices, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str, environment: str
) -> None:
    way = ways(cloud, tmp_path)[given]
    place = TableStorage(azure_account_name="mine", azure_endpoint_url=f"{cloud.url}/mine")
    storage = replace(place, **way.settings)
    with CloudServices() as elsewhere:
        for name, value in environments(elsewhere.url, tmp_path)[environment].items():
            monkeypatch.setenv(name, value)
        sent_by_obstore(URI, storage)
        assert set(cloud.seen) == {way.identity}
        cloud.seen.clear()
        if (variable := REFUSED_BY_DELTALAKE.get((given, environment))) is not None:
            with pytest.raises(ConfigurationError, match=f"variable {variable} "):
                sent_by_deltalake(URI, storage)
            assert cloud.seen == []
        else:
            sent_by_deltalake(URI, storage)
            assert set(cloud.seen) == {way.identity}
        assert elsewhere.seen == elsewhere.asked == []


def chain(cloud: CloudServices, folder: Path) -> dict[str, tuple[dict[str, str], str]]:
    """Environments of Azure's own chain, and the identity that each one names."""
    (folder / "pod-token").write_text("pod")
    client = {"AZURE_CLIENT_ID": "env", "AZURE_TENANT_ID": "env", "AZURE_AUTHORITY_HOST": f"{cloud.url}/"}
    pod = {**client, "AZURE_FEDERATED_TOKEN_FILE": str(folder / "pod-token")}
    secret, key = {**client, "AZURE_CLIENT_SECRET": "hush"}, {"AZURE_STORAGE_ACCOUNT_KEY": KEY}
    signature = {"AZURE_STORAGE_SAS_TOKEN": "sv=1&sig=env"}
    return {
        "key": (key, "SharedKey mine"),
        "token": ({"AZURE_STORAGE_TOKEN": "env"}, "Bearer env"),
        "token and key": ({"AZURE_STORAGE_TOKEN": "env", **key}, "Bearer env"),
        "SAS": (signature, "SAS env"),
        "pod": (pod, "Bearer pod-env"),
        "pod and SAS": (pod | signature, "Bearer pod-env"),
        "pod and secret": (pod | secret, "Bearer pod-env"),
        "pod and key": (pod | key, "SharedKey mine"),
        "secret": (secret, "Bearer hush-env"),
        "secret and SAS": (secret | signature, "Bearer hush-env"),
        "client without secret": (client, "Bearer machine-imds-env"),
        "nothing": ({}, "Bearer machine-imds"),
        "App Service": ({"IDENTITY_ENDPOINT": f"{cloud.url}/app/token"}, "Bearer machine-app"),
        "object": ({"AZURE_OBJECT_ID": "object"}, "Bearer machine-imds-object"),
        "resource": ({"AZURE_MSI_RESOURCE_ID": "resource", **client}, "Bearer machine-imds-resource"),
    }


@pytest.mark.parametrize(
    "environment",
    [
        "key", "token", "token and key", "SAS", "pod", "pod and SAS", "pod and secret", "pod and key", "secret",
        "secret and SAS", "client without secret", "nothing", "App Service", "object", "resource",
    ],
)  # fmt: skip
def test_without_credentials_both_libraries_use_the_same_identity_of_the_environment(
    cloud: CloudServices, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, environment: str
) -> None:
    variables, identity = chain(cloud, tmp_path)[environment]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    storage = TableStorage(azure_account_name="mine", azure_endpoint_url=f"{cloud.url}/mine")
    for send in (sent_by_obstore, sent_by_deltalake):
        cloud.seen.clear()
        send(URI, storage)
        assert set(cloud.seen) == {identity}


@cache
def private_key() -> str:
    """One for all accounts, because it takes long to make."""
    key = rsa.generate_private_key(65537, 2048)
    encryption = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption).decode()


def service_account(folder: Path, name: str) -> str:
    """The path of a service account's key file."""
    document = {"type": "service_account", "private_key": private_key(), "private_key_id": "1", "client_email": name}
    return written(folder / name, document)


def federated(folder: Path, cloud: CloudServices) -> str:
    """The path of credentials that exchange the token of another cloud or cluster."""
    (folder / "cluster-token").write_text("cluster")
    return written(
        folder / "federated",
        {
            "type": "external_account", "audience": "//iam.googleapis.com/pool",
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": f"{cloud.url}/sts/token",
            "credential_source": {"file": str(folder / "cluster-token")},
        },
    )  # fmt: skip


def written(path: Path, document: Mapping[str, object]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return str(path)


def google_ways(cloud: CloudServices, folder: Path) -> dict[str, Way]:
    mine = service_account(folder, "mine")
    return {
        "key file": Way({"gcs_credentials_path": mine}, "mine"),
        "key": Way({"gcs_credentials_json": Path(mine).read_text()}, "mine"),
        "federated": Way({"gcs_credentials_path": federated(folder, cloud)}, "Bearer cluster"),
        "machine": Way(
            {"gcs_machine": True}, "Bearer machine-computeMetadata-v1-instance-service-accounts-default"
        ),
        "nobody": Way({"gcs_anonymous": True}, "nobody"),
    }  # fmt: skip


def google_environments(elsewhere: str, folder: Path) -> dict[str, dict[str, str]]:
    other = service_account(folder, "env")
    return {
        "nothing": {}, "credentials": {"GOOGLE_APPLICATION_CREDENTIALS": other},
        "path": {"GOOGLE_SERVICE_ACCOUNT": other}, "long path": {"GOOGLE_SERVICE_ACCOUNT_PATH": other},
        "account": {"SERVICE_ACCOUNT": ""},
        "text": {"GOOGLE_SERVICE_ACCOUNT_KEY": Path(other).read_text()}, "token": {"GOOGLE_BEARER_TOKEN": "env"},
        "libraries": {
            "GOOGLE_BASE_URL": elsewhere, "GOOGLE_BUCKET": "env", "GOOGLE_SKIP_SIGNATURE": "true",
            "GOOGLE_PROXY_URL": elsewhere, "CLOUDSDK_CONFIG": str(folder / "nothing"),
        },
        "home": {"HOME": str(folder / "home")},
    }  # fmt: skip


@pytest.mark.parametrize("way", ["credentials", "home", "nothing"])
def test_without_credentials_both_libraries_use_googles_default(
    cloud: CloudServices, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", cloud.host)
    service_account(tmp_path / "home" / ".config" / "gcloud", "application_default_credentials.json")
    for name, value in google_environments("", tmp_path)[way].items():
        monkeypatch.setenv(name, value)
    machine = "Bearer machine-computeMetadata-v1-instance-service-accounts-default"
    names = {"credentials": "env", "home": "application_default_credentials.json", "nothing": machine}
    for send in (sent_by_obstore, sent_by_deltalake):
        cloud.seen.clear()
        send("gs://lake/orders", TableStorage(gcs_endpoint_url=cloud.url))
        assert set(cloud.seen) == {names[way]}


_PATH, _TEXT, _TOKEN = "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY", "GOOGLE_BEARER_TOKEN"
_LONG_PATH = "GOOGLE_SERVICE_ACCOUNT_PATH"
GOOGLE_ENVIRONMENTS = ("nothing", "credentials", "path", "long path", "account", "text", "token", "libraries", "home")
REFUSED_BY_OBSTORE = {
    "key file": {"text": _TEXT, "token": _TOKEN},
    "key": {"path": _PATH, "long path": _LONG_PATH, "account": "SERVICE_ACCOUNT", "token": _TOKEN},
    "federated": {"path": _PATH, "long path": _LONG_PATH, "account": "SERVICE_ACCOUNT", "text": _TEXT},
    "machine": {"path": _PATH, "long path": _LONG_PATH, "account": "SERVICE_ACCOUNT", "text": _TEXT},
    "nobody": {"path": _PATH, "long path": _LONG_PATH, "account": "SERVICE_ACCOUNT"},
}
REFUSED_BY_DELTALAKE_TOO = {
    "key file": {}, "key": {"path": _PATH, "long path": _LONG_PATH}, "nobody": {"path": _PATH, "long path": _LONG_PATH},
    "federated": dict.fromkeys(GOOGLE_ENVIRONMENTS, "external_account"),
    "machine": {
        "path": _PATH, "long path": _LONG_PATH, "text": _TEXT, "credentials": "GOOGLE_APPLICATION_CREDENTIALS",
        "home": "application_default_credentials.json",
    },
}  # fmt: skip
"""Variables and files that no setting of each library overrides, by given identity and environment."""


@pytest.mark.parametrize("environment", GOOGLE_ENVIRONMENTS)
@pytest.mark.parametrize("given", ["key file", "key", "federated", "machine", "nobody"])
def test_obstore_and_deltalake_use_the_given_identity_of_googles(
    cloud: CloudServices, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str, environment: str
) -> None:
    way = google_ways(cloud, tmp_path)[given]
    storage = replace(TableStorage(gcs_endpoint_url=cloud.url), **way.settings)
    monkeypatch.setenv("GCE_METADATA_HOST", cloud.host)
    service_account(tmp_path / "home" / ".config" / "gcloud", "application_default_credentials.json")
    with CloudServices() as elsewhere:
        for name, value in google_environments(elsewhere.url, tmp_path)[environment].items():
            monkeypatch.setenv(name, value)
        for send, refused in ((sent_by_obstore, REFUSED_BY_OBSTORE), (sent_by_deltalake, REFUSED_BY_DELTALAKE_TOO)):
            cloud.seen.clear()
            if (name := refused[given].get(environment, "")) == "":
                send("gs://lake/orders", storage)
                assert set(cloud.seen) == {way.identity}
            else:
                with pytest.raises(ConfigurationError, match=rf"\b{name} "):
                    send("gs://lake/orders", storage)
                assert cloud.seen == []
        assert elsewhere.seen == elsewhere.asked == []
