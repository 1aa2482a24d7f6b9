"""Responses that name brokers' addresses or API versions, rewritten for clients of the gateway. No I/O.

Fetch and Produce name the new leader's address when a leader moved (KIP-951). Produce's answers are small and are
rewritten; of Fetch, versions without that field are offered, and so they are of DescribeQuorum, which names the
controllers' addresses. DescribeTopicPartitions names brokers by id only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka.protocol.admin import DescribeClusterResponse
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorResponse,
    MetadataResponse,
)
from kafka.protocol.producer import ProduceResponse

from tiered_stream.broker.location_messages import LOCATION_FEATURE
from tiered_stream.gateway.endpoints import Address
from tiered_stream.gateway.frames import FrameError

PRODUCE, FETCH, METADATA, FIND_COORDINATOR, SASL_HANDSHAKE, API_VERSIONS, DESCRIBE_CLUSTER = 0, 1, 3, 10, 17, 18, 60
DESCRIBE_QUORUM = 55

Advertise = Callable[[int, Address], Address]
"""From a broker's node id and own address to the address that clients are told."""

_BROKERS = 1  # DescribeCluster's endpoint type; controllers are not reached through the gateway
_WITHOUT_ADDRESSES = {FETCH: 15, DESCRIBE_QUORUM: 1}
_UNSUPPORTED_VERSION = 35
_REWRITTEN: dict[int, Any] = {
    PRODUCE: ProduceResponse,
    METADATA: MetadataResponse,
    FIND_COORDINATOR: FindCoordinatorResponse,
    API_VERSIONS: ApiVersionsResponse,
    DESCRIBE_CLUSTER: DescribeClusterResponse,
}
_FIRST_PRODUCE_WITH_ENDPOINTS = 10
_FIRST_API_VERSIONS_WITH_FEATURES = 3
NEWEST_VERSIONS = {**_WITHOUT_ADDRESSES, **{key: message.max_version for key, message in _REWRITTEN.items()}}
"""The newest versions that clients are offered: of those that the gateway reads, the ones it knows."""


def is_rewritten(api_key: int, api_version: int) -> bool:
    """Whether the response to such a request goes through `rewrite_response`."""
    if api_key == PRODUCE:
        return _FIRST_PRODUCE_WITH_ENDPOINTS <= api_version <= int(NEWEST_VERSIONS[PRODUCE])
    return api_key in _REWRITTEN


def check_version(api_key: int, api_version: int) -> None:
    """Refuse what would tell clients addresses of brokers, or would not be understood.

    Raises:
        FrameError: the version is not one that was offered.
    """
    if api_version > NEWEST_VERSIONS.get(api_key, api_version) and not is_too_new(api_key, api_version):
        raise FrameError(f"API {api_key} was not offered in version {api_version}")
    if api_key == SASL_HANDSHAKE and api_version == 0:
        raise FrameError("a SASL login without Kafka's headers (clients before Kafka 1.0)")


def is_too_new(api_key: int, api_version: int) -> bool:
    """Whether it is an ApiVersions of the future: the client then wants to hear which version to use."""
    return api_key == API_VERSIONS and api_version > NEWEST_VERSIONS[API_VERSIONS]


def oldest_api_versions(correlation_id: int, client_id: str | None) -> bytes:
    """An ApiVersions request that every broker understands."""
    request = ApiVersionsRequest(version=0)
    request.with_header(correlation_id, client_id)
    return bytes(request.encode(version=0, header=True))


def rewrite_response(
    api_key: int, api_version: int, content: bytes, advertise: Advertise, feature_version: int
) -> bytes:
    """The response's content for clients.

    Raises:
        FrameError: it is not such a response.
        ConfigurationError: as `advertise`.
    """
    too_new = is_too_new(api_key, api_version)
    version = 0 if too_new else api_version
    message = decode(_REWRITTEN[api_key], content, version)
    if api_key == API_VERSIONS:
        if message.error_code:
            return content
        _limit_versions(message, version, feature_version)
        if too_new:
            message.error_code = _UNSUPPORTED_VERSION
    elif not _rewrite_addresses(api_key, version, message, advertise):
        return content
    return bytes(message.encode(header=True))


def decode(kind: Any, content: bytes, version: int) -> Any:
    """A message with its header.

    Raises:
        FrameError: the content is not one.
    """
    try:
        return kind.decode(content, version=version, header=True)
    except Exception as error:  # generated code raises whatever a wrong byte leads to
        raise FrameError(f"not a {kind.__name__} of version {version}: {type(error).__name__}: {error}") from error


def _rewrite_addresses(api_key: int, version: int, message: Any, advertise: Advertise) -> bool:
    """Replace each broker's address; False: there is none."""
    if api_key == PRODUCE:
        return _readdress(message.node_endpoints or (), "node_id", advertise)
    if api_key == METADATA:
        return _readdress(message.brokers, "node_id", advertise)
    if api_key == DESCRIBE_CLUSTER:
        return message.endpoint_type == _BROKERS and _readdress(message.brokers, "broker_id", advertise)
    found = message.coordinators if version >= 4 else [message]
    return _readdress([each for each in found if not each.error_code and each.node_id >= 0], "node_id", advertise)


def _readdress(brokers: Any, id_field: str, advertise: Advertise) -> bool:
    for broker in brokers:
        address = advertise(getattr(broker, id_field), Address(broker.host, broker.port))
        broker.host, broker.port = address.host, address.port
    return bool(brokers)


def _limit_versions(message: Any, version: int, feature_version: int) -> None:
    for api in message.api_keys:
        newest = NEWEST_VERSIONS.get(api.api_key)
        if newest is not None:
            api.max_version = min(api.max_version, newest)
        if api.api_key == SASL_HANDSHAKE:
            api.min_version = min(1, api.max_version)
    if version >= _FIRST_API_VERSIONS_WITH_FEATURES:
        feature = ApiVersionsResponse.SupportedFeatureKey(
            name=LOCATION_FEATURE, min_version=1, max_version=feature_version
        )
        others = [each for each in message.supported_features or () if each.name != LOCATION_FEATURE]
        message.supported_features = [*others, feature]
