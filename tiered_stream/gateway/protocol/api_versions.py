"""APIs and versions that the gateway passes on and offers, and rewriting of the responses that name them. No I/O.

Clients are offered only the APIs that readers use: Kafka's own consumers and group tools, librdkafka, franz-go,
kafkajs, kafka-python and our own client. Producers and admin clients must connect to the brokers. Newer Fetch responses
name the address of a leader that has moved (KIP-951). Fetch responses are large and are passed on unread. So clients
are offered only Fetch versions without that address.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct

from kafka.protocol.metadata import ApiVersionsRequest

from tiered_stream.broker.wire.kafka_python import ApiKey, api_name
from tiered_stream.broker.wire.location_messages import LOCATION_FEATURE
from tiered_stream.errors import ConfigurationError
from tiered_stream.gateway.protocol import broker_addresses
from tiered_stream.gateway.protocol.broker_addresses import Advertise
from tiered_stream.gateway.protocol.frames import CORRELATION_ID_BYTES, FrameError
from tiered_stream.records.flexible_versions import NO_TAGS, Reader, compact_array, compact_string, tagged_fields

FETCH, METADATA, FIND_COORDINATOR = ApiKey.Fetch, ApiKey.Metadata, ApiKey.FindCoordinator
SASL_HANDSHAKE, API_VERSIONS = ApiKey.SaslHandshake, ApiKey.ApiVersions

READER_APIS = frozenset(
    {
        API_VERSIONS, SASL_HANDSHAKE, ApiKey.SaslAuthenticate, METADATA, ApiKey.ListOffsets, FETCH,
        ApiKey.OffsetForLeaderEpoch, FIND_COORDINATOR, ApiKey.JoinGroup, ApiKey.SyncGroup, ApiKey.Heartbeat,
        ApiKey.LeaveGroup, ApiKey.ConsumerGroupHeartbeat, ApiKey.OffsetCommit, ApiKey.OffsetFetch,
        ApiKey.DescribeGroups, ApiKey.ConsumerGroupDescribe, ApiKey.DescribeConfigs,
    }
)  # fmt: skip
"""APIs of consumers and of their group tools. By DescribeConfigs, a reader's tools ask whether a topic is tiered."""

SHOWN_VERSIONS = {ApiKey.Produce: (3, 3)}
"""Versions (oldest, newest) of APIs that ApiVersions responses list although the gateway refuses them.

Produce is listed for librdkafka. If a broker does not list Produce version 3, librdkafka's consumers assume a broker
older than Kafka 0.11, and send Fetch requests that no current broker understands.
"""


_WITHOUT_ADDRESSES = {FETCH: 15}
_OLDEST_SERVED = {SASL_HANDSHAKE: 1}
"""Oldest version that is passed on, by API. After SaslHandshake version 0, a login has no Kafka request headers."""
NEWEST_VERSIONS = {
    **_WITHOUT_ADDRESSES,
    API_VERSIONS: 4,
    **{api_key: versions[-1] for api_key, versions in broker_addresses.VERSIONS.items()},
}
"""Newest version that clients are offered, by API.

It has the APIs whose messages the gateway reads, and APIs whose newer versions name brokers' addresses.
"""

_UNSUPPORTED_VERSION = 35
_FIRST_FLEXIBLE_API_VERSIONS = 3
_FEATURES_TAG = 0
_ERROR_CODE, _COUNT, _THROTTLE_TIME_BYTES = Struct(">h"), Struct(">i"), 4
_API, _FLEXIBLE_API = Struct(">hhh"), Struct(">hhhx")  # API key, oldest and newest version
_FEATURE_VERSIONS = Struct(">hh")
_FEATURE_MIN_BYTES = 1 + _FEATURE_VERSIONS.size + len(NO_TAGS)


def is_rewritten(api_key: int, api_version: int) -> bool:
    """Return whether the response to a request of this API and version must be rewritten by `rewrite_response`."""
    return api_key == API_VERSIONS or api_version in broker_addresses.VERSIONS.get(api_key, ())


def check_version(api_key: int, api_version: int) -> None:
    """Check that the gateway passes on this API and version. ApiVersions requests of any version pass.

    The gateway does not pass on:

    - APIs that readers do not use,
    - Fetch versions whose responses contain brokers' addresses,
    - versions that the gateway does not know, of APIs whose responses it rewrites,
    - SaslHandshake version 0.

    Raises:
        FrameError: the API or its version is not passed on.
    """
    if api_key not in READER_APIS:
        raise FrameError(
            f"{api_name(api_key)} requests are refused: the gateway passes on what readers send. "
            "Clients that write or administer connect to the brokers"
        )
    if api_version > NEWEST_VERSIONS.get(api_key, api_version) and not is_too_new(api_key, api_version):
        raise FrameError(f"{api_name(api_key)} was not offered in version {api_version}")
    if api_version < (oldest := _OLDEST_SERVED.get(api_key, api_version)):
        raise FrameError(f"{api_name(api_key)} in version {api_version}: it is served from version {oldest} on")


def is_too_new(api_key: int, api_version: int) -> bool:
    """Return whether a request is an ApiVersions request of a version that the gateway does not know.

    The response to such a request names the known versions.
    """
    return api_key == API_VERSIONS and api_version > NEWEST_VERSIONS[API_VERSIONS]


def oldest_api_versions(correlation_id: int, client_id: str | None) -> bytes:
    """Return an encoded ApiVersions request of version 0, which every broker understands."""
    request = ApiVersionsRequest(version=0)
    request.with_header(correlation_id, client_id)
    return bytes(request.encode(version=0, header=True))


def rewrite_response(
    api_key: int, api_version: int, content: bytes, advertise: Advertise, feature_version: int
) -> bytes:
    """Return a response's content with the gateway's addresses and versions. Thread-safe if `advertise` is.

    Args:
        api_key: API of the request; `is_rewritten` must hold for it.
        content: correlation id and body of the broker's response.
        advertise: maps a broker to the gateway's address for it.
        feature_version: newest version of `LOCATION_FEATURE` that clients are offered.

    Raises:
        FrameError: the content is not a response of this API and version.
        ConfigurationError: `advertise` raised it, because two brokers would share a port.
    """
    try:
        if api_key != API_VERSIONS:
            return broker_addresses.with_addresses(api_key, api_version, content, advertise)
        correlation_id, body = content[:CORRELATION_ID_BYTES], content[CORRELATION_ID_BYTES:]
        if is_too_new(api_key, api_version):
            return correlation_id + _limited(body, 0, feature_version, _UNSUPPORTED_VERSION)
        return correlation_id + _limited(body, api_version, feature_version, 0)
    except ConfigurationError:
        raise
    except ValueError as error:
        raise FrameError(f"not a response to API {api_key} in version {api_version}: {error}") from error


@lru_cache(64)
def _limited(body: bytes, version: int, feature_version: int, error_code: int) -> bytes:
    """Return the body of an ApiVersions response with only the APIs and versions that the gateway offers.

    The location feature is added to the broker's features if `version` has features (3 or newer). A broker's error
    response is not changed. The result is cached, because all clients get the same response.

    Args:
        version: version of `body`, and of the result.
        error_code: error code of the result, in place of the broker's 0.
    """
    reader = Reader(body)
    if reader.unpack(_ERROR_CODE) != (0,):
        return body
    head = _ERROR_CODE.pack(error_code)
    if version < _FIRST_FLEXIBLE_API_VERSIONS:
        (count,) = reader.unpack(_COUNT)
        apis = [_API.pack(*api) for api in _offered(_API.iter_unpack(reader.take(max(0, count) * _API.size)))]
        return head + _COUNT.pack(len(apis)) + b"".join(apis) + body[reader.position :]
    apis = [_FLEXIBLE_API.pack(*api) for api in _offered(reader.structs(_FLEXIBLE_API))]
    throttle_time = reader.take(_THROTTLE_TIME_BYTES)
    tags = reader.tags()
    features = Reader(tags.get(_FEATURES_TAG, compact_array([]))).array(_FEATURE_MIN_BYTES, _read_feature)
    others = [_feature(*entry) for entry in features if entry[0] != LOCATION_FEATURE]
    tags[_FEATURES_TAG] = compact_array([*others, _feature(LOCATION_FEATURE, 1, feature_version)])
    return head + compact_array(apis) + throttle_time + tagged_fields(tags)


def _offered(apis: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    limited = []
    for key, oldest, newest in apis:
        if key in READER_APIS:
            min_version, max_version = _OLDEST_SERVED.get(key, 0), NEWEST_VERSIONS.get(key, newest)
        elif key in SHOWN_VERSIONS:
            min_version, max_version = SHOWN_VERSIONS[key]
        else:
            continue
        limited.append((key, max(oldest, min_version), min(newest, max_version)))
    return [(key, oldest, newest) for key, oldest, newest in limited if oldest <= newest]


def _read_feature(reader: Reader) -> tuple[str, int, int]:
    name, (oldest, newest) = reader.compact_string(), reader.unpack(_FEATURE_VERSIONS)
    reader.tags()
    return name, oldest, newest


def _feature(name: str, oldest: int, newest: int) -> bytes:
    return compact_string(name) + _FEATURE_VERSIONS.pack(oldest, newest) + NO_TAGS
