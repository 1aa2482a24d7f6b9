from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from tests.gateway.requests import api_versions_response, read, request
from tiered_stream.broker.wire.location_messages import LOCATION_FEATURE
from tiered_stream.gateway.protocol import api_versions, broker_addresses
from tiered_stream.gateway.protocol.api_versions import check_version, rewrite_response
from tiered_stream.gateway.protocol.frames import FrameError, oldest_version


def rewritten(version: int, content: bytes) -> bytes:
    return rewrite_response(api_versions.API_VERSIONS, version, content, lambda _, broker: broker, 2)


@pytest.mark.parametrize("version", range(5))
def test_api_versions_offers_what_the_gateway_can_read_and_the_feature(version: int) -> None:
    offered = {
        0: (0, 13), 1: (4, 18), 3: (0, 99), 17: (0, 1), 18: (0, 9), 36: (0, 2), 55: (0, 2),
        78: (0, 3), 79: (0, 0), 99: (0, 7),
    }  # fmt: skip
    content = rewritten(version, api_versions_response(offered, version))
    found = read(ApiVersionsResponse, content, version)
    versions = {api.api_key: (api.min_version, api.max_version) for api in found.api_keys}
    assert versions == {
        0: (3, 3), 1: (4, 15), 3: (0, 13), 17: (1, 1), 18: (0, 4), 36: (0, 2)
    }  # fmt: skip
    features = {each.name: (each.min_version, each.max_version) for each in found.supported_features or ()}
    assert features == ({} if version < 3 else {"metadata.version": (1, 30), LOCATION_FEATURE: (1, 2)})


def test_a_broker_s_error_to_api_versions_is_passed_on() -> None:
    unsupported = api_versions_response({18: (0, 3)}, 0, error_code=35)
    assert rewritten(4, unsupported) == unsupported
    for version in range(5):  # the client's software has a name that is none: in the version that was asked in
        invalid = api_versions_response({}, version, error_code=42)
        assert rewritten(version, invalid) == invalid


def test_an_api_versions_of_the_future_hears_which_version_to_use() -> None:
    newest = request(ApiVersionsRequest(client_software_name="s", client_software_version="1"), 4, correlation_id=8)
    assert oldest_version(newest) == request(ApiVersionsRequest(), 0, correlation_id=8)
    content = rewritten(5, api_versions_response({18: (0, 5)}, 0, correlation_id=8))
    found = read(ApiVersionsResponse, content, 0)
    assert (found.error_code, found.api_keys[0].max_version) == (35, 4)


def test_versions_that_were_not_offered_are_refused_where_they_would_tell_addresses() -> None:
    for api_key in {1, *broker_addresses.VERSIONS}:
        newest = api_versions.READER_VERSIONS[api_key][1]
        with pytest.raises(FrameError, match="was not offered"):
            check_version(api_key, newest + 1)
        check_version(api_key, newest)
    check_version(api_versions.API_VERSIONS, 99)
    with pytest.raises(FrameError, match="served from version"):
        check_version(api_versions.SASL_HANDSHAKE, 0)


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
    for api_key in api_versions.READER_VERSIONS:
        check_version(api_key, 1)


@pytest.mark.parametrize("version", range(5))
@given(content=st.binary(max_size=120))
def test_any_api_versions_is_rewritten_or_a_frame_error(version: int, content: bytes) -> None:
    try:
        rewritten(version, bytes(6) + content)
    except FrameError:
        pass


@pytest.mark.parametrize("version", range(5))
def test_an_api_versions_that_is_cut_is_a_frame_error_where_the_gateway_reads_it(version: int) -> None:
    content = api_versions_response({0: (0, 13), 1: (4, 18)}, version)
    for end in range(4, len(content) if version >= 3 else 4 + 2 + 4 + 2 * 6):
        with pytest.raises(FrameError):
            rewritten(version, content[:end])
