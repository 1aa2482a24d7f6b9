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
from tiered_stream.errors import StorageError
from tiered_stream.locate.storage_failures import LEFT_TO_BROKERS
from tiered_stream.model import ByteRange
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.azure import AzureContainer
from tiered_stream.storage.object_store import ObjectStore
from tiered_stream.storage.open_store import open_store

CONTAINER = "lake"


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


@pytest.mark.parametrize("source", [secret, workload, managed])
def test_tokens_that_expire_are_renewed(
    azure_cloud: Azure, made: set[str], tmp_path: Path, source: Callable[[Azure, Path], Mapping[str, str]]
) -> None:
    azure_cloud.lifetime = 2
    store = opened(azure_cloud, made, source(azure_cloud, tmp_path))
    assert store.get("key", ByteRange(0, 1)) == b"d"
    ends = max(token.expires for token in azure_cloud.tokens.values())
    wait_until(lambda: time.time() > ends, "the end of the token")
    assert store.get("key", ByteRange(1, 3)) == b"at"


def test_an_account_that_does_not_exist_is_an_error_that_cannot_pass(azure_cloud: Azure) -> None:
    uri = "abfss://lake@nowhere.dfs.core.windows.net/tier"
    store = open_store(StorageOptions(uri=uri, request_timeout_ms=2000, azure_account_key=azure_cloud.key))
    with pytest.raises(StorageError, match="nowhere.blob.core.windows.net.* no such host") as refused:
        store.get("key", ByteRange(0, 1))
    assert not isinstance(refused.value, LEFT_TO_BROKERS)
    assert set(azure_cloud.lookups) == {"nowhere.blob.core.windows.net"}
