from __future__ import annotations

import pytest

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.open_store import open_store

SECRET = "c2VjcmV0LXRoYXQtbm9ib2R5LW1heS1zZWU="


def options(uri: str = "az://container/p", **others: str) -> StorageOptions:
    return StorageOptions(uri=uri, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("uri", "others", "endpoint"),
    [
        ("az://container/p", {"azure_account_name": "mine"}, "https://mine.blob.core.windows.net"),
        ("abfss://container@mine.dfs.core.windows.net/p", {}, "https://mine.blob.core.windows.net"),
        ("wasbs://container@mine.blob.core.windows.net/p", {}, "https://mine.blob.core.windows.net"),
        ("az://container/p", {"azure_connection_string": "AccountName=mine;AccountKey=a2V5"}, "https://mine.blob"),
        *(
            ("az://container/p", {"azure_connection_string": f"{text};AccountKey=a2V5"}, endpoint)
            for text, endpoint in (
                ("AccountName=mine;EndpointSuffix=core.usgovcloudapi.net", "https://mine.blob.core.usgovcloudapi.net/"),
                ("AccountName=mine;EndpointSuffix=core.chinacloudapi.cn", "https://mine.blob.core.chinacloudapi.cn/"),
                ("DefaultEndpointsProtocol=http;AccountName=mine", "http://mine.blob.core.windows.net/"),
                (
                    "accountname=mine;blobendpoint=https://mine.blob.core.windows.net/",
                    "https://mine.blob.core.windows.",
                ),
                ("BlobEndpoint=https://mine.z1.blob.storage.azure.net", "https://mine.z1.blob.storage.azure.net/"),
                ("UseDevelopmentStorage=true", "http://127.0.0.1:10000/devstoreaccount1/"),
                (
                    "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://azurite",
                    "http://azurite:10000/devstoreaccount1/",
                ),
            )
        ),
        (
            "abfss://container@mine.dfs.core.chinacloudapi.cn/p",
            {"azure_connection_string": "DefaultEndpointsProtocol=https;AccountName=mine;AccountKey=a2V5"},
            "https://mine.blob.core.chinacloudapi.cn/",
        ),
    ],
)
def test_the_account_comes_from_the_uri_an_option_or_the_connection_string(
    uri: str, others: dict[str, str], endpoint: str
) -> None:
    store = open_store(options(uri, azure_account_key=SECRET, **others))
    assert store.describe("key") == "az://container/p/key"
    url = store.signed_url("key", 60)
    assert url is not None and url.startswith(f"{endpoint}") and "/container/p/key?" in url


def test_a_shared_access_signature_signs_no_url() -> None:
    store = open_store(options(azure_account_name="mine", azure_sas_token="sv=2022-11-02&sp=rl&sig=c2ln"))
    assert store.signed_url("key", 60) is None


def test_a_container_without_an_account_names_the_option() -> None:
    with pytest.raises(ConfigurationError, match=r"remote\.storage\.azure\.account\.name .*'container'"):
        open_store(options())


def test_a_malformed_connection_string_is_not_shown() -> None:
    with pytest.raises(ConfigurationError, match=r"azure\.connection\.string ") as caught:
        open_store(options(azure_connection_string=SECRET.strip("=")))
    assert SECRET.strip("=") not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("AccountName=other", "names the account mine"),
        ("BlobEndpoint=https://other.blob.core.windows.net", "names the account mine"),
        ("AccountName=mine;EndpointSuffix=core.chinacloudapi.cn", "names the service mine.blob.core.chinacloudapi.cn"),
        ("UseDevelopmentStorage=true", "devstoreaccount1"),
        ("AccountName=mine;BlobEndpoint=mine.blob.core.windows.net", "BlobEndpoint is no URL"),
        ("AccountName=mine;BlobEndpoint=https://mine.blob.core.windows.net/?sv=1", "BlobEndpoint is no URL"),
        ("AccountName=mine;DefaultEndpointsProtocol=ftp", "DefaultEndpointsProtocol is neither"),
    ],
)
def test_a_connection_string_that_contradicts_the_uri_or_itself_is_refused(text: str, why: str) -> None:
    uri = "abfss://container@mine.dfs.core.windows.net/p"
    with pytest.raises(ConfigurationError, match=rf"azure\.connection\.string.*{why}") as caught:
        open_store(options(uri, azure_connection_string=f"{text};AccountKey={SECRET}"))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "others",
    [{"azure_account_name": "other"}, {"azure_endpoint_url": "https://other.blob.core.windows.net"}],
)
def test_two_settings_that_name_different_accounts_are_refused(others: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="account other, but option remote.storage.uri names the account mine"):
        open_store(options("abfss://container@mine.dfs.core.windows.net/p", azure_account_key=SECRET, **others))


def test_a_key_for_encryption_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ENCRYPTION_KEY", SECRET)
    with pytest.raises(ConfigurationError, match="AZURE_STORAGE_ENCRYPTION_KEY") as caught:
        open_store(options(azure_account_name="mine", azure_account_key=SECRET))
    assert SECRET not in str(caught.value)
