"""What AWS's configuration decides about requests to S3, and what it may not decide."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path

import pytest
from botocore.credentials import RefreshableCredentials

from tests.storage.clouds import CLOUDS, answer, part
from tests.storage.scripted_http import ScriptedHttp, error
from tests.storage.segment import segment
from tiered_stream.delta.commit.deltalake_commit import open_table
from tiered_stream.delta.settings.ingest_settings import TableSpec, TableStorage
from tiered_stream.delta.write.file_systems import delta_storage_options
from tiered_stream.errors import ConfigurationError, StorageAccessError, TableAccessError
from tiered_stream.model import ByteRange
from tiered_stream.storage import s3
from tiered_stream.storage.aiven.aiven_fetcher import AivenLayoutFetcher
from tiered_stream.storage.aiven.encryption import KeyRing
from tiered_stream.storage.cloud_endpoints import TABLES
from tiered_stream.storage.fetcher import StoreFetcher
from tiered_stream.storage.local_layout import LocalLayoutFetcher
from tiered_stream.storage.object_store import ObjectStore
from tiered_stream.storage.s3_client import S3Access, S3Session

S3 = CLOUDS["s3"]
LAKE = TableStorage("http://lake:9000", "eu-west-1", True, "id", "secret")
ENDPOINTS = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "ENDPOINT_URL", "endpoint_url"]


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)


def name_endpoint(variable: str, url: str, patch: pytest.MonkeyPatch, folder: Path) -> None:
    if variable == "endpoint_url":
        (folder / "AWS_CONFIG_FILE").write_text(f"[default]\nendpoint_url = {url}\n")
    else:
        patch.setenv(variable, url)


@pytest.mark.parametrize("variable", ENDPOINTS)
def test_a_configured_endpoint_moves_neither_segments_nor_a_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    with ScriptedHttp([error(404, "NoSuchKey")]) as elsewhere, ScriptedHttp([part(b"data")]) as tier:
        name_endpoint(variable, elsewhere.url, monkeypatch, tmp_path)
        S3.store(tier.url).get("key", ByteRange(0, 4))
        with ScriptedHttp([error(404, "NoSuchKey")]) as lake:
            storage = TableStorage(lake.url, "eu-west-1", True, "id", "secret")
            with pytest.raises(TableAccessError):  # a 404 to a listing
                open_table(TableSpec("s3://lake/orders", storage))
            assert {request.split()[1].split(b"?")[0].split(b"/")[1] for request in lake.requests} == {b"lake"}
        assert not elsewhere.requests


@pytest.mark.parametrize("variable", ["TIMEOUT", "timeout", "CONNECT_TIMEOUT"])
def test_a_time_in_the_environment_changes_nothing(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "30")  # without a unit, which deltalake would refuse
    keys = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
    with ScriptedHttp([error(404, "NoSuchKey"), answer(200, keys)]) as lake:
        storage = TableStorage(lake.url, "eu-west-1", True, "id", "secret")
        assert open_table(TableSpec("s3://lake/orders", storage)) is None


def test_no_message_shows_a_password_in_a_configured_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://user:my-secret@127.0.0.1:9")
    with pytest.raises(ConfigurationError, match="AWS_ENDPOINT_URL_S3") as raised:
        S3.store("", s3_endpoint_url=None, s3_path_style=None)
    assert "my-secret" not in str(raised.value)


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "endpoint_url"])
def test_segments_are_at_the_endpoint_that_awss_configuration_names_if_no_option_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    with ScriptedHttp([part(b"data")]) as server:
        name_endpoint(variable, server.url, monkeypatch, tmp_path)
        S3.store("", s3_endpoint_url=None, s3_path_style=None).get("key", ByteRange(0, 4))
        assert server.requests[0].startswith(b"GET /bucket/p/key ")


@pytest.mark.parametrize("variable", ["AWS_SERVER_SIDE_ENCRYPTION", "AWS_PROXY_URL", "aws_allow_invalid_certificates"])
def test_a_variable_that_only_a_library_knows_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "AES256")
    with pytest.raises(ConfigurationError, match=f"environment variable {variable} "):
        S3.store("http://127.0.0.1:1").get("key", ByteRange(0, 4))


@pytest.mark.parametrize("variable", ["AWS_SESSION_TOKEN", "TOKEN"])
def test_a_session_token_of_other_credentials_is_not_sent_with_the_given_ones(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "of others")
    with pytest.raises(ConfigurationError, match=f"environment variable {variable} "):
        delta_storage_options(LAKE, "lake")
    with ScriptedHttp([part(b"data")]) as server:
        S3.store(server.url).get("key", ByteRange(0, 4))
        assert b"x-amz-security-token" not in server.requests[0].lower()


@pytest.mark.parametrize("variable", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_the_region_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.setenv(variable, "il-central-1")
    options = S3.options("", s3_endpoint_url=None, s3_path_style=None, s3_region=None)
    assert S3Session(options, "lake").bucket_url == "https://lake.s3.il-central-1.amazonaws.com"


def test_the_region_in_an_endpoints_host_counts_before_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    options = S3.options("https://s3.eu-west-1.amazonaws.com", s3_region=None)
    assert S3Session(options, "lake").region == "eu-west-1"


def test_a_profile_that_accelerates_uploads_does_not_move_a_table(tmp_path: Path) -> None:
    (tmp_path / "AWS_CONFIG_FILE").write_text("[default]\ns3 =\n  use_accelerate_endpoint = true\n")
    at_aws = TableStorage(None, "eu-west-1", None, "id", "secret")
    assert S3Session(at_aws, "lake", TABLES).bucket_url == "https://lake.s3.eu-west-1.amazonaws.com"
    assert S3Session(LAKE, "lake", TABLES).bucket_url == "http://lake:9000/lake"


@pytest.mark.parametrize("variable", ["PROXY_URL", "SERVER_SIDE_ENCRYPTION", "ALLOW_INVALID_CERTIFICATES"])
def test_a_variable_that_only_deltalake_reads_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "AES256")
    with pytest.raises(ConfigurationError, match=f"environment variable {variable} "):
        delta_storage_options(LAKE, "lake")


@pytest.mark.parametrize("load", ["AWS_FORCE_CREDENTIAL_LOAD", "AWS_S3_LOCKING_PROVIDER"])
@pytest.mark.parametrize("role", ["AWS_IAM_ROLE_ARN", "AWS_S3_ASSUME_ROLE_ARN"])
def test_a_role_that_deltalake_would_take_in_place_of_the_keys_is_refused(
    monkeypatch: pytest.MonkeyPatch, load: str, role: str
) -> None:
    monkeypatch.setenv(role, "arn:aws:iam::123456789012:role/writer")
    delta_storage_options(LAKE, "lake")
    monkeypatch.setenv(load, "true")
    with pytest.raises(ConfigurationError, match=f"environment variable {role} "):
        delta_storage_options(LAKE, "lake")


@pytest.mark.parametrize("variable", ["AWS_CONDITIONAL_PUT", "AWS_COPY_IF_NOT_EXISTS", "AWS_UNSIGNED_PAYLOAD"])
def test_a_value_that_only_older_libraries_know_does_not_keep_segments_from_being_read(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "dynamo:table")
    with ScriptedHttp([part(b"data")]) as server:
        assert S3.store(server.url).get("key", ByteRange(0, 4)) == b"data"


def signer() -> ObjectStore:
    """A store in a bucket at AWS whose region nobody names."""
    return S3.store("", s3_endpoint_url=None, s3_path_style=None, s3_region=None)


@pytest.fixture
def _no_region(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("_no_region")
def test_a_region_that_aws_did_not_say_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    regions = iter(["", "eu-west-1"])
    monkeypatch.setattr(s3, "_SECONDS_TO_ASK_AGAIN", 0)
    monkeypatch.setattr(S3Session, "find_region", lambda self: next(regions))
    store = signer()
    urls = [store.signed_url("key", 60) or "" for _ in range(3)]
    assert [url.split("?")[0].split(".")[2] for url in urls] == ["us-east-1", "eu-west-1", "eu-west-1"]


@pytest.mark.usefixtures("_no_region")
def test_no_url_is_signed_while_the_region_is_being_found(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, go_on = threading.Event(), threading.Event()
    find_url = S3Session._find_url

    def wait_to_find_url(session: S3Session) -> str:
        if session.region == "eu-west-1":
            asked.set()
            assert go_on.wait(60)
        return find_url(session)

    monkeypatch.setattr(S3Session, "find_region", lambda self: "eu-west-1")
    monkeypatch.setattr(S3Session, "_find_url", wait_to_find_url)
    store, urls = signer(), []
    threads = [threading.Thread(target=lambda: urls.append(store.signed_url("key", 60) or "")) for _ in range(2)]
    threads[0].start()
    assert asked.wait(60)
    threads[1].start()
    threads[1].join(0.2)  # it would have signed by now
    early = list(urls)
    go_on.set()
    for thread in threads:
        thread.join()
    assert not early and {url.split("?")[0] for url in urls} == {"https://bucket.s3.eu-west-1.amazonaws.com/p/key"}


def web_identity(patch: pytest.MonkeyPatch, folder: Path, *, token: bool = True) -> None:
    if token:
        (folder / "token").write_text("a token")
    patch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/reader")
    patch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(folder / "token"))


def without_keys(url: str) -> Exception:
    store = S3.store(url, access_key_id=None, secret_access_key=None, has_fallback=True)
    with pytest.raises(StorageAccessError, match=r"s3://bucket.*credential chain|provider") as caught:
        store.get("key", ByteRange(0, 4))
    return caught.value


def test_a_role_that_sts_refuses_is_an_access_failure_that_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    web_identity(monkeypatch, tmp_path)
    refusal = b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>"
    with ScriptedHttp([answer(403, refusal)]) as sts, ScriptedHttp([part(b"data")]) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts.url)
        text = str(without_keys(server.url))
        assert not server.requests and len(sts.requests) == 1
    assert "AssumeRoleWithWebIdentity" in text and "AccessDenied" in text


def test_a_service_of_credentials_that_is_out_of_reach_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    web_identity(monkeypatch, tmp_path)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    assert "http://127.0.0.1:1" in str(without_keys("http://127.0.0.1:2"))


def test_a_missing_token_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    web_identity(monkeypatch, tmp_path, token=False)
    assert str(tmp_path / "token") in str(without_keys("http://127.0.0.1:2"))


def test_a_program_for_credentials_that_fails_is_told_without_its_output(tmp_path: Path) -> None:
    (tmp_path / "AWS_CONFIG_FILE").write_text("[default]\ncredential_process = sh -c 'echo my-secret >&2; exit 3'\n")
    text = str(without_keys("http://127.0.0.1:2"))
    assert "the program of credential_process failed" in text and "my-secret" not in text


@pytest.mark.parametrize("profile", ["[default]", "[default]\nrole_arn = r\nsource_profile = own\n[profile own]"])
def test_a_program_for_credentials_that_hangs_is_ended_with_its_own_programs(tmp_path: Path, profile: str) -> None:
    left = tmp_path / "left"
    os.mkfifo(left)
    reader = os.open(left, os.O_RDONLY | os.O_NONBLOCK)
    command = f"sh -c 'sleep 3600 3>\"{left}\" & wait'"
    (tmp_path / "AWS_CONFIG_FILE").write_text(f"{profile}\ncredential_process = {command}\n")
    session = S3Session(S3.options("http://a:9", access_key_id=None, secret_access_key=None), "lake", timeout_ms=1000)
    with pytest.raises(StorageAccessError, match="credential_process has not ended within 1 s"):
        session.credentials()
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b""  # the end of the last process that holds the other end open
    os.close(reader)


def test_a_short_outage_of_the_metadata_service_is_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    key = b'{"Code": "Success", "AccessKeyId": "id", "SecretAccessKey": "s", "Token": "t", "Expiration": "%s"}'
    key %= b"2100-01-01T00:00:00Z"
    fine = [answer(200, b"session"), answer(200, b"role"), answer(200, key)]
    with ScriptedHttp([answer(503), answer(503), *fine]) as metadata:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url)
        session = S3Session(S3.options("http://a:9", access_key_id=None, secret_access_key=None), "lake")
        assert session.credentials()["access_key_id"] == "id"


def test_an_instance_that_gives_no_role_has_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedHttp([answer(400)]) as metadata:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url)
        without_keys("http://127.0.0.1:2")
        assert metadata.requests


def test_credentials_in_a_file_are_read_again(tmp_path: Path) -> None:
    keys = tmp_path / "AWS_SHARED_CREDENTIALS_FILE"
    session = S3Session(S3.options("http://lake:9000", access_key_id=None, secret_access_key=None), "lake")
    for name in ("first", "second"):
        keys.write_text(f"[default]\naws_access_key_id = {name}\naws_secret_access_key = s\n")
        assert session.credentials()["access_key_id"] == name


def test_credentials_that_a_client_may_still_use_say_when_its_signatures_end() -> None:
    session = S3Session(S3Access("http://127.0.0.1:1", "us-east-1", True, "id", "key"), "bucket")
    session.credentials()
    assert session.credentials_seconds_left() == inf
    for minutes in (6, 60):  # the first are used for three minutes, although others have come
        end = datetime.now(UTC) + timedelta(minutes=minutes)
        session._credentials = RefreshableCredentials("id", "key", "token", end, dict, "a role")  # type: ignore[arg-type]
        session._credentials._mandatory_refresh_timeout = session._credentials._advisory_refresh_timeout = 0
        session.credentials()
    assert 300 < session.credentials_seconds_left() <= 360


def in_local_layout(store: ObjectStore) -> StoreFetcher:
    return LocalLayoutFetcher(store)


def in_aiven_layout(store: ObjectStore) -> StoreFetcher:
    return AivenLayoutFetcher(store, "", KeyRing({}))


@pytest.mark.parametrize("layout", [in_local_layout, in_aiven_layout])
def test_a_layout_knows_when_the_credentials_end_that_sign_its_urls(
    tmp_path: Path, layout: Callable[[ObjectStore], StoreFetcher]
) -> None:
    end = datetime.now(UTC) + timedelta(hours=1)
    found = {"Version": 1, "AccessKeyId": "role", "SecretAccessKey": "s", "Expiration": end.isoformat()}
    (tmp_path / "found").write_text(json.dumps(found))
    (tmp_path / "AWS_CONFIG_FILE").write_text(f"[default]\ncredential_process = cat '{tmp_path / 'found'}'\n")
    store = S3.store("http://127.0.0.1:1", access_key_id=None, secret_access_key=None)
    url = store.signed_url(f"{segment(3).segment_id}", 7200)
    assert url is not None and "role" in url
    assert 3500 < layout(store).signing_seconds_left() <= 3600
