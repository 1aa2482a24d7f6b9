from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.local_http import Answer
from tests.storage.identity.services import CloudServices
from tiered_stream.errors import StorageAccessError
from tiered_stream.model import ByteRange
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage import attempts
from tiered_stream.storage.attempts import RequestTimeouts
from tiered_stream.storage.cloud_endpoints import TABLES
from tiered_stream.storage.identity import azure_identity
from tiered_stream.storage.identity.access_tokens import AccessToken, TokenSource, request_token
from tiered_stream.storage.identity.token_request import TokenRequest
from tiered_stream.storage.open_store import open_store, open_writable

TIMEOUTS = RequestTimeouts(1000, 1000, 1000, 4)


@pytest.fixture
def cloud() -> Iterator[CloudServices]:
    with CloudServices() as services:
        yield services


def azure(cloud: CloudServices, authority: str | None = None, **others: object) -> StorageOptions:
    """A container by a service principal."""
    own = {
        "azure_account_name": "mine", "azure_endpoint_url": f"{cloud.url}/mine", "azure_tenant_id": "tenant",
        "azure_authority_url": authority or cloud.url, "azure_client_id": "app", "azure_client_secret": "hush",
        "connect_timeout_ms": 400, "read_timeout_ms": 400, "request_timeout_ms": 400,
    }  # fmt: skip
    return StorageOptions(**{"uri": "az://lake", **own, **others})  # type: ignore[arg-type]


def get(options: StorageOptions) -> None:
    open_store(options).get("key", ByteRange(0, 1))


def put(options: StorageOptions) -> None:
    open_writable(options, TABLES).put("key", b"")


@pytest.mark.parametrize("send", [get, put])
@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_refused_identity_is_named_with_the_service_that_refused_it(
    cloud: CloudServices, send: Callable[[StorageOptions], None], status: int
) -> None:
    cloud.refusal = Answer(
        status, b'{"error": "invalid_client", "error_description": "AADSTS7000215: secret hush is wrong"}'
    )
    with pytest.raises(StorageAccessError) as caught:
        send(azure(cloud))
    text = str(caught.value)
    assert f"service principal app (tenant tenant): {cloud.host} responded with {status} invalid_client" in text
    assert "AADSTS7000215" in text and "hush" not in text and "client secret" in text
    assert cloud.seen == []


def test_a_token_service_that_is_not_one_is_named(cloud: CloudServices) -> None:
    for content in (b"<html>", b"{}", b"[]", b'{"access_token": "a b\\n", "expires_in": 1e999}'):
        cloud.refusal = Answer(200, content)
        with pytest.raises(StorageAccessError, match=f"{cloud.host} gave a malformed response"):
            get(azure(cloud, azure_client_id=f"app {content!r}"))


def test_a_token_service_that_cannot_be_reached_is_named(cloud: CloudServices) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(StorageAccessError, match=f"{host} could not be reached for an access token of the service"):
        get(azure(cloud, f"http://{host}", request_timeout_ms=2000))


def test_a_service_under_load_is_asked_again(cloud: CloudServices) -> None:
    cloud.refusal = Answer(503)
    with pytest.raises(StorageAccessError, match="503 to every request"):
        get(azure(cloud, request_timeout_ms=2000))
    assert len(cloud.asked) > 1


def test_a_metadata_service_that_is_being_updated_is_asked_again_later(
    cloud: CloudServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = list[float]()

    def wait(seconds: float) -> None:
        waits.append(seconds)
        cloud.refusal = None

    monkeypatch.setattr(attempts, "time", SimpleNamespace(monotonic=time.monotonic, sleep=wait))
    cloud.refusal = Answer(410)
    request = TokenRequest("me", (f"{cloud.url}/token",), "fix it")
    assert request_token(request, RequestTimeouts(1000, 1000, 60_000, 4)).text == "machine"
    assert waits == [10]


def test_threads_do_not_wait_for_a_silent_token_service_one_after_the_other(cloud: CloudServices) -> None:
    ended = threading.Event()
    cloud.refusal = Answer(200, wait=ended)
    store = open_store(azure(cloud))
    with ThreadPoolExecutor(16) as threads:
        for request in [threads.submit(store.size, "key") for _ in range(16)]:
            with pytest.raises(StorageAccessError, match=r"principal app .*0\.4 s"):
                request.result(timeout=3)  # 16 times 0.4 s are more
    ended.set()


def test_a_missing_token_file_is_named(cloud: CloudServices, tmp_path: Path) -> None:
    path = tmp_path / "token"
    with pytest.raises(StorageAccessError, match=rf"{path} cannot be read: No such file.*azure.workload.identity/use"):
        get(azure(cloud, azure_client_secret=None, azure_token_file=str(path)))
    assert cloud.asked == []


def test_a_machine_without_the_identity_is_named(cloud: CloudServices, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(azure_identity, "_MACHINE", f"{cloud.url}/imds/token")
    cloud.refusal = Answer(400, b'{"error": "invalid_request", "error_description": "Identity not found"}')
    with pytest.raises(StorageAccessError, match=r"the managed identity app: .* responded with 400 invalid_request"):
        get(azure(cloud, azure_client_secret=None, azure_managed_identity=True))


def test_a_machine_of_googles_without_an_account_is_named(
    cloud: CloudServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", cloud.host)
    cloud.refusal = Answer(404)
    options = StorageOptions(uri="gs://lake", gcs_endpoint_url=cloud.url, gcs_machine=True)
    with pytest.raises(StorageAccessError, match=f"service account of the machine: {cloud.host} responded with 404"):
        get(options)


def test_a_second_address_is_asked_if_the_first_one_cannot_be_reached(cloud: CloudServices) -> None:
    request = TokenRequest("me", ("http://127.0.0.1:1/token", f"{cloud.url}/token"), "fix it")
    assert request_token(request, TIMEOUTS).text == "machine"


def test_a_token_is_kept_until_shortly_before_its_end_and_replaced_in_time() -> None:
    now, fetched = [0.0], iter([AccessToken("first", 3600), AccessToken("second", 7200)])
    source = TokenSource(lambda: next(fetched), lambda: now[0])
    assert source.token().text == "first"
    now[0] = 3000
    assert source.token().text == "first"
    now[0] = 3400
    assert source.token().text == "second"


def test_a_token_is_used_to_its_end_if_there_is_no_other_one() -> None:
    now, answers = [0.0], iter([AccessToken("first", 3600)])

    def fetch() -> AccessToken:
        for token in answers:
            return token
        raise StorageAccessError("refused")

    source = TokenSource(fetch, lambda: now[0])
    source.token()
    now[0] = 3599
    assert source.token().text == "first"
    now[0] = 3601
    with pytest.raises(StorageAccessError):
        source.token()


@pytest.mark.parametrize("refused", [False, True])
def test_a_token_that_ends_soon_is_requested_again_only_after_half_a_minute(refused: bool) -> None:
    now, asked = [0.0], list[float]()

    def fetch() -> AccessToken:
        asked.append(now[0])
        if refused and now[0]:
            raise StorageAccessError("refused")
        return AccessToken("same", 3600)

    source = TokenSource(fetch, lambda: now[0])
    for now[0] in (0.0, 3310.0, 3312.0, 3339.0, 3341.0):
        assert source.token().text == "same"
    assert asked == [0.0, 3310.0, 3341.0]


def test_a_valid_token_is_used_while_another_thread_waits_for_the_next_one() -> None:
    now, asked, ended = [0.0], threading.Event(), threading.Event()

    def fetch() -> AccessToken:
        if now[0]:
            asked.set()
            ended.wait(10)
        return AccessToken(f"from {now[0]:g}", now[0] + 3600)

    source = TokenSource(fetch, lambda: now[0])
    source.token()
    now[0] = 3400
    with ThreadPoolExecutor(2) as threads:
        renewed = threads.submit(source.token)
        assert asked.wait(10)
        other = threads.submit(source.token)
        try:
            assert other.result(timeout=5).text == "from 0"
        finally:
            ended.set()
        assert renewed.result().text == "from 3400"


def test_a_failure_is_reported_again_for_a_second() -> None:
    now, asked = [0.0], list[float]()

    def fetch() -> AccessToken:
        asked.append(now[0])
        raise StorageAccessError("refused")

    source = TokenSource(fetch, lambda: now[0])
    for now[0] in (0.0, 0.5, 1.5):
        with pytest.raises(StorageAccessError):
            source.token()
    assert asked == [0.0, 1.5]


def test_a_proxy_in_the_environment_leads_to_the_token_service(
    cloud: CloudServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(url: str) -> str:
        return request_token(TokenRequest("me", (url,), "fix it", form={"client_secret": "hush"}), TIMEOUTS).text

    monkeypatch.setenv("http_proxy", cloud.url)
    assert ask("http://login.invalid/token") == "hush" and cloud.asked == ["http://login.invalid/token"]
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert ask(f"{cloud.url}/token") == "hush"


@pytest.mark.parametrize("proxy", ["socks5h://me:hunter2@127.0.0.1:1", "http://127.0.0.1:port"])
def test_a_proxy_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    with pytest.raises(StorageAccessError, match="or its proxy is no URL of http.*ALL_PROXY") as caught:
        request_token(TokenRequest("me", ("http://login.invalid/token",), "fix it"), TIMEOUTS)
    assert "hunter2" not in str(caught.value)
