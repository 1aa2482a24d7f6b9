from __future__ import annotations

import logging

import pytest

from tiered_stream.broker.config.client_properties import BrokerConfig
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.choices import IsolationLevel

SERVERS = {"bootstrap.servers": "a:9092"}


def test_the_bootstrap_servers_alone_give_the_defaults_of_kafkas_clients() -> None:
    config = BrokerConfig.parse(SERVERS)

    assert config.bootstrap_servers == "a:9092"
    assert (config.request_timeout_ms, config.api_timeout_ms, config.metadata_max_age_ms) == (30_000, 60_000, 300_000)
    assert config.isolation_level is None
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
    with pytest.raises(ConfigurationError, match=r"kafka.bootstrap.servers is missing"):
        BrokerConfig.parse(properties)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("request.timeout.ms", "soon"),
        ("request.timeout.ms", "-1"),
        ("default.api.timeout.ms", "1.5"),
        ("fetch.max.bytes", str(2**31)),
        ("connections.max.idle.ms", "-2"),
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


def test_words_are_taken_in_any_case() -> None:
    config = BrokerConfig.parse({**SERVERS, "isolation.level": "Read_Committed", "check.crcs": "FALSE"})

    assert config.isolation_level is IsolationLevel.READ_COMMITTED
    assert config.check_crcs is False


def test_the_smaller_of_kafkas_two_fetch_limits_holds_for_the_one_partition_of_a_fetch() -> None:
    assert BrokerConfig.parse({**SERVERS, "fetch.max.bytes": "1000"}).fetch_max_bytes == 1000
    assert BrokerConfig.parse({**SERVERS, "max.partition.fetch.bytes": "2000"}).fetch_max_bytes == 2000


def test_a_fetch_limit_of_a_gibibyte_raises_the_limit_of_an_answer() -> None:
    config = BrokerConfig.parse({**SERVERS, "fetch.max.bytes": str(1 << 30), "max.partition.fetch.bytes": str(1 << 30)})

    assert config.net["receive_message_max_bytes"] == 2**31 - 1


def test_connections_that_never_idle_out_stay_open() -> None:
    assert BrokerConfig.parse({**SERVERS, "connections.max.idle.ms": "-1"}).net["connections_max_idle_ms"] > 10**9


def test_names_of_the_group_protocol_are_accepted_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        BrokerConfig.parse(
            {**SERVERS, "group.id": "g", "max.poll.records": "x", "sasl.login.refresh.window.factor": ""}
        )

    assert caplog.messages == []


def test_an_unknown_name_is_logged_with_the_nearest_known_one_and_without_its_value(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        BrokerConfig.parse({**SERVERS, "secuirty.protocol": "hidden"})

    assert caplog.messages == [
        "kafka.secuirty.protocol is not a known Kafka client property (kafka.security.protocol?)"
    ]


def test_no_secret_is_in_the_repr() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hunter2";'
    config = BrokerConfig.parse(
        {**SERVERS, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    )

    assert config.net["sasl_plain_password"] == "hunter2"
    assert "hunter2" not in repr(config)
