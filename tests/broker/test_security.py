"""Logins and permissions against a broker that asks for them."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka.admin import ACLOperation, ScramMechanism, UserScramCredentialUpsertion

from tests.broker.certificates import CertificateAuthority
from tests.broker.secure import grant, login_module
from tests.plan.planned_splits import plan_splits
from tests.rigs.stack.broker import KafkaBroker
from tests.rigs.stack.produce import RawProducer
from tests.rigs.stack.rows import Record
from tests.rigs.stack.topics import create_tiered_topic
from tests.services import Cluster
from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.list_offsets import BrokerOffsetReader
from tiered_stream.broker.record_fetch import FetchTerms, fetch_records
from tiered_stream.errors import BrokerAuthorizationError, BrokerUnavailableError, ConfigurationError
from tiered_stream.locate.log_source import open_log_source
from tiered_stream.locate.metadata_topic.remote_log_metadata import REMOTE_LOG_METADATA_TOPIC
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.parsing import parse_options
from tiered_stream.read.split_reader import read_split

pytestmark = pytest.mark.stack

TOPIC = "guarded-log"
PARTITION = TopicPartition(TOPIC, 0)


@dataclass(frozen=True)
class Secure:
    broker: KafkaBroker
    authority: CertificateAuthority
    trust_store: Path

    def client(self, listener: str, protocol: str, **properties: str) -> BrokerClient:
        given = {name.replace("_", "."): value for name, value in properties.items()}
        trusted = {} if "PLAINTEXT" in protocol else {"ssl.truststore.location": str(self.trust_store)}
        own = {"bootstrap.servers": self.broker.address(listener), "security.protocol": protocol}
        return BrokerClient({**own, **trusted, "default.api.timeout.ms": "60000", **given})

    def login(self, listener: str, protocol: str, mechanism: str, username: str, password: str) -> BrokerClient:
        jaas = login_module(mechanism, username, password)
        return self.client(listener, protocol, sasl_mechanism=mechanism, sasl_jaas_config=jaas)


@pytest.fixture(scope="module")
def secure(cluster: Cluster) -> Secure:
    """Judy and erin may read, ken may describe, leo nothing; TLS clients are known by their certificate."""
    broker = cluster.stack.broker
    create_tiered_topic(broker, TOPIC)
    _admit(broker)
    with RawProducer(broker) as producer:
        producer.send(TOPIC, [Record(value=b"v")] * 3)
    return Secure(broker, cluster.authority, cluster.trust_store)


def _admit(broker: KafkaBroker) -> None:
    read, describe = ACLOperation.READ, ACLOperation.DESCRIBE
    allowed = [
        *(("judy", read, TOPIC), ("ken", describe, TOPIC), ("dave", read, TOPIC), ("erin", read, TOPIC)),
        *(("judy", describe, REMOTE_LOG_METADATA_TOPIC), ("erin", read, REMOTE_LOG_METADATA_TOPIC)),
    ]
    with broker.admin() as admin:
        admin.create_acls([acl for user, operation, topic in allowed for acl in grant(user, topic, operation)])
        admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("dave", ScramMechanism.SCRAM_SHA_256, "dave,=secret")]
        )


def latest(client: BrokerClient) -> int:
    with client:
        return BrokerOffsetReader(client, IsolationLevel.READ_COMMITTED).latest([PARTITION])[PARTITION]


def test_plain_and_scram_logins_are_let_in(secure: Secure) -> None:
    for listener, protocol in (("SASL", "SASL_PLAINTEXT"), ("SASLSSL", "SASL_SSL")):
        assert latest(secure.login(listener, protocol, "PLAIN", "judy", "judy-secret")) == 3
        assert latest(secure.login(listener, protocol, "SCRAM-SHA-256", "dave", "dave,=secret")) == 3


def test_a_wrong_password_is_refused_at_once_and_never_shown(secure: Secure, caplog: pytest.LogCaptureFixture) -> None:
    client = secure.login("SASL", "SASL_PLAINTEXT", "PLAIN", "judy", "hunter2")

    with caplog.at_level("DEBUG"), pytest.raises(BrokerAuthorizationError, match="login") as raised:
        latest(client)

    assert "hunter2" not in str(raised.value)
    assert "hunter2" not in caplog.text


def test_a_mechanism_that_the_broker_does_not_offer_is_refused(secure: Secure) -> None:
    with pytest.raises(BrokerAuthorizationError, match="SCRAM-SHA-512"):
        latest(secure.login("SASL", "SASL_PLAINTEXT", "SCRAM-SHA-512", "dave", "dave-secret"))


def test_a_user_who_may_not_describe_the_topic_is_told_what_to_grant(secure: Secure) -> None:
    with pytest.raises(BrokerAuthorizationError, match="topic 'guarded-log': .* grant DESCRIBE"):
        latest(secure.login("SASL", "SASL_PLAINTEXT", "PLAIN", "leo", "leo-secret"))


def test_a_user_who_may_describe_but_not_read_is_told_what_to_grant(secure: Secure) -> None:
    with (
        secure.login("SASL", "SASL_PLAINTEXT", "PLAIN", "ken", "ken-secret") as client,
        pytest.raises(BrokerAuthorizationError, match="guarded-log-0, offset 0: .* grant READ"),
    ):
        fetch_records(client, PARTITION, 0, FetchTerms(IsolationLevel.READ_COMMITTED, max_bytes=1000, max_wait_ms=100))


@pytest.mark.parametrize(("user", "locator"), [("judy", None), ("erin", "metadata-topic")])
def test_auto_needs_read_on_the_metadata_topic_and_says_so(
    secure: Secure, user: str, locator: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Both may read the topic and describe the metadata topic, which only Erin may read.

    So for Judy, the brokers send everything if she has asked for it, and otherwise her query ends.
    """
    given = {
        "kafka.bootstrap.servers": secure.broker.address("SASL"),
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": login_module("PLAIN", user, f"{user}-secret"),
        "remote.storage.uri": secure.broker.tier_dir.as_uri(),
        "subscribe": TOPIC,
    }
    if locator is None:
        for fallback in ({}, {"remote.fallback": "fail"}):
            with pytest.raises(BrokerAuthorizationError, match="topic __remote_log_metadata"):
                open_log_source(parse_options({**given, **fallback}, streaming=False))
    options = parse_options({**given, "remote.fallback": "broker"}, streaming=False)
    with closing(open_log_source(options)) as tier:
        assert (tier.locator.name if tier.locator else None) == locator
        splits = plan_splits({PARTITION: OffsetRange(0, 3)}, tier.locator, split_bytes=options.split_bytes)
    assert sum(rows.num_rows for split in splits for rows in read_split(split, options)) == 3
    said = "__remote_log_metadata cannot be read: " in caplog.text
    assert said == ("grant READ on the topic" in caplog.text) == (locator is None)


def test_a_client_certificate_is_let_in(secure: Secure) -> None:
    reader = secure.authority.issue("reader", password="hunter2")
    identity = {"ssl_keystore_key": reader.key, "ssl_keystore_certificate_chain": reader.certificate}

    assert latest(secure.client("MTLS", "SSL", **identity, ssl_key_password="hunter2")) == 3


def test_a_missing_client_certificate_is_a_matter_of_configuration(secure: Secure) -> None:
    with pytest.raises(ConfigurationError, match=re.compile("TLS failed: .*certificate", re.IGNORECASE)):
        latest(secure.client("MTLS", "SSL"))


def test_a_client_without_login_is_given_up_with_a_hint_at_the_protocol(secure: Secure) -> None:
    client = secure.client("SASL", "PLAINTEXT", default_api_timeout_ms="1000")

    with pytest.raises(BrokerUnavailableError, match=r"kafka\.security\.protocol = PLAINTEXT"):
        latest(client)
