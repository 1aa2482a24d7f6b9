"""Answers that name brokers' addresses: only the addresses change, in every version, whatever is around them."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.metadata import FindCoordinatorResponse, MetadataResponse

from tests.gateway.requests import read, response
from tiered_stream.broker.wire.kafka_python import ApiKey
from tiered_stream.gateway.protocol.api_versions import READER_VERSIONS, rewrite_response
from tiered_stream.gateway.protocol.broker_addresses import VERSIONS, Address
from tiered_stream.gateway.protocol.frames import FrameError

METADATA, FIND_COORDINATOR = ApiKey.Metadata, ApiKey.FindCoordinator
TOPIC_ID = UUID(int=3)
BROKERS = {0: Address("broker-0.example", 9092), 7: Address("b" * 200, 9099)}
ALL = [(api_key, version) for api_key, versions in VERSIONS.items() for version in versions]


def gateway(node_id: int, broker: Address) -> Address:
    assert broker == BROKERS[node_id]
    return Address("g" * (node_id + 1), 100 + node_id)


def unchanged(node_id: int, broker: Address) -> Address:
    return broker


def endpoints(kind: Any) -> list[Any]:
    return [
        kind(node_id=node_id, host=own.host, port=own.port, rack=rack)
        for (node_id, own), rack in zip(BROKERS.items(), (None, "rack"), strict=True)
    ]


def metadata(version: int) -> Any:
    kind = MetadataResponse.MetadataResponseTopic
    partitions = [
        kind.MetadataResponsePartition(
            error_code=0, partition_index=number, leader_id=7, leader_epoch=1,
            replica_nodes=[0, 7], isr_nodes=[7], offline_replicas=[],
        )
        for number in range(3)
    ]  # fmt: skip
    topic = kind(error_code=0, name="orders", topic_id=TOPIC_ID, is_internal=False, partitions=partitions)
    brokers = endpoints(MetadataResponse.MetadataResponseBroker)
    return MetadataResponse(throttle_time_ms=1, brokers=brokers, cluster_id="c", controller_id=7, topics=[topic] * 2)


def find_coordinator(version: int) -> Any:
    nobody = {"node_id": -1, "host": "", "port": -1, "error_code": 15, "error_message": "none"}
    found = [
        {"node_id": node_id, "host": own.host, "port": own.port, "error_code": 0, "error_message": None}
        for node_id, own in BROKERS.items()
    ]
    if version < 4:
        return FindCoordinatorResponse(throttle_time_ms=1, **found[1])
    kind = FindCoordinatorResponse.Coordinator
    return FindCoordinatorResponse(
        throttle_time_ms=1, coordinators=[kind(key="k", **each) for each in (nobody, *found)]
    )


MESSAGES = {METADATA: metadata, FIND_COORDINATOR: find_coordinator}


def made(api_key: int, version: int) -> bytes:
    return response(MESSAGES[api_key](version), version, correlation_id=5)


def named(message: Any) -> dict[int, Address]:
    """The addresses in a message, by node id; -1 is none."""
    listed = getattr(message, "brokers", None) or getattr(message, "coordinators", None) or [message]
    return {each.node_id: Address(each.host, each.port) for each in listed if each.node_id >= 0}


def everything_else(message: Any) -> str:
    return re.sub(r"(host|port)=[^,)]*", "", repr(message))


@pytest.mark.parametrize(("api_key", "version"), ALL)
def test_addresses_are_replaced_and_nothing_else_is(api_key: int, version: int) -> None:
    content = made(api_key, version)
    kind = type(MESSAGES[api_key](version))
    replaced = rewrite_response(api_key, version, content, gateway, 2)
    before, after = (read(kind, each, version) for each in (content, replaced))
    own = named(before)
    assert own and set(own) <= set(BROKERS), "the test's own message"
    assert named(after) == {node_id: gateway(node_id, address) for node_id, address in own.items()}
    assert everything_else(after) == everything_else(before) and after.header == before.header
    assert rewrite_response(api_key, version, content, unchanged, 2) == content


@pytest.mark.parametrize(("api_key", "version"), ALL)
def test_an_answer_that_is_cut_within_what_is_read_is_a_frame_error(api_key: int, version: int) -> None:
    content = made(api_key, version)
    read_to: list[int] = []

    def note(node_id: int, broker: Address) -> Address:
        read_to.append(content.index(broker.host.encode(), read_to[-1] if read_to else 0) + len(broker.host))
        return broker

    rewrite_response(api_key, version, content, note, 2)
    for end in range(4, read_to[-1]):
        with pytest.raises(FrameError):
            rewrite_response(api_key, version, content[:end], unchanged, 2)


@pytest.mark.parametrize(("api_key", "version"), ALL)
@given(start=st.integers(4, 200), noise=st.binary(min_size=1, max_size=40))
def test_any_bytes_are_rewritten_or_a_frame_error(api_key: int, version: int, start: int, noise: bytes) -> None:
    content = made(api_key, version)
    damaged = content[:start] + noise + content[start + len(noise) :]
    try:
        rewrite_response(api_key, version, damaged, lambda node_id, broker: Address("gateway", 1), 2)
    except FrameError:
        pass


@pytest.mark.parametrize(("api_key", "version"), [(METADATA, 8), (METADATA, 12), (FIND_COORDINATOR, 4)])
def test_a_null_array_is_passed_on(api_key: int, version: int) -> None:
    """Kafka's definitions allow none there; the client hears what the broker says."""
    flexible = version != 8
    body = bytes(4) + (b"\0" if flexible else b"\xff" * 4) + b"rest"
    content = bytes(4) + (b"\0" if flexible else b"") + body
    assert rewrite_response(api_key, version, content, gateway, 2) == content


def test_an_overlong_number_is_refused_at_its_sixth_byte() -> None:
    content = bytes(4) + b"\0" + bytes(4) + b"\xff" * 600_000
    with pytest.raises(FrameError, match="too long"):
        rewrite_response(METADATA, 12, content, gateway, 2)


NO_BROKERS_ADDRESS = {
    "ConsumerGroupDescribe": "clients, as the brokers see them",
    "DescribeGroups": "clients, as the brokers see them",
}
"""Answers with a host that is no broker's."""


def definitions() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Request and response of each API that clients may ask brokers, as the stack's Kafka defines them."""
    from tests.rigs.stack.jars import jar_paths

    (jar,) = [path for path in jar_paths("kafka") if path.name.startswith("kafka-clients-")]
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith("common/message/") and name.endswith("Request.json"):
                request, answer = (definition(archive, each) for each in (name, name.replace("Request.", "Response.")))
                if "broker" in request.get("listeners", ()):
                    yield request, answer


def definition(archive: zipfile.ZipFile, name: str) -> dict[str, Any]:
    text = archive.read(name).decode()
    found: dict[str, Any] = json.loads(re.sub(r'(?m)^\s*//.*$|\s//[^"\n]*$', "", text))
    return found


def hosts(fields: list[Mapping[str, Any]], structs: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """The first and last version of each field that is a host."""
    for field in fields:
        if field["name"].endswith("Host") or field["name"] == "Listeners":
            first, _, last = field["versions"].partition("-")
            yield int(first.removesuffix("+")), int(last or (32767 if "+" in first else first))
        inner = field.get("fields") or structs.get(field["type"].removeprefix("[]"), [])
        yield from hosts(inner, structs)


@pytest.mark.stack
def test_no_version_that_is_offered_names_a_broker_s_address_that_stays() -> None:
    seen = set()
    for request, answer in definitions():
        api_key, name = request["apiKey"], request["name"].removesuffix("Request")
        if request["validVersions"] == "none" or api_key not in READER_VERSIONS:
            continue
        newest = int(request["validVersions"].rpartition("-")[2])
        structs = {each["name"]: each["fields"] for each in answer.get("commonStructs", [])}
        for first, last in hosts(answer["fields"], structs):
            offered = range(first, min(last, newest, READER_VERSIONS[api_key][1]) + 1)
            left = set(offered) - set(VERSIONS.get(api_key, ()))
            assert not left or name in NO_BROKERS_ADDRESS, f"{name}: versions {sorted(left)} name a host"
            seen.add(name)
    rewritten = {"Metadata", "FindCoordinator"}
    assert seen == rewritten | {"Fetch"} | NO_BROKERS_ADDRESS.keys()
