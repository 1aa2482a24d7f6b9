from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.metadata import ApiVersionsResponse, FindCoordinatorResponse, MetadataResponse

from tests.gateway.requests import api_versions_response, metadata_response, read, response
from tiered_stream.broker.wire.location_messages import LOCATION_FEATURE
from tiered_stream.gateway.protocol import api_versions
from tiered_stream.gateway.protocol.api_versions import check_version, oldest_api_versions, rewrite_response
from tiered_stream.gateway.protocol.broker_addresses import Address
from tiered_stream.gateway.protocol.frames import FrameError, request_head

OWN = {1: ("broker-1", 9092), 2: ("broker-2", 9093)}


def advertise(node_id: int, broker: Address) -> Address:
    assert (broker.host, broker.port) == OWN[node_id]
    return Address("gateway", 100 + node_id)


def rewritten(api_key: int, version: int, content: bytes) -> bytes:
    return rewrite_response(api_key, version, content, advertise, 2)


@pytest.mark.parametrize("version", range(14))
def test_metadata_names_the_gateway_s_ports_in_every_version(version: int) -> None:
    content = rewritten(api_versions.METADATA, version, metadata_response(OWN, version, correlation_id=5))
    found = read(MetadataResponse, content, version)
    assert [(broker.node_id, broker.host, broker.port) for broker in found.brokers] == [
        (1, "gateway", 101), (2, "gateway", 102),
    ]  # fmt: skip
    assert found.header.correlation_id == 5


@pytest.mark.parametrize("version", range(7))
def test_a_coordinator_is_reached_through_the_gateway_in_every_version(version: int) -> None:
    where = {"node_id": 2, "host": "broker-2", "port": 9093, "error_code": 0, "error_message": None}
    coordinator = FindCoordinatorResponse.Coordinator
    none = coordinator(key="other", node_id=-1, host="", port=-1, error_code=15, error_message="no")
    fields = {"coordinators": [coordinator(key="group", **where), none]} if version >= 4 else where
    message = FindCoordinatorResponse(throttle_time_ms=0, **fields)
    found: Any = read(
        FindCoordinatorResponse,
        rewritten(api_versions.FIND_COORDINATOR, version, response(message, version)),
        version,
    )
    if version >= 4:
        assert (found.coordinators[1].host, found.coordinators[1].port) == ("", -1)
        found = found.coordinators[0]
    assert (found.node_id, found.host, found.port) == (2, "gateway", 102)


@pytest.mark.parametrize("version", range(5))
def test_api_versions_offers_what_the_gateway_can_read_and_the_feature(version: int) -> None:
    offered = {
        0: (0, 13), 1: (4, 18), 3: (0, 99), 17: (0, 1), 18: (0, 9), 36: (0, 2), 55: (0, 2),
        78: (0, 3), 79: (0, 0), 99: (0, 7),
    }  # fmt: skip
    content = rewritten(api_versions.API_VERSIONS, version, api_versions_response(offered, version))
    found = read(ApiVersionsResponse, content, version)
    versions = {api.api_key: (api.min_version, api.max_version) for api in found.api_keys}
    assert versions == {
        0: (3, 3), 1: (4, 15), 3: (0, 13), 17: (1, 1), 18: (0, 4), 36: (0, 2)
    }  # fmt: skip
    features = {each.name: (each.min_version, each.max_version) for each in found.supported_features or ()}
    assert features == ({} if version < 3 else {"metadata.version": (1, 30), LOCATION_FEATURE: (1, 2)})


def test_a_broker_s_error_to_api_versions_is_passed_on() -> None:
    unsupported = api_versions_response({18: (0, 3)}, 0, error_code=35)
    assert rewritten(api_versions.API_VERSIONS, 4, unsupported) == unsupported
    for version in range(5):  # the client's software has a name that is none: in the version that was asked in
        invalid = api_versions_response({}, version, error_code=42)
        assert rewritten(api_versions.API_VERSIONS, version, invalid) == invalid


def test_an_api_versions_of_the_future_hears_which_version_to_use() -> None:
    asked = request_head(oldest_api_versions(8, "client"))
    assert (asked.api_key, asked.api_version, asked.correlation_id) == (18, 0, 8)
    content = rewritten(api_versions.API_VERSIONS, 5, api_versions_response({18: (0, 5)}, 0, correlation_id=8))
    found = read(ApiVersionsResponse, content, 0)
    assert (found.error_code, found.api_keys[0].max_version) == (35, 4)


def test_versions_that_were_not_offered_are_refused_where_they_would_tell_addresses() -> None:
    for api_key in api_versions.NEWEST_VERSIONS.keys() - {api_versions.API_VERSIONS}:
        with pytest.raises(FrameError, match="was not offered"):
            check_version(api_key, api_versions.NEWEST_VERSIONS[api_key] + 1)
        check_version(api_key, api_versions.NEWEST_VERSIONS[api_key])
    check_version(api_versions.API_VERSIONS, 99)
    with pytest.raises(FrameError, match="served from version"):
        check_version(api_versions.SASL_HANDSHAKE, 0)
    check_version(api_versions.API_VERSIONS, 99)


@pytest.mark.parametrize(
    ("api_key", "name"),
    [(0, "Produce"), (19, "CreateTopics"), (22, "InitProducerId"), (55, "DescribeQuorum"), (60, "DescribeCluster"),
     (78, "ShareFetch"), (79, "ShareAcknowledge"), (999, "API 999"), (-1, "API -1")],
)  # fmt: skip
def test_what_readers_do_not_send_is_refused_by_name(api_key: int, name: str) -> None:
    for version in (0, 3, 13):
        with pytest.raises(FrameError, match=f"{name}.* refused"):
            check_version(api_key, version)


def test_every_api_of_a_reader_passes() -> None:
    for api_key in api_versions.READER_APIS:
        check_version(api_key, 1)


@pytest.mark.parametrize("version", range(5))
@given(content=st.binary(max_size=120))
def test_any_api_versions_is_rewritten_or_a_frame_error(version: int, content: bytes) -> None:
    try:
        rewritten(api_versions.API_VERSIONS, version, bytes(6) + content)
    except FrameError:
        pass


@pytest.mark.parametrize("version", range(5))
def test_an_api_versions_that_is_cut_is_a_frame_error_where_the_gateway_reads_it(version: int) -> None:
    content = api_versions_response({0: (0, 13), 1: (4, 18)}, version)
    for end in range(4, len(content) if version >= 3 else 4 + 2 + 4 + 2 * 6):
        with pytest.raises(FrameError):
            rewritten(api_versions.API_VERSIONS, version, content[:end])
