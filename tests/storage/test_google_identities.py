"""Objects in Google's storage are read at Google's own hosts, by the identity that the settings or its chain give."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import certifi
import pytest
import urllib3

from tests.rigs.cloud.google import STORAGE, Google
from tests.rigs.stack.processes import wait_until
from tiered_stream.errors import StorageAccessError
from tiered_stream.model import ByteRange
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.object_store import ObjectStore
from tiered_stream.storage.open_store import open_store

READER = "reader@project.iam.gserviceaccount.com"
Made = Callable[[Google, Path, pytest.MonkeyPatch], Mapping[str, str]]


def key(google: Google, _: Path, __: pytest.MonkeyPatch) -> Mapping[str, str]:
    return {"gcs_credentials_json": google.service_account("reader")}


def user(google: Google, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """A user after `gcloud auth application-default login`."""
    google.refresh_tokens["refresh"] = READER
    found = folder / ".config/gcloud/application_default_credentials.json"
    found.parent.mkdir(parents=True)
    named = {"type": "authorized_user", "client_id": "id", "client_secret": "the-secret", "refresh_token": "refresh"}
    found.write_text(json.dumps(named))
    monkeypatch.setenv("HOME", str(folder))
    return {}


def instance(google: Google, _: Path, __: pytest.MonkeyPatch) -> Mapping[str, str]:
    google.instance = READER
    google.service_account("reader")
    return {}


@pytest.fixture(scope="module")
def made() -> set[str]:
    return set()


def opened(google: Google, made: set[str], settings: Mapping[str, str]) -> ObjectStore:
    if not made:
        google.create_bucket("lake")
        google.upload("lake", "tier/key", b"data")
        made.add("lake")
    return open_store(StorageOptions(uri="gs://lake/tier", **settings))


@pytest.mark.parametrize("source", [user, instance])
def test_tokens_that_expire_are_renewed(
    google_cloud: Google, made: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Made
) -> None:
    google_cloud.lifetime = 2
    store = opened(google_cloud, made, source(google_cloud, tmp_path, monkeypatch))
    assert store.get("key", ByteRange(0, 1)) == b"d"
    ends = max(each for _, each in google_cloud.tokens.values())
    wait_until(lambda: time.time() > ends, "the end of the token")
    assert store.get("key", ByteRange(1, 3)) == b"at"


@pytest.mark.parametrize("source", [key, instance])
def test_a_signed_url_is_of_the_identity(
    google_cloud: Google, made: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Made
) -> None:
    url = opened(google_cloud, made, source(google_cloud, tmp_path, monkeypatch)).signed_url("key", 60)
    assert url is not None
    google_cloud.requests.clear()
    with urllib3.PoolManager(ca_certs=certifi.where()) as pool:
        assert pool.request("GET", url).data == b"data"
        assert pool.request("GET", url.replace("/key?", "/other?")).status == 403
    assert [(each.host, each.identity, each.status) for each in google_cloud.requests] == [
        (STORAGE, READER, 200), (STORAGE, "", 403),
    ]  # fmt: skip


def test_a_login_that_is_refused_is_an_error_of_access(
    google_cloud: Google, made: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(google_cloud, made, user(google_cloud, tmp_path, monkeypatch))
    google_cloud.refresh_tokens.clear()
    with pytest.raises(StorageAccessError, match="gs://lake") as raised:
        store.get("key", ByteRange(0, 1))
    assert "the-secret" not in str(raised.value)
