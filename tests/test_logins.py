"""Logins as Kafka's Java clients have them, on a real broker: SASL_SSL by SCRAM and OAUTHBEARER, with Java's stores."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from kafka.admin import ScramMechanism, UserScramCredentialUpsertion
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.broker.certificates import CertificateAuthority
from tests.broker.java_stores import KEY_PASSWORD, STORE_PASSWORD, key_store, trust_store
from tests.broker.secure import OAUTHBEARER, SCRAM
from tests.broker.token_server import TokenServer
from tests.gateway.running import RunningGateway
from tests.reading import batch, log_end, log_end_by, options, rows, run_in_memory, stream, tier_segments
from tests.rigs.stack.tiered_stack import TieredStack
from tests.services import TOKEN_SESSION_MS, Cluster
from tiered_stream.broker.client import BrokerClient
from tiered_stream.errors import (
    BrokerAuthorizationError,
    BrokerUnavailableError,
    ConfigurationError,
    TieredStreamError,
)

pytestmark = pytest.mark.stack

TOPIC, ROWS = "guarded-by-java", 91
SECRET = "client-Secret-0815"


@dataclass(frozen=True)
class Guarded:
    """A stack whose listeners ask for a login, and where its tokens come from."""

    stack: TieredStack
    tokens: TokenServer
    folder: Path

    def tls(self, listener: str = "LOGIN") -> dict[str, str]:
        """The way in, as Java's clients are told it."""
        return {
            "bootstrap.servers": self.stack.broker.address(listener),
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(self.folder / "trust.jks"),
            "ssl.truststore.password": STORE_PASSWORD,
            "ssl.keystore.location": str(self.folder / "key.jks"),
            "ssl.keystore.password": STORE_PASSWORD,
            "ssl.key.password": KEY_PASSWORD,
        }

    def scram(self, listener: str = "LOGIN", password: str = SECRET) -> dict[str, str]:
        jaas = f'{SCRAM} required\n  username="reader"\n  password="{password}" ;\n'
        return {**self.tls(listener), "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas}

    def oauthbearer(self, listener: str = "LOGIN", secret: str = SECRET) -> dict[str, str]:
        return {
            **self.tls(listener),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f'{OAUTHBEARER} required clientId="reader" clientSecret="{secret}" scope="read";',
            "sasl.oauthbearer.token.endpoint.url": self.tokens.url,
        }

    def options(self, login: Mapping[str, str]) -> dict[str, str]:
        """Those of a query."""
        return options(self.stack, TOPIC, {f"kafka.{name}": value for name, value in login.items()})


@pytest.fixture(scope="module")
def guarded(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder, stack = tmp_path_factory.mktemp("guarded"), cluster.stack
    trust_store(cluster.authority.certificate, folder / "trust.jks")
    trust_store(CertificateAuthority().certificate, folder / "stranger.p12", "PKCS12")
    key_store(cluster.authority.issue("reader"), folder / "key.jks")
    with stack.broker.admin() as admin:
        admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("reader", ScramMechanism.SCRAM_SHA_512, SECRET)]
        )
    assert tier_segments(stack, TOPIC, [40, 50]) == ROWS
    with TokenServer({"reader": SECRET}, key_pem=cluster.signing_key) as tokens:
        yield Guarded(stack, tokens, folder)


end, end_by = partial(log_end, topic=TOPIC), partial(log_end_by, topic=TOPIC)


@pytest.mark.parametrize("mechanism", ["scram", "oauthbearer"])
def test_batch_and_stream_log_in_as_javas_clients_do(guarded: Guarded, spark: SparkSession, mechanism: str) -> None:
    login = guarded.scram() if mechanism == "scram" else guarded.oauthbearer()
    given = guarded.options(login)

    assert [row.offset for row in rows(batch(spark, given))] == list(range(ROWS))
    # From the brokers alone, so that tasks log in, too.
    through_brokers = {**given, "remote.log.locator": "none"}
    assert [row.offset for row in rows(batch(spark, through_brokers))] == list(range(ROWS))
    run_in_memory(stream(spark, through_brokers), f"by_{mechanism}")
    assert spark.table(f"by_{mechanism}").count() == ROWS


def test_a_plan_shows_no_secret(guarded: Guarded, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    for login in (guarded.scram(), guarded.oauthbearer()):
        frame = batch(spark, guarded.options(login))
        for mode in ("extended", "formatted"):
            frame.explain(mode=mode)
    shown = capsys.readouterr().out
    assert "tiered_stream" in shown
    assert not any(secret in shown for secret in (SECRET, STORE_PASSWORD, KEY_PASSWORD))


def wrong(guarded: Guarded, what: str) -> tuple[dict[str, str], type[TieredStreamError], str]:
    """A login that cannot be, and what it is told."""
    stranger = {"ssl.truststore.location": str(guarded.folder / "stranger.p12")}
    cases: dict[str, tuple[dict[str, str], type[TieredStreamError], str]] = {
        "password": (guarded.scram(password="hunter2"), BrokerAuthorizationError, "refused the login: .*kafka.sasl"),
        "client secret": (
            guarded.oauthbearer(secret="hunter2"),
            BrokerAuthorizationError,
            "token.endpoint.url = .* refused the client: 401 invalid_client; check clientId, clientSecret",
        ),
        "certificate that has expired": (guarded.scram("EXPIRED"), ConfigurationError, "TLS failed: .*expired"),
        "certificate for another host": (guarded.scram("OTHERNAME"), ConfigurationError, "TLS failed: .*127.0.0.1"),
        "authority": ({**guarded.oauthbearer(), **stranger}, ConfigurationError, "TLS failed: .*kafka.ssl"),
        "token": (
            {**guarded.oauthbearer(), "sasl.oauthbearer.token.endpoint.url": _file(guarded, "hunter2.hunter2.hunter2")},
            BrokerAuthorizationError,
            "refused the login",
        ),
    }
    return cases[what]


def _file(guarded: Guarded, token: str) -> str:
    path = guarded.folder / "token"
    path.write_text(token)
    return path.as_uri()


WRONG = (
    "password", "client secret", "certificate that has expired", "certificate for another host", "authority", "token",
)  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_login_is_told_clearly_and_without_secrets(
    guarded: Guarded, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    login, kind, said = wrong(guarded, what)

    with caplog.at_level("DEBUG"), pytest.raises(kind, match=said) as raised:
        end_by(login)

    secrets = ("hunter2", SECRET, STORE_PASSWORD, KEY_PASSWORD)
    assert not any(secret in text for secret in secrets for text in (str(raised.value), caplog.text))


def test_a_query_with_a_wrong_login_ends_with_the_same_error(guarded: Guarded, spark: SparkSession) -> None:
    login, kind, _ = wrong(guarded, "client secret")
    given = {**guarded.options(login), "fetchOffset.numRetries": "1"}

    with pytest.raises(PySparkException, match=kind.__name__) as raised:
        rows(batch(spark, given))

    assert "hunter2" not in str(raised.value)


def test_a_token_may_be_in_a_file(guarded: Guarded) -> None:
    url = _file(guarded, guarded.tokens.token("reader"))

    assert end_by({**guarded.oauthbearer(), "sasl.oauthbearer.token.endpoint.url": url}) == ROWS


def test_a_token_that_ends_is_followed_by_another_and_no_call_fails(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session ends with the token; the broker then asks for another login on the connection, or closes it."""
    monkeypatch.setattr(guarded.tokens, "life_seconds", 15)
    before = len(guarded.tokens.asked)
    with BrokerClient({**guarded.oauthbearer("SHORT"), "default.api.timeout.ms": "60000"}) as client:
        while len(guarded.tokens.asked) < before + 3:
            assert end(client) == ROWS
            time.sleep(0.1)


def test_sessions_that_the_broker_ends_cost_no_call(guarded: Guarded) -> None:
    """KIP-368."""
    ends = time.monotonic() + 3 * TOKEN_SESSION_MS / 1000
    with BrokerClient({**guarded.oauthbearer("SHORT"), "default.api.timeout.ms": "60000"}) as client:
        while time.monotonic() < ends:
            assert end(client) == ROWS
            time.sleep(0.2)


def test_an_endpoint_that_is_away_is_named_when_the_time_is_up(guarded: Guarded) -> None:
    away = {"sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/", "sasl.login.retry.backoff.max.ms": "0"}
    client = BrokerClient({**guarded.oauthbearer(), **away, "default.api.timeout.ms": "1000"})

    with client, pytest.raises(BrokerUnavailableError, match="127.0.0.1:1/': the token endpoint was not reached"):
        end(client)


def test_a_gateway_logs_in_by_the_same_settings_and_passes_its_clients_logins_on(
    guarded: Guarded, tmp_path: Path
) -> None:
    login = guarded.oauthbearer("NOCERT")
    of_storage = {name: value for name, value in guarded.stack.options().items() if name.startswith("remote.")}
    with RunningGateway(
        tmp_path / "gateway", {**of_storage, **{f"kafka.{name}": value for name, value in login.items()}}
    ) as gateway:
        through = {"bootstrap.servers": gateway.bootstrap_servers, "security.protocol": "SASL_PLAINTEXT"}
        assert end_by({**login, **through}) == ROWS
