"""Credentials and endpoints that follow from Hadoop's `fs.azure.*` settings, and from `ingest.storage.*`."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.delta.requirements.made_hadoop import made_hadoop
from tiered_stream.delta.requirements.hadoop_settings import NoCredentialsError
from tiered_stream.delta.requirements.store_access import AbfsStore
from tiered_stream.delta.settings.ingest_settings import TableStorage, table_storage
from tiered_stream.errors import ConfigurationError

HOST = "mine.dfs.core.windows.net"
URI = f"abfss://lake@{HOST}/bronze/orders"
KEY, TYPE = f"fs.azure.account.key.{HOST}", "fs.azure.account.auth.type"
OAUTH, PROVIDER = "fs.azure.account.oauth2", "fs.azure.account.oauth.provider.type"
OAUTH2 = "org.apache.hadoop.fs.azurebfs.oauth2"
CLIENT = {
    TYPE: "OAuth", PROVIDER: f"{OAUTH2}.ClientCredsTokenProvider", f"{OAUTH}.client.id": "app",
    f"{OAUTH}.client.secret": "hush", f"{OAUTH}.client.endpoint": "https://login.microsoftonline.com/me/oauth2/token",
}  # fmt: skip
SECRET = "c2VjcmV0"


def session(
    given: Mapping[str, str],
    uri: str = URI,
    *,
    files: Mapping[str, str] | None = None,
    has_connector: bool = True,
) -> AbfsStore:
    """The settings of the container in `uri`; `files` are Hadoop's credential files."""
    return AbfsStore(made_hadoop(given, files=files, classes=None if has_connector else ()), uri)


def found(given: Mapping[str, str], settings: Mapping[str, str] | None = None, uri: str = URI) -> TableStorage:
    storage, why_not = session(given, uri).find(table_storage(settings or {}))
    assert why_not is None
    return storage


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({KEY: SECRET}, TableStorage(azure_account_key=SECRET)),
        ({"fs.azure.account.key": SECRET}, TableStorage(azure_account_key=SECRET)),
        ({KEY: SECRET, "fs.azure.account.key": "other"}, TableStorage(azure_account_key=SECRET)),
        ({f"fs.azure.account.key.lake.{HOST}": SECRET, KEY: "other"}, TableStorage(azure_account_key=SECRET)),
        ({TYPE: "SAS", f"fs.azure.sas.fixed.token.{HOST}": "sig=x"}, TableStorage(azure_sas_token="sig=x")),
        ({TYPE: "SAS", f"fs.azure.sas.fixed.token.lake.{HOST}": "sig=x"}, TableStorage(azure_sas_token="sig=x")),
        ({TYPE: "OAuth", f"{TYPE}.{HOST}": "SharedKey", KEY: SECRET}, TableStorage(azure_account_key=SECRET)),
        (
            CLIENT,
            TableStorage(
                azure_authority_url="https://login.microsoftonline.com", azure_tenant_id="me", azure_client_id="app",
                azure_client_secret="hush",
            ),
        ),
        (
            {TYPE: "OAuth", PROVIDER: f"{OAUTH2}.MsiTokenProvider"},
            TableStorage(azure_managed_identity=True),
        ),
        (
            {TYPE: "OAuth", PROVIDER: f"{OAUTH2}.MsiTokenProvider", f"{OAUTH}.client.id": "app"},
            TableStorage(azure_managed_identity=True, azure_client_id="app"),
        ),
        (
            {
                TYPE: "OAuth", PROVIDER: f"{OAUTH2}.WorkloadIdentityTokenProvider", f"{OAUTH}.client.id": "app",
                f"{OAUTH}.msi.tenant": "me", f"{OAUTH}.token.file": "/token",
            },
            TableStorage(
                azure_authority_url="https://login.microsoftonline.com", azure_tenant_id="me", azure_client_id="app",
                azure_token_file="/token",
            ),
        ),
    ],
)  # fmt: skip
def test_credentials_are_those_of_the_session(given: Mapping[str, str], expected: TableStorage) -> None:
    assert found(given) == expected


def test_a_key_may_be_in_a_credential_file() -> None:
    assert session({}, files={KEY: SECRET}).credentials() == {"azure_account_key": SECRET}


@pytest.mark.parametrize(
    ("uri", "given", "url"),
    [
        (URI, {}, "https://mine.blob.core.windows.net"),
        (f"abfs://lake@{HOST}/t", {}, "https://mine.blob.core.windows.net"),
        (f"abfs://lake@{HOST}/t", {"fs.azure.always.use.https": "false"}, "http://mine.blob.core.windows.net"),
        ("abfss://lake@mine.dfs.core.chinacloudapi.cn/t", {}, "https://mine.blob.core.chinacloudapi.cn"),
        ("abfss://lake@mine.z12.dfs.storage.azure.net/t", {}, "https://mine.z12.blob.storage.azure.net"),
        ("wasb://lake@mine.blob.core.windows.net/t", {}, "http://mine.blob.core.windows.net"),
        ("wasbs://lake@mine.blob.core.windows.net/t", {}, "https://mine.blob.core.windows.net"),
        (URI, {"fs.azure.abfs.endpoint": "localhost:10000"}, "https://localhost:10000/mine"),
    ],
)
def test_the_endpoint_is_the_accounts_blob_service(uri: str, given: Mapping[str, str], url: str) -> None:
    assert session(given, uri).endpoint_url() == url


def test_wasb_takes_a_containers_signature_before_the_accounts_key() -> None:
    uri, host = "wasbs://lake@mine.blob.core.windows.net/t", "mine.blob.core.windows.net"
    key = {f"fs.azure.account.key.{host}": SECRET}
    assert found(key, uri=uri) == TableStorage(azure_account_key=SECRET)
    assert found({**key, f"fs.azure.sas.lake.{host}": "sig=x"}, uri=uri) == TableStorage(azure_sas_token="sig=x")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({TYPE: "Custom"}, "fs.azure.account.auth.type is Custom, which is known to Spark alone"),
        ({TYPE: "UserboundSASWithOAuth"}, "fs.azure.account.auth.type is UserboundSASWithOAuth"),
        ({TYPE: "OAuth"}, "fs.azure.account.oauth.provider.type is not set"),
        ({TYPE: "OAuth", PROVIDER: f"{OAUTH2}.UserPasswordTokenProvider"}, "UserPasswordTokenProvider, which is known"),
        ({**CLIENT, f"{OAUTH}.client.endpoint": "https://sts/token"}, "client.endpoint does not have the form"),
        ({KEY: SECRET, "fs.azure.account.keyprovider": "my.Provider"}, "fs.azure.account.keyprovider is set"),
        ({KEY: SECRET, "fs.azure.sas.token.provider.type": "my.Tokens"}, "fs.azure.sas.token.provider.type is set"),
        ({KEY: SECRET, f"fs.azure.encryption.encoded.client-provided-key.{HOST}": "k"}, "client-provided-key is set"),
        ({KEY: SECRET, "fs.azure.encryption.context.provider.type": "my.Contexts"}, "context.provider.type is set"),
        ({KEY: SECRET, "fs.azure.appendblob.directories": "/logs"}, "fs.azure.appendblob.directories is set"),
        ({KEY: SECRET, "fs.azure.enable.delegation.token": "true"}, "fs.azure.enable.delegation.token is set"),
        ({KEY: SECRET, f"{OAUTH}.msi.endpoint": "http://else/"}, "oauth2.msi.endpoint is set"),
        ({KEY: SECRET, "fs.azure.blob.index.tags": "a=b"}, "blob.index.tags is set, which is not known here"),
    ],
)
def test_settings_that_tasks_do_not_follow_are_a_reason(given: Mapping[str, str], reason: str) -> None:
    storage, why_not = session(given).find(TableStorage())
    assert why_not is not None and reason in why_not and SECRET not in why_not and "hush" not in why_not
    assert storage.azure_client_secret is None


def test_the_driver_keeps_the_sessions_endpoint_if_tasks_do_not_follow_another_setting() -> None:
    given = {"fs.azure.abfs.endpoint": "localhost:10000", KEY: SECRET, "fs.azure.appendblob.directories": "/logs"}
    storage, why_not = session(given).find(TableStorage())
    assert why_not is not None and storage == TableStorage(azure_endpoint_url="https://localhost:10000/mine")


@pytest.mark.parametrize("own", [{}, {"ingest.storage.azure.sas.token": "sig=x"}])
def test_a_key_in_the_environment_is_a_reason_unless_a_key_is_given(
    monkeypatch: pytest.MonkeyPatch, own: Mapping[str, str]
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", SECRET)
    given = {TYPE: "OAuth", PROVIDER: f"{OAUTH2}.MsiTokenProvider"}
    _, why_not = session(given).find(table_storage(own))
    assert why_not is not None and "AZURE_STORAGE_ACCOUNT_KEY" in why_not and SECRET not in why_not
    assert session({KEY: SECRET}).find(TableStorage())[1] is None


def test_an_identity_of_the_pod_is_no_reason_if_credentials_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FEDERATED_TOKEN_FILE", "CLIENT_ID", "TENANT_ID", "AUTHORITY_HOST"):
        monkeypatch.setenv(f"AZURE_{name}", "pod")
    assert found(CLIENT).azure_client_id == "app"
    assert found({TYPE: "SAS", "fs.azure.sas.fixed.token": "sig=x"}).azure_sas_token == "sig=x"


def test_settings_of_other_accounts_and_values_that_are_off_are_no_hindrance() -> None:
    other = "other.dfs.core.windows.net"
    given = {
        KEY: SECRET, f"fs.azure.account.key.{other}": "k",
        f"fs.azure.encryption.encoded.client-provided-key.{other}": "k",
        "fs.azure.appendblob.directories": "", "fs.azure.enable.delegation.token": "False",
        "fs.azure.account.keyprovider": "org.apache.hadoop.fs.azurebfs.services.SimpleKeyProvider",
        "fs.azure.write.request.size": "4194304", "fs.azure.of.a.new.reader": "x",
    }  # fmt: skip
    assert found(given) == TableStorage(azure_account_key=SECRET)


def test_a_session_without_credentials_is_refused_with_the_names_of_the_settings() -> None:
    with pytest.raises(NoCredentialsError, match=rf"{KEY} .*fs\.azure\.account\.key"):
        session({}).find(TableStorage())


@pytest.mark.parametrize(
    "own",
    [
        {"ingest.storage.azure.account.key": "own"},
        {"ingest.storage.azure.sas.token": "own"},
        {"ingest.storage.azure.connection.string": "AccountName=mine;AccountKey=own"},
    ],
)
def test_the_jobs_own_credentials_go_before_those_of_the_session(own: Mapping[str, str]) -> None:
    storage = found({KEY: SECRET}, own)
    assert "own" in str((storage.azure_account_key, storage.azure_sas_token, storage.azure_connection_string))
    assert storage.azure_account_key != SECRET


def test_without_a_connector_the_jobs_own_settings_count_alone() -> None:
    own = {"ingest.storage.azure.account.name": "mine", "ingest.storage.azure.account.key": "own"}
    expected = TableStorage(azure_account_name="mine", azure_account_key="own")
    assert session({KEY: SECRET}, "az://lake/t").find(table_storage(own)) == (expected, None)
    lonely = session({KEY: SECRET}, has_connector=False)
    assert lonely.find(TableStorage()) == (TableStorage(), None)


def test_a_container_without_an_account_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"^ingest\.storage\.azure\.account\.name "):
        session({}, "az://lake/t").find(TableStorage())


def test_another_service_than_the_sessions_is_refused_and_two_names_of_this_machine_are_one() -> None:
    emulator = "http://127.0.0.1:10000/mine"
    own = {"ingest.storage.azure.endpoint.url": emulator, "ingest.storage.azure.account.key": "own"}
    with pytest.raises(ConfigurationError, match=r"container lake .*https://mine\.blob"):
        found({KEY: SECRET}, own)
    uri, given = "abfs://lake@mine.blob.localhost/t", {
        "fs.azure.abfs.endpoint": "mine.blob.localhost:10000", "fs.azure.always.use.https": "false",
    }  # fmt: skip
    assert found(given, own, uri).azure_endpoint_url == emulator


@pytest.mark.parametrize(
    "connection",
    [
        "AccountName=mine;AccountKey=own;EndpointSuffix=core.chinacloudapi.cn",
        "AccountName=other;AccountKey=own",
        "AccountKey=own;BlobEndpoint=https://other.blob.core.windows.net",
        "AccountKey=own;BlobEndpoint=https://data.example.com",
        "UseDevelopmentStorage=true",
    ],
)
def test_a_connection_string_of_another_account_than_the_sessions_is_refused(connection: str) -> None:
    own = {"ingest.storage.azure.connection.string": connection}
    with pytest.raises(ConfigurationError, match=r"ingest\.storage\.azure\.connection\.string"):
        found({KEY: SECRET}, own)


def test_another_account_at_the_sessions_emulator_is_refused() -> None:
    uri, given = "abfs://lake@mine.blob.localhost/t", {
        "fs.azure.abfs.endpoint": "mine.blob.localhost:10000", "fs.azure.always.use.https": "false", KEY: SECRET,
    }  # fmt: skip
    own = {
        "ingest.storage.azure.endpoint.url": "http://127.0.0.1:10000/other",
        "ingest.storage.azure.account.key": "own",
    }
    with pytest.raises(ConfigurationError, match=r"azure\.endpoint\.url is http://127\.0\.0\.1:10000/other"):
        found(given, own, uri)


def test_a_connection_string_of_the_sessions_account_keeps_its_own_credentials() -> None:
    text = "DefaultEndpointsProtocol=https;AccountName=mine;AccountKey=own;EndpointSuffix=core.windows.net"
    assert found({KEY: SECRET}, {"ingest.storage.azure.connection.string": text}).azure_account_key is None


def test_a_connection_string_without_credentials_leaves_them_to_the_session() -> None:
    assert (
        found({KEY: SECRET}, {"ingest.storage.azure.connection.string": "AccountName=mine"}).azure_account_key == SECRET
    )


def test_no_secret_is_in_the_repr() -> None:
    storages = found({KEY: SECRET}), found(CLIENT), found({TYPE: "SAS", "fs.azure.sas.fixed.token": SECRET})
    assert SECRET not in repr(storages) and "hush" not in repr(storages)
