"""APIs and versions that the gateway passes on and offers to clients, and rewriting of responses. No I/O.

Clients are offered only the APIs that readers use: Kafka's own consumers and group tools, librdkafka, franz-go,
kafkajs, kafka-python and our own client. Producers and admin clients must connect to the brokers. Newer Fetch responses
name the address of a leader that has moved (KIP-951). Fetch responses are large and are passed on unread. So clients
are offered only Fetch versions without that address.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct

from tiered_stream.broker.wire.kafka_python import ApiKey, api_name
from tiered_stream.broker.wire.location_messages import LOCATION_FEATURE
from tiered_stream.errors import ConfigurationError
from tiered_stream.gateway.protocol import broker_addresses
from tiered_stream.gateway.protocol.broker_addresses import Advertise
from tiered_stream.gateway.protocol.frames import CORRELATION_ID_BYTES, FrameError
from tiered_stream.records.flexible_versions import NO_TAGS, Reader, compact_array, compact_string, tagged_fields

FETCH, SASL_HANDSHAKE, API_VERSIONS = ApiKey.Fetch, ApiKey.SaslHandshake, ApiKey.ApiVersions
_LAST = (1 << 15) - 1
READER_VERSIONS: dict[int, tuple[int, int]] = {
    **dict.fromkeys(
        (
            ApiKey.SaslAuthenticate, ApiKey.ListOffsets, ApiKey.OffsetForLeaderEpoch, ApiKey.JoinGroup,
            ApiKey.SyncGroup, ApiKey.Heartbeat, ApiKey.LeaveGroup, ApiKey.ConsumerGroupHeartbeat, ApiKey.OffsetCommit,
            ApiKey.OffsetFetch, ApiKey.DescribeGroups, ApiKey.ConsumerGroupDescribe, ApiKey.DescribeConfigs,
        ),
        (0, _LAST),
    ),
    API_VERSIONS: (0, 4),
    SASL_HANDSHAKE: (1, _LAST),  # after version 0, a login has no Kafka request headers
    FETCH: (0, 15),  # the responses of newer versions have brokers' addresses
    **{api_key: (0, versions[-1]) for api_key, versions in broker_addresses.VERSIONS.items()},
}  # fmt: skip
"""Oldest and newest version that the gateway passes on, by API key. Other APIs are refused.

The APIs are those that consumers and group tools use. This package uses DescribeConfigs to find out whether a topic is
tiered.
"""

_SHOWN_VERSIONS = {**READER_VERSIONS, ApiKey.Produce: (3, 3)}
"""Oldest and newest version that ApiVersions responses list, by API key.

Produce is listed for librdkafka, although the gateway refuses Produce requests.

If a broker does not list Produce version 3, librdkafka's consumers assume a broker older than Kafka 0.11, and send
Fetch requests that no current broker understands.
"""

_UNSUPPORTED_VERSION = 35
_FIRST_FLEXIBLE_API_VERSIONS = 3
_FEATURES_TAG = 0
_ERROR_CODE, _COUNT, _THROTTLE_TIME_BYTES = Struct(">h"), Struct(">i"), 4
_API, _FLEXIBLE_API = Struct(">hhh"), Struct(">hhhx")  # API key, oldest and newest version
_FEATURE_VERSIONS = Struct(">hh")
_FEATURE_MIN_BYTES = 1 + _FEATURE_VERSIONS.size + len(NO_TAGS)


def is_rewritten(api_key: int) -> bool:
    """Return whether the response to a request of this API must be rewritten by `rewrite_response`."""
    return api_key == API_VERSIONS or api_key in broker_addresses.VERSIONS


def check_version(api_key: int, api_version: int) -> None:
    """Check that the gateway passes on this API and version. ApiVersions requests of newer versions pass, too.

    The gateway does not pass on:

    - APIs that readers do not use,
    - Fetch versions whose responses contain brokers' addresses,
    - versions that the gateway does not know, of APIs whose responses it rewrites,
    - SaslHandshake version 0.

    Raises:
        FrameError: the API or its version is not passed on.
    """
    if api_key not in READER_VERSIONS:
        raise FrameError(
            f"{api_name(api_key)} requests are refused: the gateway passes on what readers send. "
            "Clients that write or administer connect to the brokers"
        )
    oldest, newest = READER_VERSIONS[api_key]
    if api_version > newest and not is_too_new(api_key, api_version):
        raise FrameError(f"{api_name(api_key)} was not offered in version {api_version}")
    if api_version < oldest:
        raise FrameError(f"{api_name(api_key)} in version {api_version}: it is served from version {oldest} on")


def is_too_new(api_key: int, api_version: int) -> bool:
    """Return whether a request is an ApiVersions request of a version that the gateway does not know.

    The response to such a request names the known versions.
    """
    return api_key == API_VERSIONS and api_version > READER_VERSIONS[API_VERSIONS][1]


def rewrite_response(
    api_key: int, api_version: int, content: bytes, advertise: Advertise, feature_version: int
) -> bytes:
    """Return a broker's response with the gateway's addresses and versions. Thread-safe if `advertise` is thread-safe.

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

    From version 3 on, responses list features, and `LOCATION_FEATURE` is added to them. A broker's error response is
    not changed. The result is cached, because all clients get the same response.

    Args:
        body: body of the broker's response.
        version: version of `body`, and of the result.
        feature_version: newest version of `LOCATION_FEATURE` that clients are offered.
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
    limited = [
        (key, max(oldest, _SHOWN_VERSIONS[key][0]), min(newest, _SHOWN_VERSIONS[key][1]))
        for key, oldest, newest in apis
        if key in _SHOWN_VERSIONS
    ]
    return [(key, oldest, newest) for key, oldest, newest in limited if oldest <= newest]


def _read_feature(reader: Reader) -> tuple[str, int, int]:
    name, (oldest, newest) = reader.compact_string(), reader.unpack(_FEATURE_VERSIONS)
    reader.tags()
    return name, oldest, newest


def _feature(name: str, oldest: int, newest: int) -> bytes:
    return compact_string(name) + _FEATURE_VERSIONS.pack(oldest, newest) + NO_TAGS
