from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.broker.certificates import CertificateAuthority
from tiered_stream.errors import ConfigurationError
from tiered_stream.gateway.gateway_program import name_signed_host, warn_of_plaintext
from tiered_stream.gateway.gateway_settings import GatewaySettings
from tiered_stream.options.settings_files import read_settings

GIVEN = {
    "kafka.bootstrap.servers": "broker:9092",
    "gateway.advertised.host": "gateway",
    "remote.storage.uri": "s3://tier",
}


def test_the_example_is_a_settings_file() -> None:
    settings = GatewaySettings.parse(read_settings(Path(__file__).parents[2] / "conf" / "gateway.properties"))
    assert settings.advertised_host == "gateway.example.com"
    assert settings.broker_ports == range(19100, 19200)
    assert (settings.signed_location_seconds, settings.bootstrap_port) == (900, 19092)


@pytest.mark.parametrize("missing", sorted(GIVEN.keys() - {"kafka.bootstrap.servers"}))
def test_what_is_missing_is_named(missing: str) -> None:
    with pytest.raises(ConfigurationError, match=missing):
        GatewaySettings.parse({name: value for name, value in GIVEN.items() if name != missing})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gateway.broker.ports", "200-100"),
        ("gateway.broker.ports", "many"),
        ("gateway.bootstrap.port", "70000"),
        ("gateway.signed.location.lifetime.seconds", "9999999"),
        ("gateway.listener.security.protocol", "SASL"),
        ("gateway.no.such", "1"),
        ("remote.no.such", "1"),
    ],
)
def test_what_is_wrong_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=name.replace(".", r"\.")):
        GatewaySettings.parse({**GIVEN, name: value})


@pytest.mark.parametrize(
    ("mistyped", "meant"),
    [
        ("getway.listener.security.protocol", "gateway.listener.security.protocol"),
        ("gateway.listener.security.protocl", "gateway.listener.security.protocol"),
        ("kafak.bootstrap.servers", "kafka.bootstrap.servers"),
        ("romote.storage.uri", "remote.storage.uri"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
    ],
)
def test_a_name_that_nobody_knows_is_refused_with_the_near_one(mistyped: str, meant: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        GatewaySettings.parse({**GIVEN, mistyped: "SSL"})
    assert str(caught.value) == f"setting {mistyped} is unknown; the nearest known one is {meant}"


def test_a_reader_s_option_is_warned_of_and_a_pasted_broker_property_is_not(caplog: pytest.LogCaptureFixture) -> None:
    pasted = {"remote.log.storage.system.enable": "true", "rsm.config.dir": "/tier", "REMOTE.storage.S3.region": "x"}
    GatewaySettings.parse({**GIVEN, **pasted, "remote.log.locator": "auto"})
    assert caplog.messages == ["setting remote.log.locator has no effect on a gateway: remove it"]


def test_a_request_to_the_storage_ends_before_clients_give_the_gateway_up() -> None:
    storage = GatewaySettings.parse(GIVEN).storage
    assert storage.request_timeout_ms == 20_000 and storage.has_fallback
    for name in ("remote.fetch.request.timeout.ms", "Remote.Fetch.Request.Timeout.ms"):
        assert GatewaySettings.parse({**GIVEN, name: "90000"}).storage.request_timeout_ms == 90_000


@pytest.mark.parametrize("name", ["gateway.listener.ssl.key.password", "kafka.ssl.key.password", "rsm.config.dir"])
def test_a_placeholder_that_only_a_broker_fills_in_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"option {name} .*\$\{{strimzienv:…"):
        GatewaySettings.parse({**GIVEN, name: "${strimzienv:SECRET}"})


def test_a_listener_with_tls_needs_its_key(tmp_path: Path) -> None:
    tls = {**GIVEN, "gateway.listener.security.protocol": "SSL"}
    with pytest.raises(ConfigurationError, match=r"keystore\.location"):
        GatewaySettings.parse(tls)
    store = CertificateAuthority().issue("gateway", password="right").write(tmp_path / "store.pem")
    tls["gateway.listener.ssl.keystore.location"] = str(store)
    with pytest.raises(ConfigurationError, match=r"gateway\.listener\.ssl\.keystore\.location") as caught:
        GatewaySettings.parse({**tls, "gateway.listener.ssl.key.password": "wrong-one"})
    assert "wrong-one" not in str(caught.value)
    assert GatewaySettings.parse({**tls, "gateway.listener.ssl.key.password": "right"}).listener_tls is not None


def test_clients_requests_never_go_to_brokers_under_the_gateway_s_certificate(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    own = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": str(authority.write(tmp_path / "trust.pem")),
        "kafka.ssl.keystore.location": str(tmp_path / "is-not-even-read.pem"),
    }
    assert GatewaySettings.parse({**GIVEN, **own}).broker_tls is not None


def test_no_secret_is_in_the_repr() -> None:
    secret = {
        "kafka.sasl.jaas.config": "password-of-the-gateway",
        "remote.storage.aws.access.key.id": "id",
        "remote.storage.aws.secret.access.key": "storage-key",
    }
    shown = repr(GatewaySettings.parse({**GIVEN, **secret}))
    assert "password-of-the-gateway" not in shown and "storage-key" not in shown


def test_who_signs_on_a_plaintext_listener_is_warned(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_plaintext(GatewaySettings.parse({**GIVEN, "gateway.signed.location.lifetime.seconds": "0"}))
    assert not caplog.records
    warn_of_plaintext(GatewaySettings.parse(GIVEN))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "gateway.listener.security.protocol=PLAINTEXT: " in record.message
    assert "900 seconds" in record.message


@pytest.mark.parametrize(
    ("storage", "hosts"),
    [
        ({"remote.storage.s3.endpoint.url": "http://minio:9000"}, "http://minio:9000,http://*.minio:9000"),
        (
            {"remote.storage.s3.endpoint.url": "https://s3/", "remote.storage.s3.path.style.access.enabled": "true"},
            "https://s3",
        ),
        (
            {
                "remote.storage.uri": "az://tier",
                "remote.storage.azure.account.name": "dev",
                "remote.storage.azure.endpoint.url": "http://azurite:10000/dev",
            },
            "http://azurite:10000",
        ),
    ],
)
def test_the_gateway_says_at_its_start_which_hosts_readers_have_to_list(
    storage: dict[str, str], hosts: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tiered_stream")
    name_signed_host(GatewaySettings.parse({**GIVEN, **storage}))
    (record,) = caplog.records
    assert record.message.endswith(f"need remote.signed.location.hosts={hosts}")


def test_readers_need_to_list_no_host_of_a_cloud_s_own_and_none_where_nothing_is_signed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "tiered_stream")
    name_signed_host(GatewaySettings.parse(GIVEN))
    other = {"remote.storage.s3.endpoint.url": "http://minio:9000", "gateway.signed.location.lifetime.seconds": "0"}
    name_signed_host(GatewaySettings.parse({**GIVEN, **other}))
    assert not caplog.records
