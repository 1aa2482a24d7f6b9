from __future__ import annotations

import logging

import pytest

from tests.golden import STORES
from tiered_stream.broker import kafka_properties
from tiered_stream.broker.client_properties import BrokerConfig
from tiered_stream.broker.kafka_properties import CLIENT_PROPERTIES
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.types import KnownProperty, Use

SERVERS = {"bootstrap.servers": "a:9092"}


def test_the_bootstrap_servers_alone_give_the_defaults_of_kafkas_clients() -> None:
    config = BrokerConfig.parse(SERVERS)

    assert config.bootstrap_servers == "a:9092"
    assert (config.request_timeout_ms, config.api_timeout_ms, config.metadata_max_age_ms) == (30_000, 60_000, 300_000)
    assert config.isolation_level is IsolationLevel.READ_COMMITTED
    assert config.net["security_protocol"] == "PLAINTEXT"
    assert config.net["reconnect_backoff_max_ms"] == 1_000


def test_blanks_and_empty_entries_between_bootstrap_servers_are_dropped() -> None:
    config = BrokerConfig.parse({"bootstrap.servers": " a:1 , ,PLAINTEXT://b:2,[::1]:3"})

    assert config.bootstrap_servers == "a:1,PLAINTEXT://b:2,[::1]:3"


@pytest.mark.parametrize("servers", ["a", "a:", ":9092", "a:0", "a:65536", "a:b", "a:1;b:2", "::1:9092"])
def test_a_bootstrap_server_that_is_not_host_and_port_is_named(servers: str) -> None:
    with pytest.raises(ConfigurationError, match=r"kafka.bootstrap.servers.*not host:port") as raised:
        BrokerConfig.parse({"bootstrap.servers": servers})

    assert repr(servers) in str(raised.value)


@pytest.mark.parametrize("properties", [{}, {"bootstrap.servers": ""}, {"bootstrap.servers": " , "}])
def test_missing_bootstrap_servers_are_named(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=r"kafka\.bootstrap\.servers "):
        BrokerConfig.parse(properties)


@pytest.mark.contract("1.2 other settings of Kafka's clients")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("request.timeout.ms", "soon"),
        ("request.timeout.ms", "-1"),
        ("default.api.timeout.ms", "1.5"),
        ("fetch.max.bytes", str(2**31)),
        ("connections.max.idle.ms", "never"),
        ("metadata.max.age.ms", str(2**63)),
        ("fetch.min.bytes", "1_000"),
        ("isolation.level", "READ_COMMITTED"),
        ("client.dns.lookup", "default"),
        ("security.protocol", "TLS"),
        ("isolation.level", "serializable"),
        ("check.crcs", "yes"),
        ("client.dns.lookup", "never"),
        ("receive.buffer.bytes", "64k"),
    ],
)
def test_a_malformed_value_is_shown_under_its_kafka_name(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        BrokerConfig.parse({**SERVERS, name: value})

    assert f"kafka.{name} = {value!r}" in str(raised.value)


@pytest.mark.contract("1.2 other settings of Kafka's clients")
def test_values_are_read_as_java_reads_them() -> None:
    given = {
        "isolation.level": "read_committed ", "check.crcs": " FALSE", "fetch.min.bytes": " +0\t",
        "request.timeout.ms": "٣",
    }  # fmt: skip
    config = BrokerConfig.parse({**SERVERS, **given, "connections.max.idle.ms": "-2", "retry.backoff.ms": str(2**40)})

    assert config.isolation_level is IsolationLevel.READ_COMMITTED
    assert config.check_crcs is False
    assert config.fetch_min_bytes == 0
    assert config.request_timeout_ms == 3
    assert config.retry_backoff_ms == 2**31 - 1


def test_the_smaller_of_kafkas_two_fetch_limits_holds_for_the_one_partition_of_a_fetch() -> None:
    assert BrokerConfig.parse({**SERVERS, "fetch.max.bytes": "1000"}).fetch_max_bytes == 1000
    assert BrokerConfig.parse({**SERVERS, "max.partition.fetch.bytes": "2000"}).fetch_max_bytes == 2000


def test_a_fetch_limit_of_a_gibibyte_raises_the_limit_of_an_answer() -> None:
    config = BrokerConfig.parse({**SERVERS, "fetch.max.bytes": str(1 << 30), "max.partition.fetch.bytes": str(1 << 30)})

    assert config.net["receive_message_max_bytes"] == 2**31 - 1


def test_connections_that_never_idle_out_stay_open() -> None:
    assert BrokerConfig.parse({**SERVERS, "connections.max.idle.ms": "-1"}).net["connections_max_idle_ms"] > 10**9


def warnings(caplog: pytest.LogCaptureFixture, **properties: str) -> list[str]:
    with caplog.at_level(logging.WARNING):
        BrokerConfig.parse({**SERVERS, **properties})
    return caplog.messages


NO_EFFECT = [each for each in CLIENT_PROPERTIES.values() if each.use is Use.NO_EFFECT]


@pytest.mark.parametrize("known", NO_EFFECT, ids=lambda known: known.name)
def test_a_property_without_effect_is_named_in_a_warning(
    known: KnownProperty, caplog: pytest.LogCaptureFixture
) -> None:
    assert warnings(caplog, **{known.name: "x"}) == [f"kafka.{known.name} has no effect: {known.doc}"]


@pytest.mark.parametrize("name", [each.name for each in CLIENT_PROPERTIES.values() if each.use is Use.REFUSED])
def test_a_property_that_asks_for_what_cannot_be_done_is_an_error(name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"kafka\.{name} .*not supported"):
        BrokerConfig.parse({**SERVERS, name: "hunter2"})


LOGIN = {
    "security.protocol": "SASL_SSL",
    "ssl.truststore.location": str(STORES / "trust.jks"), "ssl.truststore.password": "store-secret",
    "ssl.keystore.location": str(STORES / "key.jks"), "ssl.keystore.password": "store-secret",
    "ssl.key.password": "key-secret", "ssl.keystore.type": "JKS", "ssl.truststore.type": "JKS",
}  # fmt: skip
OAUTHBEARER = {
    **LOGIN, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/",
    "sasl.oauthbearer.client.credentials.client.id": "a", "sasl.oauthbearer.client.credentials.client.secret": "b",
}  # fmt: skip
SETTINGS = (
    OAUTHBEARER,
    {**LOGIN, "sasl.mechanism": "PLAIN", "sasl.jaas.config": 'PlainLoginModule required username="a" password="b";'},
    {**LOGIN, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.provider": "time.time"},
)


def test_every_honoured_property_is_read_in_one_setting_or_another(monkeypatch: pytest.MonkeyPatch) -> None:
    honoured = {each.name for each in CLIENT_PROPERTIES.values() if each.use is Use.HONOURED}
    read: set[str] = set()
    monkeypatch.setattr(kafka_properties, "warn_of_unread", lambda _, names_read, __: read.update(names_read))
    for settings in SETTINGS:
        BrokerConfig.parse({**SERVERS, **settings})

    # Its package is not everywhere.
    assert honoured - read == {"sasl.kerberos.service.name"}


@pytest.mark.parametrize("settings", SETTINGS)
def test_settings_that_go_together_are_taken_in_silence(
    settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    assert warnings(caplog, **settings) == []


def test_a_property_that_the_others_leave_without_effect_is_named_in_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert warnings(caplog, **{"ssl.key.password": "hunter2", "sasl.mechanism": "PLAIN"}) == [
        f"kafka.{name} has no effect with the other settings (kafka.security.protocol = PLAINTEXT)"
        for name in ("sasl.mechanism", "ssl.key.password")
    ]


def test_options_of_the_source_that_are_named_as_kafkas_are_accepted_in_silence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    timeouts = {"fetch.remote.connect.timeout.ms": "1", "fetch.remote.read.timeout.ms": "1"}
    assert warnings(caplog, **timeouts, **{"remote.storage.fetcher.class": "a.B"}) == []


def test_an_unknown_name_is_logged_with_the_nearest_known_one_and_without_its_value(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert warnings(caplog, **{"secuirty.protocol": "hidden"}) == [
        "kafka.secuirty.protocol is not a known Kafka client property (kafka.security.protocol?)"
    ]


def test_no_secret_is_in_the_repr() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hunter2";'
    config = BrokerConfig.parse(
        {**SERVERS, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    )

    assert config.net["sasl_plain_password"] == "hunter2"
    assert "hunter2" not in repr(config)
