"""Credentials and endpoints that follow from the settings of Hadoop's file systems for Google's storage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.delta.requirements.made_hadoop import made_hadoop
from tiered_stream.delta.requirements.hadoop_settings import NoCredentialsError
from tiered_stream.delta.requirements.store_access import GsStore
from tiered_stream.delta.requirements.writer_requirements import GOOGLES_CONNECTOR, HADOOPS_CONNECTOR
from tiered_stream.delta.settings.ingest_settings import TableStorage, table_storage
from tiered_stream.errors import ConfigurationError

MACHINE = TableStorage(gcs_machine=True)
TYPE, KEY_FILE, ROOT = "fs.gs.auth.type", "fs.gs.auth.service.account.json.keyfile", "fs.gs.storage.root.url"


def session(given: Mapping[str, str], *, classes: tuple[str, ...] = (GOOGLES_CONNECTOR,)) -> GsStore:
    """The settings of the bucket `lake`; `classes` are the connectors on the class path."""
    return GsStore(made_hadoop(given, classes=classes), "gs://lake/t")


@pytest.fixture(autouse=True)
def no_credentials_in_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "nothing"))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, MACHINE),
        ({TYPE: "COMPUTE_ENGINE"}, MACHINE),
        ({TYPE: "APPLICATION_DEFAULT"}, TableStorage()),
        ({TYPE: "UNAUTHENTICATED"}, TableStorage(gcs_anonymous=True)),
        ({TYPE: "SERVICE_ACCOUNT_JSON_KEYFILE", KEY_FILE: "/k"}, TableStorage(gcs_credentials_path="/k")),
        (
            {
                "google.cloud.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
                "google.cloud.auth.service.account.json.keyfile": "/k",
            },
            TableStorage(gcs_credentials_path="/k"),
        ),
        ({TYPE: "UNAUTHENTICATED", "google.cloud.auth.type": "COMPUTE_ENGINE"}, TableStorage(gcs_anonymous=True)),
        ({ROOT: "http://fake:4443/"}, TableStorage(gcs_endpoint_url="http://fake:4443", gcs_machine=True)),
        ({ROOT: "https://storage.googleapis.com/"}, MACHINE),
    ],
)
def test_credentials_and_endpoint_are_those_of_the_session(given: Mapping[str, str], expected: TableStorage) -> None:
    assert session(given).find(TableStorage()) == (expected, None)


def test_hadoops_own_connector_ignores_the_endpoint_in_the_settings() -> None:
    given = {ROOT: "http://fake:4443/", "fs.gs.impl": HADOOPS_CONNECTOR}
    assert session(given, classes=(HADOOPS_CONNECTOR,)).endpoint_url() == "https://storage.googleapis.com"
    assert session({}, classes=(HADOOPS_CONNECTOR,)).connector == HADOOPS_CONNECTOR


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({TYPE: "USER_CREDENTIALS"}, "fs.gs.auth.type is USER_CREDENTIALS, which is known to Spark alone"),
        ({TYPE: "ACCESS_TOKEN_PROVIDER"}, "fs.gs.auth.type is ACCESS_TOKEN_PROVIDER"),
        ({KEY_FILE: "/k"}, f"{KEY_FILE} is set, but fs.gs.auth.type is not"),
        ({"fs.gs.auth.service.account.keyfile": "/p12"}, "fs.gs.auth.service.account.keyfile is set"),
        ({"fs.gs.auth.impersonation.service.account": "me"}, "fs.gs.auth.impersonation.service.account is set"),
        ({"google.cloud.auth.impersonation.service.account": "me"}, "fs.gs.auth.impersonation.service.account is set"),
        ({"fs.gs.encryption.key": "secret"}, "fs.gs.encryption.key is set"),
        ({"fs.gs.proxy.address": "proxy:3128"}, "fs.gs.proxy.address is set"),
        ({"fs.gs.requester.pays.mode": "AUTO"}, "fs.gs.requester.pays.mode is set"),
        ({"fs.gs.storage.http.headers.x-goog-acl": "private"}, "fs.gs.storage.http.headers.x-goog-acl is set"),
        ({"fs.gs.storage.service.path": "storage/v2/"}, "fs.gs.storage.service.path is set"),
        ({"fs.gs.impl": "my.FileSystem"}, "fs.gs.impl is set"),
        ({"fs.gs.object.retention": "1d"}, "fs.gs.object.retention is set, which is not known here"),
    ],
)
def test_settings_that_tasks_do_not_follow_are_a_reason(given: Mapping[str, str], reason: str) -> None:
    _, why_not = session(given, classes=(GOOGLES_CONNECTOR, "my.FileSystem")).find(TableStorage())
    assert why_not is not None and reason in why_not and "secret" not in why_not


def test_the_driver_keeps_the_sessions_endpoint_if_tasks_do_not_follow_another_setting() -> None:
    storage, why_not = session({ROOT: "http://fake:4443/", "fs.gs.proxy.address": "proxy:3128"}).find(TableStorage())
    assert why_not is not None and storage == TableStorage(gcs_endpoint_url="http://fake:4443")


def test_credentials_in_the_environment_are_a_reason_if_the_session_uses_the_machines_account(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text('{"type": "service_account"}')
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key"))
    why_not = session({}).find(TableStorage())[1]
    assert why_not is not None and "GOOGLE_APPLICATION_CREDENTIALS" in why_not
    assert session({TYPE: "APPLICATION_DEFAULT"}).find(TableStorage())[1] is None
    (tmp_path / "key").write_text('{"type": "external_account"}')
    why_not = session({TYPE: "APPLICATION_DEFAULT"}).find(TableStorage())[1]
    assert why_not is not None and "external_account" in why_not


def test_values_that_are_off_are_no_hindrance() -> None:
    given = {
        "fs.gs.requester.pays.mode": "DISABLED", "fs.gs.encryption.key": "", "fs.gs.block.size": "64m",
        "fs.gs.token.server.url": "https://oauth2.googleapis.com/token", "fs.gs.of.a.new.reader": "x",
        "fs.gs.auth.service.account.enable": "true", "fs.gs.impl": GOOGLES_CONNECTOR,
    }  # fmt: skip
    assert session(given).find(TableStorage()) == (MACHINE, None)


def test_a_missing_key_file_is_refused() -> None:
    with pytest.raises(NoCredentialsError, match=KEY_FILE):
        session({TYPE: "SERVICE_ACCOUNT_JSON_KEYFILE"}).find(TableStorage())


def test_the_jobs_own_settings_go_before_those_of_the_session() -> None:
    own = {"ingest.storage.gcs.credentials.json": "{}"}
    expected = TableStorage(gcs_credentials_json="{}")
    assert session({TYPE: "USER_CREDENTIALS"}).find(table_storage(own)) == (expected, None)
    endpoint = {"ingest.storage.gcs.endpoint.url": "http://fake:4443"}
    with pytest.raises(ConfigurationError, match=r"bucket lake .*https://storage\.googleapis\.com"):
        session({}).find(table_storage(endpoint))
    expected = TableStorage(gcs_endpoint_url="http://fake:4443")
    assert session({}, classes=()).find(table_storage(endpoint)) == (expected, None)
