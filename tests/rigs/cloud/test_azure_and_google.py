"""Azure and Google at their own host names refuse what they refuse, by bare requests."""

from __future__ import annotations

import json
from urllib.parse import urlencode

import certifi
import pytest
import urllib3

from tests.rigs.cloud.azure import STORAGE, TENANT, Azure
from tests.rigs.cloud.front import METADATA
from tests.rigs.cloud.google import Google
from tests.rigs.stack.azurite import ACCOUNT

VERSION = {"x-ms-version": "2021-08-06"}
BLOB = f"https://{ACCOUNT}.blob.core.windows.net"
IDENTITY = f"http://{METADATA}/metadata/identity/oauth2/token?api-version=2018-02-01&resource={STORAGE}/"


def asked(url: str, method: str = "GET", body: bytes | None = None, **headers: str) -> tuple[int, str]:
    """Return status and body of the response, without any retry or redirect."""
    with urllib3.PoolManager(ca_certs=certifi.where()) as pool:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        response = pool.request(method, url, body=body, headers=names, redirect=False, retries=False)
    return response.status, response.data.decode()


def login(tenant: str = TENANT, **given: str) -> tuple[int, str]:
    body = urlencode({"client_id": "app", "scope": f"{STORAGE}/.default", "client_secret": "secret"} | given)
    return asked(f"https://login.microsoftonline.com/{tenant}/oauth2/v2.0/token", "POST", body.encode())


def token(answer: tuple[int, str]) -> str:
    assert answer[0] == 200
    return f"Bearer {json.loads(answer[1])['access_token']}"


def test_a_token_of_entra_holds_for_storage_and_its_identity(azure_cloud: Azure) -> None:
    azure_cloud.applications["app"] = "secret"
    own, other = token(login()), token(login(scope="https://vault.azure.net/.default"))
    assert asked(f"{BLOB}/nothing/key", Authorization=own, **VERSION)[0] == 404
    assert asked(f"{BLOB}/nothing/key", Authorization=own)[0] == 403
    assert asked(f"{BLOB}/nothing/key", Authorization=other, **VERSION)[0] == 401
    assert asked(f"{BLOB}/nothing/key", Authorization="Bearer of-nobody", **VERSION)[0] == 401
    assert [each.identity for each in azure_cloud.requests if each.host.startswith(ACCOUNT)] == ["app", "", "", ""]


def test_entra_refuses_other_tenants_applications_and_secrets(azure_cloud: Azure) -> None:
    azure_cloud.applications["app"] = "secret"
    assert "AADSTS90002" in login("another-tenant")[1]
    assert "AADSTS700016" in login(client_id="another")[1]
    assert "AADSTS7000215" in login(client_secret="wrong")[1]
    assert "AADSTS700211" in login(client_assertion="of-nobody")[1]


def test_the_metadata_service_of_azure_wants_its_header_and_a_known_identity(azure_cloud: Azure) -> None:
    assert "Identity not found" in asked(IDENTITY, Metadata="true")[1]
    azure_cloud.managed.append("machine")
    assert asked(IDENTITY)[0] == 400
    assert asked(f"{BLOB}/nothing/key", Authorization=token(asked(IDENTITY, Metadata="true")), **VERSION)[0] == 404
    assert asked(f"{IDENTITY}&client_id=another", Metadata="true")[0] == 400


def test_google_asks_for_a_token_that_holds(google_cloud: Google) -> None:
    google_cloud.create_bucket("rules")
    google_cloud.upload("rules", "key", b"data")
    google_cloud.instance = "machine@project"
    url = "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default"
    own = token(asked(f"{url}/token", Metadata_Flavor="Google"))
    assert asked(f"{url}/email", Metadata_Flavor="Google") == (200, "machine@project")
    assert asked(f"{url}/email")[0] == 403
    assert asked("https://storage.googleapis.com/rules/key", Authorization=own) == (200, "data")
    assert asked("https://rules.storage.googleapis.com/key", Authorization=own) == (200, "data")
    assert asked("https://storage.googleapis.com/rules/key")[0] == 401
    assert asked("https://storage.googleapis.com/rules/key", Authorization="Bearer of-nobody")[0] == 401
    google_cloud.without_role.add("machine@project")
    assert asked("https://storage.googleapis.com/rules/key", Authorization=own)[0] == 403
    assert "invalid_grant" in asked("https://oauth2.googleapis.com/token", "POST", b"refresh_token=of-nobody")[1]


@pytest.mark.parametrize("host", ["nowhere.blob.core.windows.net", "storage.googleapis.com", "s3.amazonaws.com"])
def test_hosts_of_other_accounts_and_clouds_have_no_address(azure_cloud: Azure, host: str) -> None:
    with pytest.raises(urllib3.exceptions.NameResolutionError):
        asked(f"https://{host}/")
