"""Kafka's names for librdkafka's."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.broker.certificates import CertificateAuthority
from tests.golden import STORES
from tiered_stream.errors import ConfigurationError
from tiered_stream.replays.topic_settings import connection_config, producer_config, target_properties, without_target

SERVERS = {"bootstrap.servers": "127.0.0.1:1"}
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def test_settings_of_the_target_are_left_out_for_reading_in_any_case_of_letters() -> None:
    assert without_target({"Target.kafka.acks": "all", "subscribe": "orders"}) == {"subscribe": "orders"}


def test_every_known_property_is_one_that_librdkafka_takes(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    store = authority.issue("client", password="sesame").write(tmp_path / "client.pem")
    given = {
        **SERVERS, "acks": "all", "batch.size": "1000", "buffer.memory": "2097152", "client.dns.lookup":
        "use_all_dns_ips", "client.id": "me", "compression.type": "zstd", "compression.zstd.level": "7",
        "connections.max.idle.ms": "100000", "delivery.timeout.ms": "70000", "linger.ms": "7",
        "max.in.flight.requests.per.connection": "3", "max.request.size": "3000000", "metadata.max.age.ms": "9000",
        "reconnect.backoff.max.ms": "900", "reconnect.backoff.ms": "90", "request.timeout.ms": "9000", "retries": "9",
        "retry.backoff.max.ms": "900", "retry.backoff.ms": "90", "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": f'{SCRAM} username="al,ice=" password="s3cret";', "security.protocol": "SASL_SSL",
        "socket.connection.setup.timeout.ms": "9000", "ssl.endpoint.identification.algorithm": "",
        "ssl.key.password": "sesame", "ssl.keystore.location": str(store), "ssl.keystore.type": "PEM",
        "ssl.truststore.certificates": authority.certificate, "transaction.timeout.ms": "50000",
    }  # fmt: skip
    config = producer_config(given)
    Producer(config)
    assert config["sasl.username"] == "al,ice="
    assert config["sasl.password"] == "s3cret"
    assert config["queue.buffering.max.kbytes"] == 2048
    assert config["message.max.bytes"] == "3000000"
    assert config["ssl.endpoint.identification.algorithm"] == "none"
    assert config["ssl.key.location"] == str(store)
    Producer(connection_config(given))


def test_keys_and_certificates_as_text_on_one_line(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    identity = authority.issue("client")
    given = {
        "security.protocol": "SSL",
        "ssl.keystore.key": identity.key.replace("\n", " ").strip(),
        "ssl.keystore.certificate.chain": identity.certificate.replace("\n", " ").strip(),
        "ssl.truststore.certificates": authority.certificate.replace("\n", " ").strip(),
    }
    Producer(producer_config(SERVERS | given))


@pytest.mark.parametrize(("store", "key_password"), [("jks", "key-secret"), ("p12", "store-secret")])
def test_stores_of_java_are_handed_over_as_text(store: str, key_password: str) -> None:
    stores = {
        "ssl.keystore.location": str(STORES / f"key.{store}"), "ssl.keystore.password": "store-secret",
        "ssl.key.password": key_password,
        "ssl.truststore.location": str(STORES / f"trust.{store}"), "ssl.truststore.password": "store-secret",
    }  # fmt: skip

    config = connection_config({"bootstrap.servers": "b:1", "security.protocol": "SSL", **stores})

    assert {"ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem"} <= config.keys()
    Producer(config)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"enable.idempotence": "true"}, r"target.kafka.enable.idempotence must not be set: it is always on"),
        ({"transactional.id": "x"}, r"set target.transactional=true"),
        ({"linger": "1"}, r"target.kafka.linger is not known.*nearest known one is target.kafka.linger.ms$"),
        ({"queue.buffering.max.ms": "1"}, r"target.kafka.queue.buffering.max.ms is not known"),
        ({"buffer.memory": "lots"}, r"the target's kafka.buffer.memory = 'lots': must be a whole number"),
        ({"security.protocol": "SASL_SSL"}, r"the target's kafka.sasl.mechanism = 'GSSAPI' cannot be used to write"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
            r"the target's kafka.sasl.jaas.config is missing: PLAIN needs PlainLoginModule",
        ),
        ({"ssl.truststore.location": "/not/there"}, r"the target's kafka.ssl.truststore.location = '/not/there'"),
        ({"ssl.keystore.key": "key"}, r"the target's kafka.ssl.keystore.key and .* go together"),
    ],
)
def test_what_cannot_be_said_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        producer_config(SERVERS | given)


def test_without_a_cluster_of_its_own_the_target_is_in_the_sources() -> None:
    source = {**SERVERS, "security.protocol": "SSL", "max.partition.fetch.bytes": "9", "isolation.level": "x"}
    kept = {**SERVERS, "security.protocol": "SSL"}
    assert target_properties({"linger.ms": "5"}, source) == {**kept, "linger.ms": "5"}
    assert target_properties({"bootstrap.servers": "other:9092"}, source) == {"bootstrap.servers": "other:9092"}
    with pytest.raises(ConfigurationError, match=r"target.kafka.bootstrap.servers is missing"):
        target_properties({"linger.ms": "5"}, {})
