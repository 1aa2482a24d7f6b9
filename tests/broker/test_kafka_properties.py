from __future__ import annotations

import re
import subprocess

import pytest

from tests.rigs.stack.jars import jar_paths
from tests.rigs.stack.java import java_command
from tiered_stream.broker.kafka_properties import CLIENT_PROPERTIES, INTEGERS
from tiered_stream.options.types import Use

_ENTRY = re.compile(r'<h4><a id="([a-z.]+)">.*?<th>Default:</th><td>(.*?)</td>', re.DOTALL)
OTHER_DEFAULTS = {
    *("client.id", "isolation.level", "max.partition.fetch.bytes", "receive.buffer.bytes", "send.buffer.bytes"),
    *("sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms", "sasl.oauthbearer.jwt.retriever.class"),
}
"""Of which the table says why, or which come to the same."""


def documented(client: str) -> dict[str, str]:
    """Names and defaults on the page of the documentation that Kafka's own class prints."""
    command = java_command(f"org.apache.kafka.clients.{client}", jar_paths("kafka"), ())
    page = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {name: default.split(" (")[0].strip('"').removeprefix("null") for name, default in _ENTRY.findall(page)}
    assert len(found) > 80
    return found


@pytest.mark.stack
def test_every_property_of_kafkas_admin_client_is_declared() -> None:
    assert documented("admin.AdminClientConfig").keys() - CLIENT_PROPERTIES.keys() == set()


@pytest.mark.stack
def test_every_property_of_kafkas_consumer_is_declared_with_its_default() -> None:
    found = documented("consumer.ConsumerConfig")

    assert found.keys() - CLIENT_PROPERTIES.keys() == set()
    honoured = {name for name in found if CLIENT_PROPERTIES[name].use is Use.HONOURED} - OTHER_DEFAULTS
    assert {name: CLIENT_PROPERTIES[name].default for name in honoured} == {name: found[name] for name in honoured}


@pytest.mark.parametrize(
    ("name", "smallest", "largest"),
    [("sasl.login.refresh.min.period.seconds", 0, 900), ("sasl.login.refresh.buffer.seconds", 0, 3600)],
)
def test_a_number_may_be_as_small_and_as_large_as_for_kafka(name: str, smallest: int, largest: int) -> None:
    parse = INTEGERS[name].parse
    assert [parse(str(number)) for number in (smallest, largest)] == [smallest, largest]
    for number in (smallest - 1, largest + 1):
        with pytest.raises(ValueError, match="must be"):
            parse(str(number))


def test_every_declaration_says_what_or_why() -> None:
    assert all(each.doc for each in CLIENT_PROPERTIES.values())
    assert {each.use for each in CLIENT_PROPERTIES.values()} == set(Use)
