"""Responses that name brokers' addresses or API versions, rewritten for clients of the gateway. No I/O.

Only APIs of readers are offered. Fetch names the new leader's address when a leader moved (KIP-951): its answers are
large and pass unread, so versions without that field are offered.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from kafka.protocol.metadata import ApiVersionsRequest

from tiered_stream.broker.flexible_versions import NO_TAGS, Reader, compact_array, compact_string, tagged_fields
from tiered_stream.broker.kafka_python import api_name
from tiered_stream.broker.location_messages import LOCATION_FEATURE
from tiered_stream.errors import ConfigurationError
from tiered_stream.gateway import broker_addresses
from tiered_stream.gateway.endpoints import Advertise
from tiered_stream.gateway.frames import CORRELATION_ID_BYTES, FrameError
from tiered_stream.gateway.reader_apis import (
    API_VERSIONS,
    FETCH,
    READER_APIS,
    SASL_HANDSHAKE,
    SHOWN_VERSIONS,
    check_api,
)

_WITHOUT_ADDRESSES = {FETCH: 15}
_OLDEST_SERVED = {SASL_HANDSHAKE: 1}
"""Before: a login without Kafka's headers."""
NEWEST_VERSIONS = {
    **_WITHOUT_ADDRESSES,
    API_VERSIONS: 4,
    **{api_key: versions[-1] for api_key, versions in broker_addresses.VERSIONS.items()},
}
"""The newest versions that clients are offered: of those that the gateway reads, the ones it knows."""

_UNSUPPORTED_VERSION = 35
_FIRST_FLEXIBLE_API_VERSIONS = 3
_FEATURES_TAG = 0
_ERROR_CODE, _COUNT, _THROTTLE_TIME_BYTES = Struct(">h"), Struct(">i"), 4
_API, _FLEXIBLE_API = Struct(">hhh"), Struct(">hhhx")  # API key, oldest and newest version
_FEATURE_VERSIONS = Struct(">hh")
_FEATURE_BYTES_LEAST = 1 + _FEATURE_VERSIONS.size + len(NO_TAGS)


def is_rewritten(api_key: int, api_version: int) -> bool:
    """Whether the response to such a request goes through `rewrite_response`."""
    return api_key == API_VERSIONS or api_version in broker_addresses.VERSIONS.get(api_key, ())


def check_version(api_key: int, api_version: int) -> None:
    """Refuse what readers do not send, what would tell clients addresses of brokers, and what is not understood.

    Raises:
        FrameError: the API or its version was not offered.
    """
    check_api(api_key)
    if api_version > NEWEST_VERSIONS.get(api_key, api_version) and not is_too_new(api_key, api_version):
        raise FrameError(f"{api_name(api_key)} was not offered in version {api_version}")
    if api_version < (oldest := _OLDEST_SERVED.get(api_key, api_version)):
        raise FrameError(f"{api_name(api_key)} in version {api_version}: it is served from version {oldest} on")


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
    """The response's content for clients. Serves many threads, as far as `advertise` does.

    Raises:
        FrameError: it is not such a response.
        ConfigurationError: as `advertise`.
    """
    try:
        if api_key != API_VERSIONS:
            return broker_addresses.with_addresses(api_key, api_version, content, CORRELATION_ID_BYTES, advertise)
        if is_too_new(api_key, api_version):
            return _limited(content, 0, feature_version, _UNSUPPORTED_VERSION)
        return _limited(content, api_version, feature_version, 0)
    except ConfigurationError:
        raise
    except ValueError as error:
        raise FrameError(f"not an answer to API {api_key} in version {api_version}: {error}") from error


def _limited(content: bytes, version: int, feature_version: int, error_code: int) -> bytes:
    """An ApiVersions answer with what the gateway offers, but a broker's error as it is."""
    reader = Reader(content, CORRELATION_ID_BYTES)
    if reader.unpack(_ERROR_CODE) != (0,):
        return content
    head = content[:CORRELATION_ID_BYTES] + _ERROR_CODE.pack(error_code)
    if version < _FIRST_FLEXIBLE_API_VERSIONS:
        (count,) = reader.unpack(_COUNT)
        apis = [_API.pack(*api) for api in _offered(_API.iter_unpack(reader.take(max(0, count) * _API.size)))]
        return head + _COUNT.pack(len(apis)) + b"".join(apis) + content[reader.position :]
    apis = [_FLEXIBLE_API.pack(*api) for api in _offered(reader.structs(_FLEXIBLE_API))]
    throttle_time = reader.take(_THROTTLE_TIME_BYTES)
    tags = reader.tags()
    feature = _feature(LOCATION_FEATURE, 1, feature_version)
    others = Reader(tags.get(_FEATURES_TAG, compact_array([]))).array(_FEATURE_BYTES_LEAST, _read_feature)
    tags[_FEATURES_TAG] = compact_array([*(_feature(*each) for each in others if each[0] != LOCATION_FEATURE), feature])
    return head + compact_array(apis) + throttle_time + tagged_fields(tags)


def _offered(apis: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    limited = []
    for key, oldest, newest in apis:
        if key in READER_APIS:
            least, most = _OLDEST_SERVED.get(key, 0), NEWEST_VERSIONS.get(key, newest)
        elif key in SHOWN_VERSIONS:
            least, most = SHOWN_VERSIONS[key]
        else:
            continue
        limited.append((key, max(oldest, least), min(newest, most)))
    return [(key, oldest, newest) for key, oldest, newest in limited if oldest <= newest]


def _read_feature(reader: Reader) -> tuple[str, int, int]:
    name, (oldest, newest) = reader.compact_string(), reader.unpack(_FEATURE_VERSIONS)
    reader.tags()
    return name, oldest, newest


def _feature(name: str, oldest: int, newest: int) -> bytes:
    return compact_string(name) + _FEATURE_VERSIONS.pack(oldest, newest) + NO_TAGS
