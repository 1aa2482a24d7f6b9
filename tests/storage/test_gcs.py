from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.rigs.stack.fake_gcs import key_without_token
from tests.storage.clouds import answer, part
from tests.storage.scripted_http import ScriptedHttp
from tiered_stream.errors import ConfigurationError, StorageAccessError
from tiered_stream.model import ByteRange
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.attempts import AttemptError, FailureKind, RequestTimeouts
from tiered_stream.storage.cloud_endpoints import TABLES
from tiered_stream.storage.gcs import GoogleBucket
from tiered_stream.storage.identity.google_identity import Kind, google_identity
from tiered_stream.storage.open_store import open_store, open_writable

SECRET = "the-secret-that-nobody-may-see"


@pytest.mark.parametrize("credentials", [{"gcs_credentials_json": SECRET}, {"gcs_credentials_path": "/nonexistent"}])
def test_credentials_that_cannot_be_read_name_the_options_and_show_no_secret(credentials: dict[str, str]) -> None:
    options = StorageOptions(uri="gs://bucket/p", gcs_endpoint_url="http://127.0.0.1:1", **credentials)  # type: ignore[arg-type]
    with pytest.raises(StorageAccessError, match=r"gs://bucket.*gcs\.credentials\.json") as caught:
        open_store(options).get("key", ByteRange(0, 1))
    assert SECRET not in str(caught.value)


def replaced_key(path: Path, url: str) -> StorageOptions:
    path.write_text(key_without_token(url))
    return StorageOptions(uri="gs://bucket/p", gcs_endpoint_url=url, gcs_credentials_path=str(path))


def replace_key(path: Path) -> None:
    other = path.with_name("other")
    other.write_text(path.read_text() + " ")
    other.rename(path)


def test_a_key_that_was_replaced_is_read_after_a_refusal(tmp_path: Path) -> None:
    with ScriptedHttp([part(b"a"), answer(401), part(b"b"), answer(401)]) as server:
        store = open_store(replaced_key(tmp_path / "key", server.url))
        assert bytes(store.get("key", ByteRange(0, 1))) == b"a"
        replace_key(tmp_path / "key")
        assert bytes(store.get("key", ByteRange(0, 1))) == b"b"
        with pytest.raises(StorageAccessError, match="401"):
            store.get("key", ByteRange(0, 1))
        assert len(server.requests) == 4


def test_an_upload_after_a_refusal_has_the_key_that_was_replaced(tmp_path: Path) -> None:
    with ScriptedHttp([answer(401), answer(401), answer(200)]) as server:
        store = open_writable(replaced_key(tmp_path / "key", server.url), TABLES)
        with pytest.raises(StorageAccessError):
            store.put("key", b"")
        assert len(server.requests) == 1
        replace_key(tmp_path / "key")
        store.put("key", b"")
        assert len(server.requests) == 3


def test_credentials_that_were_replaced_are_read_after_a_refused_request_for_a_token(tmp_path: Path) -> None:
    bucket = GoogleBucket(replaced_key(tmp_path / "key", "http://127.0.0.1:1"), "bucket")
    bucket.connect(60)
    no_token = AttemptError(FailureKind.CREDENTIALS)
    assert not bucket.shows_other_settings(no_token)
    replace_key(tmp_path / "key")
    assert bucket.shows_other_settings(no_token)


FEDERATED = {
    "type": "external_account", "audience": "//iam.googleapis.com/pool", "token_url": "http://127.0.0.1:1/token",
    "subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "credential_source": {"file": "/nonexistent"},
}  # fmt: skip

OF_AWS = FEDERATED | {
    "subject_token_type": "urn:ietf:params:aws:token-type:aws4_request",
    "credential_source": {
        "environment_id": "aws1",
        "regional_cred_verification_url": "https://sts.{region}.amazonaws.com?Action=GetCallerIdentity&Version=2011-06-15",
    },
}


@pytest.mark.parametrize(
    ("document", "why"),
    [(FEDERATED, "google-auth reports "), (OF_AWS, "the connection broke ")],
    ids=["no file", "no token service"],
)
def test_federated_credentials_without_their_token_are_named_and_cannot_sign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: Mapping[str, object], why: str
) -> None:
    for name in ("AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "made-up")
    path = tmp_path / "federated"
    path.write_text(json.dumps(document))
    store = open_store(StorageOptions(uri="gs://bucket/p", gcs_credentials_path=str(path)))
    with pytest.raises(StorageAccessError, match=rf"type external_account in {path}: {why}.*check the"):
        store.get("key", ByteRange(0, 1))
    assert store.signed_url("key", 60) is None


def federated(folder: Path, url: str) -> StorageOptions:
    """Credentials whose token service is at the URL."""
    (folder / "subject").write_text("subject")
    document = FEDERATED | {"token_url": f"{url}/token", "credential_source": {"file": str(folder / "subject")}}
    return StorageOptions(uri="gs://bucket/p", gcs_endpoint_url=url, gcs_credentials_json=json.dumps(document))


def test_a_token_of_federated_credentials_is_requested_again_if_the_service_is_busy(tmp_path: Path) -> None:
    kind = "urn:ietf:params:oauth:token-type:access_token"
    token = {"access_token": "token", "issued_token_type": kind, "token_type": "Bearer", "expires_in": 3600}
    with ScriptedHttp([answer(503), answer(200, json.dumps(token).encode()), part(b"a")]) as server:
        assert bytes(open_store(federated(tmp_path, server.url)).get("key", ByteRange(0, 1))) == b"a"
        assert len(server.requests) == 3


@pytest.mark.parametrize(
    "content",
    [
        b"[]", b"<html>", b"{}", b'{"expires_in": 3600}', b'{"access_token": "token"}',
        b'{"access_token": "token", "expires_in": "soon"}', b'{"access_token": "token", "expires_in": 1e999}',
    ],
)  # fmt: skip
def test_a_response_without_a_token_that_can_be_used_is_an_error_of_access(tmp_path: Path, content: bytes) -> None:
    with ScriptedHttp([answer(200, content)]) as server:
        options = federated(tmp_path, server.url)
        tokens = google_identity(options, "").tokens(RequestTimeouts.of(options))
        assert tokens is not None
        with pytest.raises(StorageAccessError):
            tokens.token()


def test_a_user_without_a_home_has_the_identity_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, nameless_user: None
) -> None:
    for variable in ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG"):
        monkeypatch.delenv(variable, raising=False)
    identity = google_identity(StorageOptions(uri="gs://bucket/p"), "")
    assert (identity.kind, identity.why_not_deltalake()) == (Kind.MACHINE, None)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"type": "gdch_service_account"}, "type of the credentials is 'gdch_service_account', which is not supported"),
        ({"type": "authorized_user"}, r"must be in a file: set remote\.storage\.gcs\.credentials\.path"),
        ({"type": "external_account", "audience": SECRET}, "are malformed"),
        ({"type": "impersonated_service_account", "source_credentials": {"type": "x"}}, "are malformed"),
    ],
)
def test_credentials_that_nobody_can_use_are_named(document: Mapping[str, object], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as caught:
        open_store(StorageOptions(uri="gs://bucket/p", gcs_credentials_json=json.dumps(document))).size("key")
    assert SECRET not in str(caught.value)


def test_federated_credentials_without_google_auth_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.auth.transport.requests", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'tiered-stream\[gcs\]'"):
        open_store(StorageOptions(uri="gs://b/p", gcs_credentials_json=json.dumps(FEDERATED | {"x": 1}))).size("key")
