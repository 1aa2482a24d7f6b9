from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.broker.certificates import CertificateAuthority, server_context
from tests.broker.secure import OAUTHBEARER
from tests.broker.token_server import TokenServer
from tests.dripping import BODY, CHUNKS, HEADERS, dripping
from tests.local_http import Answer
from tiered_stream.broker.kafka_properties import ConfigValues
from tiered_stream.broker.login.oauthbearer import LoginTokens
from tiered_stream.broker.login.sasl import sasl_settings
from tiered_stream.errors import (
    BrokerAuthorizationError,
    BrokerUnavailableError,
    ConfigurationError,
    TieredStreamError,
)

URL = "sasl.oauthbearer.token.endpoint.url"
PROVIDER = "sasl.oauthbearer.token.provider"
NO_WAIT = {"sasl.login.retry.backoff.ms": "1", "sasl.login.retry.backoff.max.ms": "0"}


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with TokenServer({"reader": "hunter2", "a b": "hunter2%"}) as server:
        yield server


def tokens(properties: Mapping[str, str], jaas: str = "") -> LoginTokens:
    login = f"{OAUTHBEARER} required {jaas};"
    given = {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": login, **NO_WAIT, **properties}
    found: LoginTokens = sasl_settings(ConfigValues(given), "SASL_SSL")["sasl_oauth_token_provider"]
    return found


def token(properties: Mapping[str, str], jaas: str = "") -> str:
    found = tokens(properties, jaas)
    found.renewal().result()
    return found.token()


def refused(kind: type[TieredStreamError], properties: Mapping[str, str], jaas: str = "") -> str:
    with pytest.raises(kind) as raised:
        token(properties, jaas)
    assert "hunter2" not in str(raised.value)
    return str(raised.value)


def test_credentials_and_scope_come_from_the_jaas_entry(server: TokenServer) -> None:
    found = token({URL: server.url}, 'clientId="reader" clientSecret="hunter2" scope="read all"')

    assert found.count(".") == 2
    assert server.asked == [{"grant_type": "client_credentials", "scope": "read all"}]


def test_the_newer_properties_go_before_the_jaas_entry_or_do_without_it(server: TokenServer) -> None:
    newer = {
        URL: server.url,
        "sasl.oauthbearer.client.credentials.client.id": "reader",
        "sasl.oauthbearer.client.credentials.client.secret": "hunter2",
        "sasl.oauthbearer.scope": "newer",
    }

    assert token(newer, 'clientId="x" clientSecret="x" scope="x"')
    assert token({**newer, "sasl.jaas.config": ""})
    assert [form["scope"] for form in server.asked] == ["newer", "newer"]


def test_id_and_secret_are_encoded_for_the_header_where_that_is_asked_for(server: TokenServer) -> None:
    server.clients = {"a+b": "hunter2%25"}

    assert token(
        {URL: server.url, "sasl.oauthbearer.header.urlencode": "true"}, 'clientId="a b" clientSecret="hunter2%"'
    )


def test_extensions_go_with_the_token() -> None:
    found = tokens({PROVIDER: "time.time"}, 'extension_logicalCluster="lkc-1"')

    assert found.extensions() == {"logicalCluster": "lkc-1"}


@pytest.mark.parametrize("option", ['extension_auth="x"', 'extension_a1="x"', 'extension_a="\\001"'])
def test_what_is_no_extension_is_refused(option: str) -> None:
    assert option.partition("=")[0] in refused(ConfigurationError, {PROVIDER: "time.time"}, option)


def test_a_wrong_secret_is_refused_at_once_with_what_to_check(server: TokenServer) -> None:
    message = refused(
        BrokerAuthorizationError,
        {URL: server.url, "sasl.login.retry.backoff.max.ms": "60000"},
        'clientId="reader" clientSecret="not-hunter2"',
    )

    assert f"kafka.{URL} = '{server.url}'" in message
    assert "401 invalid_client" in message and "clientId, clientSecret" in message
    assert len(server.asked) == 1


def test_an_endpoint_that_cannot_answer_is_asked_again(server: TokenServer) -> None:
    server.answers = [Answer(503), Answer(429)]

    assert token(
        {URL: server.url, "sasl.login.retry.backoff.max.ms": "60000"}, 'clientId="reader" clientSecret="hunter2"'
    )
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (Answer(503), BrokerUnavailableError, "responded with 503"),
        (Answer(302, headers={"Location": "http://127.0.0.1:1/"}), BrokerAuthorizationError, "302"),
        (Answer(400, b'{"error": "hunter2"}'), BrokerAuthorizationError, "400; check"),
        (Answer(404, b"<html>"), BrokerAuthorizationError, "404"),
        (Answer(200, b"<html>"), ConfigurationError, "no access_token"),
        (Answer(200, b'{"access_token": 7}'), ConfigurationError, "no access_token"),
        (Answer(200, b'{"access_token": "hunter2 \\u0001"}'), ConfigurationError, "no token"),
        (Answer(200, b'{"access_token": "t", "expires_in": -1}'), BrokerUnavailableError, "ended already"),
        (Answer(200, b"x" * (1 << 21)), BrokerUnavailableError, "is longer than allowed"),
    ],
)
def test_what_an_endpoint_says_wrong_is_an_error_of_ours(
    server: TokenServer, answer: Answer, kind: type[TieredStreamError], said: str
) -> None:
    server.answers = [answer]

    assert said in refused(kind, {URL: server.url}, 'clientId="reader" clientSecret="hunter2"')


@pytest.mark.parametrize("answer", [HEADERS, BODY, CHUNKS], ids=["headers", "body", "chunks"])
def test_an_endpoint_whose_answer_drips_is_given_up_and_the_next_login_asks_again(answer: tuple[bytes, bytes]) -> None:
    with dripping(*answer, seconds=0.01) as (url, _):
        found = tokens({URL: url, "sasl.login.read.timeout.ms": "100"}, 'clientId="a" clientSecret="b"')
        first = found.renewal()
        with pytest.raises(BrokerUnavailableError, match="ReadTimeoutError"):
            first.result()
        assert found.renewal() is not first


def test_an_endpoint_that_is_not_there_is_named() -> None:
    message = refused(BrokerUnavailableError, {URL: "http://127.0.0.1:1/t?k=hunter2"}, 'clientId="a" clientSecret="b"')

    assert "'http://127.0.0.1:1/t': " in message and "hunter2" not in message


def test_the_endpoints_certificate_is_checked_by_the_trust_store_of_the_jaas_entry(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    identity = server_context(authority.issue("endpoint").write(tmp_path / "endpoint.pem"))
    trust = authority.write(tmp_path / "trust.pem")
    client = 'clientId="reader" clientSecret="hunter2"'
    with TokenServer({"reader": "hunter2"}, identity=identity) as server:
        assert token({URL: server.url}, f'{client} ssl.truststore.location="{trust}" ssl.truststore.type=PEM')
        message = refused(ConfigurationError, {URL: server.url}, client)
    assert "TLS failed" in message
    assert "ssl.truststore.location" in message


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "ftp://h/t",
        "token",
        "https://user:hunter2@h/t",
        "http://[",
        "http://h:99999/",
        "file:x",
        "file://h/x",
    ],
)
def test_a_url_that_leads_nowhere_is_refused_and_not_shown(url: str) -> None:
    assert f"kafka.{URL}: the value" in refused(ConfigurationError, {URL: url}, 'clientId="a" clientSecret="b"')


@pytest.mark.parametrize(
    ("properties", "jaas", "said"),
    [
        ({}, "", f"kafka.{URL} is missing: OAUTHBEARER needs it, or kafka.{PROVIDER}"),
        ({URL: "http://h/"}, 'clientSecret="hunter2"', "needs clientId"),
        ({URL: "http://h/"}, 'clientId="hunter"', "needs clientSecret"),
        ({URL: "http://h/", PROVIDER: "time.time"}, "", "both given"),
        ({URL: "http://h/"}, 'unsecuredLoginStringClaim_sub="a"', "unsecured tokens are not supported"),
        ({PROVIDER: "no_such_module.f"}, "", "cannot be imported"),
        ({PROVIDER: "time.no_such"}, "", "cannot be imported"),
        ({PROVIDER: "time"}, "", "cannot be imported"),
        ({PROVIDER: "time.timezone"}, "", "is no function"),
        ({PROVIDER: "time.time"}, "", "must return a token"),
        ({PROVIDER: f"{__name__}.raises"}, "", "failed: KeyError"),
        ({"sasl.oauthbearer.jwt.retriever.class": "a.JwtBearerJwtRetriever"}, "", "jwt.retriever.class"),
        ({"sasl.login.refresh.window.factor": "2", PROVIDER: "time.time"}, "", "must be a number from 0.5 to 1"),
        ({"sasl.login.refresh.buffer.seconds": "3601", PROVIDER: "time.time"}, "", "must be at most 3600"),
    ],
)
def test_what_is_missing_or_wrong_is_named(properties: Mapping[str, str], jaas: str, said: str) -> None:
    assert said in refused(ConfigurationError, properties, jaas)


def test_a_file_holds_the_token(tmp_path: Path) -> None:
    file = tmp_path / "a token"
    file.write_text("opaque\n")

    assert token({URL: file.as_uri()}) == "opaque"
    file.write_text("hunter2 is no token")
    assert "no token" in refused(ConfigurationError, {URL: file.as_uri()})
    file.unlink()
    assert "no such file" in refused(ConfigurationError, {URL: file.as_uri()})


def plain() -> str:
    return "opaque"


def with_its_end() -> tuple[str, float]:
    return "opaque", time.time() + 3600


def unreached() -> str:
    raise TimeoutError("hunter2")


def raises() -> str:
    raise KeyError("hunter2")


@pytest.mark.parametrize("name", ["plain", "with_its_end"])
def test_a_function_of_the_users_hands_out_tokens(name: str) -> None:
    assert token({PROVIDER: f"{__name__}.{name}", "sasl.jaas.config": ""}) == "opaque"


def test_a_function_that_does_not_get_through_may_be_tried_again() -> None:
    assert "failed: TimeoutError" in refused(BrokerUnavailableError, {PROVIDER: f"{__name__}.unreached"})
