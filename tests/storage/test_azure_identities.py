"""Objects in Azure are read at Azure's own hosts, by the identity that the settings or Azure's chain give."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import obstore
import pytest

from tests.rigs.cloud.azure import TENANT, Azure
from tests.rigs.stack.azurite import ACCOUNT
from tests.rigs.stack.processes import wait_until
from tiered_stream.errors import StorageAccessError, StorageUnavailableError
from tiered_stream.model import ByteRange
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.azure import AzureContainer
from tiered_stream.storage.object_store import ObjectStore
from tiered_stream.storage.open_store import open_store

CONTAINER = "lake"


def key(azure: Azure, _: Path) -> Mapping[str, str]:
    return {"azure_account_key": azure.key}


def signature(azure: Azure, _: Path) -> Mapping[str, str]:
    return {"azure_sas_token": azure.read_token(CONTAINER)}


def secret(azure: Azure, _: Path) -> Mapping[str, str]:
    azure.applications["reader"] = "the-secret"
    return {"azure_client_id": "reader", "azure_tenant_id": TENANT, "azure_client_secret": "the-secret"}


def workload(azure: Azure, folder: Path) -> Mapping[str, str]:
    azure.applications["reader"] = "the-secret"
    azure.assertions["token-of-reader"] = "reader"
    (folder / "token").write_text("token-of-reader")
    return {
        "azure_client_id": "reader", "azure_tenant_id": TENANT, "azure_token_file": str(folder / "token"),
    }  # fmt: skip


def managed(azure: Azure, _: Path) -> Mapping[str, str]:
    azure.managed.append("reader")
    return {}


def chosen(azure: Azure, _: Path) -> Mapping[str, str]:
    azure.managed += ["other", "reader"]
    return {"azure_client_id": "reader"}


SOURCES: Mapping[str, tuple[Callable[[Azure, Path], Mapping[str, str]], str]] = {
    "key": (key, "account key"),
    "signature": (signature, "shared access signature"),
    "secret": (secret, "reader"),
    "workload": (workload, "reader"),
    "managed": (managed, "reader"),
    "chosen": (chosen, "reader"),
}


@pytest.fixture(scope="module")
def made() -> set[str]:
    return set()


def opened(azure: Azure, made: set[str], settings: Mapping[str, str]) -> ObjectStore:
    if not made:
        azure.create_container(CONTAINER)
        made.add(CONTAINER)
    by_key = StorageOptions(uri=f"abfss://{CONTAINER}@{azure.host}", azure_account_key=azure.key)
    obstore.put(AzureContainer(by_key).connect(60), "tier/key", b"data")
    azure.requests.clear()
    uri = f"abfss://{CONTAINER}@{ACCOUNT}.dfs.{azure.domain}/tier"
    return open_store(StorageOptions(uri=uri, **settings))


@pytest.mark.parametrize("source", SOURCES)
def test_an_object_is_read_by_the_identity_of_the_settings(
    azure_cloud: Azure, made: set[str], tmp_path: Path, source: str
) -> None:
    settings, identity = SOURCES[source]
    store = opened(azure_cloud, made, settings(azure_cloud, tmp_path))
    assert store.get("key", ByteRange(1, 3)) == b"at"
    assert list(store.list("")) == ["key"]
    reads = [each for each in azure_cloud.requests if each.host == azure_cloud.host]
    assert {(each.identity, each.status) for each in reads} <= {(identity, 200), (identity, 206)}
    assert reads


@pytest.mark.parametrize(
    ("domain", "authority"),
    [
        ("core.usgovcloudapi.net", "https://login.microsoftonline.us"),
        ("core.chinacloudapi.cn", "https://login.chinacloudapi.cn"),
    ],
)
def test_an_account_in_a_national_cloud_is_read_by_its_own_authority(
    azure_cloud: Azure, made: set[str], tmp_path: Path, domain: str, authority: str
) -> None:
    azure_cloud.domain = domain
    settings = {**secret(azure_cloud, tmp_path), "azure_authority_url": authority}
    assert opened(azure_cloud, made, settings).get("key", ByteRange(1, 3)) == b"at"
    hosts = {f"{ACCOUNT}.blob.{domain}", authority.removeprefix("https://")}
    assert {each.host for each in azure_cloud.requests} == hosts
    assert set(azure_cloud.lookups) == hosts


def test_a_service_account_of_aks_is_found_in_the_environment(
    azure_cloud: Azure, made: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variables are as the webhook of workload identity sets them."""
    workload(azure_cloud, tmp_path)
    variables = {
        "AUTHORITY_HOST": f"https://{azure_cloud.authority}/", "CLIENT_ID": "reader", "TENANT_ID": TENANT,
        "FEDERATED_TOKEN_FILE": str(tmp_path / "token"),
    }  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(f"AZURE_{name}", value)
    assert opened(azure_cloud, made, {}).get("key", ByteRange(1, 3)) == b"at"
    assert {each.identity for each in azure_cloud.requests} == {"reader"}


@pytest.mark.parametrize("source", ["secret", "workload", "managed"])
def test_tokens_that_expire_are_renewed(azure_cloud: Azure, made: set[str], tmp_path: Path, source: str) -> None:
    azure_cloud.lifetime = 2
    settings, _ = SOURCES[source]
    store = opened(azure_cloud, made, settings(azure_cloud, tmp_path))
    assert store.get("key", ByteRange(0, 1)) == b"d"
    ends = max(token.expires for token in azure_cloud.tokens.values())
    wait_until(lambda: time.time() > ends, "the end of the token")
    assert store.get("key", ByteRange(1, 3)) == b"at"


def wrong_secret(azure: Azure) -> None:
    azure.applications["reader"] = "another-secret"


def unknown_application(azure: Azure) -> None:
    azure.applications.clear()


def no_role(azure: Azure) -> None:
    azure.without_role.add("reader")


def no_identity(azure: Azure) -> None:
    azure.managed.clear()


def no_keys(azure: Azure) -> None:
    azure.allows_keys = False


def no_metadata(azure: Azure) -> None:
    azure.metadata_status = 403


def updated_metadata(azure: Azure) -> None:
    """Respond as the metadata service does while it is updated, for up to 70 seconds, by its documentation."""
    azure.metadata_status = 404


@pytest.mark.parametrize(
    ("source", "refuse"),
    [
        ("secret", wrong_secret),
        ("secret", unknown_application),
        ("secret", no_role),
        ("managed", no_identity),
        ("managed", no_metadata),
        ("managed", updated_metadata),
        ("managed", no_role),
        ("key", no_keys),
    ],
)
def test_an_identity_that_is_refused_is_an_error_of_access(
    azure_cloud: Azure, made: set[str], tmp_path: Path, source: str, refuse: Callable[[Azure], None]
) -> None:
    settings, _ = SOURCES[source]
    store = opened(azure_cloud, made, settings(azure_cloud, tmp_path))
    refuse(azure_cloud)
    with pytest.raises(StorageAccessError) as raised:
        store.get("key", ByteRange(0, 1))
    assert "az://lake" in str(raised.value)
    assert "the-secret" not in str(raised.value)


def test_an_account_that_does_not_exist_is_not_reached(azure_cloud: Azure, tmp_path: Path) -> None:
    uri = "abfss://lake@nowhere.dfs.core.windows.net/tier"
    store = open_store(StorageOptions(uri=uri, request_timeout_ms=2000, **key(azure_cloud, tmp_path)))
    with pytest.raises(StorageUnavailableError, match="nowhere.blob.core.windows.net"):
        store.get("key", ByteRange(0, 1))
    assert set(azure_cloud.lookups) == {"nowhere.blob.core.windows.net"}
