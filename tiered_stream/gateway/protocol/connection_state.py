"""State of one client connection: decides what happens to each request and each response. No I/O.

A broker responds to the requests of one connection in their order, so each response belongs to the oldest request that
has no response yet. The gateway sends requests with correlation ids of its own, each used once, and puts the client's
id back into the response. So the gateway notices any response that does not belong to the expected request, whatever
ids a client uses. A request that asks for locations is sent to the broker as a Fetch that only asks for authorization
to read (see `authorization`). The locations are filled into the response to that Fetch.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from tiered_stream.broker.wire.location_messages import FIRST_VERSION, LocationFetchRequest
from tiered_stream.gateway.protocol import api_versions, frames
from tiered_stream.gateway.protocol.api_versions import API_VERSIONS, FETCH
from tiered_stream.gateway.protocol.authorization import fetch_response, read_probe, readable_topics
from tiered_stream.gateway.protocol.location_requests import MAX_REQUEST_BYTES, LocationRequest, TopicIdPartition

_CORRELATION_IDS = 1 << 31
_MAX_READABLE_TOPICS = 10_000  # readable topics that a connection remembers; beyond this number it forgets all of them
_MAX_API_VERSIONS_BYTES = 16 << 10  # bytes for client id, software name and version, with room to spare


class Handling(Enum):
    """Treatment of a broker's response: pass it on unread, rewrite it, fill it with locations, or keep it.

    The gateway keeps responses to its own requests (probes). The values are labels of a metric.
    """

    PASS = "passed"  # noqa: S105 - no password
    REWRITE = "rewritten"
    LOCATE = "located"
    PROBE = "probed"
    """Response to the gateway's own request. It shows whether the client has logged in, or which topics it may READ."""


@dataclass(frozen=True, slots=True)
class Pending:
    """Request that has no response yet.

    `correlation_id` is the gateway's own, and `head` has the client's. `locations` is the location request that the
    response belongs to. It is None if the response does not concern locations.
    """

    head: frames.RequestHead
    correlation_id: int
    handling: Handling
    locations: LocationRequest | None = None


class ConnectionState:
    """State of one client connection: its requests without a response, its login, and the topics that it may READ.

    Args:
        logged_in: True if the client has logged in, or if brokers ask for no login.
    """

    def __init__(self, *, logged_in: bool = True) -> None:
        self.logged_in = logged_in
        self._readable: set[UUID] = set()
        self._in_flight: deque[Pending] = deque()
        self._correlation_id = 0

    @property
    def in_flight(self) -> int:
        """Return how many requests have no response yet."""
        return len(self._in_flight)

    @staticmethod
    def bytes_needed(head: frames.RequestHead, size: int) -> int:
        """Return how many bytes of a request of `size` bytes must be read before the request can be handled.

        ApiVersions requests up to 16 KiB and Fetch requests up to 4 MiB are read whole. Other requests need only the
        first 8 bytes.

        Raises:
            FrameError: the gateway does not pass on this API or version.
        """
        api_versions.check_version(head.api_key, head.api_version)
        max_bytes = {API_VERSIONS: _MAX_API_VERSIONS_BYTES, FETCH: MAX_REQUEST_BYTES}.get(head.api_key, 0)
        return size if size <= max_bytes else frames.HEAD_BYTES

    def forward(self, head: frames.RequestHead, content: bytes) -> bytes:
        """Register a request that the gateway passes on; return the bytes to send to the broker in place of `content`.

        Args:
            content: the first `bytes_needed` bytes of the request, or more.
        """
        if api_versions.is_too_new(head.api_key, head.api_version):
            content = frames.oldest_version(content)
        rewritten = api_versions.is_rewritten(head.api_key)
        return self._registered(content, head, Handling.REWRITE if rewritten else Handling.PASS)

    def authorize(self, request: LocationRequest, fetch: bytes) -> bytes:
        """Register a location request; return the bytes to send to the broker: `fetch` with a new correlation id.

        Args:
            request: the client's location request.
            fetch: the Fetch that is sent in its place, and asks the broker only for authorization to read.
        """
        return self._registered(fetch, request.head, Handling.LOCATE, request)

    def topics_to_probe(self, request: LocationRequest) -> set[UUID]:
        """Return the ids of the request's topics that no response has yet shown to be readable for the client."""
        return request.topics() - self._readable

    def may_read(self, request: LocationRequest) -> list[TopicIdPartition]:
        """Return the request's partitions of topics that the client may READ, as a broker's response has shown."""
        return [partition for partition in request.ranges if partition.topic_id in self._readable]

    def probe_topics(self, request: LocationRequest) -> bytes:
        """Register and return a Fetch whose response shows which topics the client may READ.

        The Fetch asks for the topics of `request` that `topics_to_probe` returns.
        """
        probe = read_probe(request, self.topics_to_probe(request))
        return self._registered(probe, request.head, Handling.PROBE, request)

    def probe_login(self) -> bytes:
        """Register and return an empty Fetch, whose response has no error only if the client has logged in.

        The responses to the login itself do not show whether the login is complete, because their number depends on the
        SASL mechanism.
        """
        head = frames.RequestHead(FETCH, FIRST_VERSION, 0)
        body = LocationFetchRequest(topics=[], isolation_level=0).encode_body(FIRST_VERSION)
        return self._registered(frames.request_header(head) + body, head, Handling.PROBE)

    def _registered(
        self, content: bytes, head: frames.RequestHead, handling: Handling, request: LocationRequest | None = None
    ) -> bytes:
        """Register a request that will be sent to the broker; return `content` with a new correlation id.

        Args:
            content: the request's bytes.
            head: API key, version and correlation id of the client's request.
            handling: treatment of the response.
            request: location request that the response belongs to, or None.
        """
        self._correlation_id = (self._correlation_id + 1) % _CORRELATION_IDS
        self._in_flight.append(Pending(head, self._correlation_id, handling, request))
        return frames.with_correlation_id(content, self._correlation_id)

    def match_response(self, head: bytes) -> Pending:
        """Return the oldest pending request, whose response begins with the four bytes `head`.

        The request stays pending until `complete`.

        Raises:
            FrameError: the response does not belong to the oldest pending request.
        """
        number = frames.correlation_id(head)
        if not self._in_flight or self._in_flight[0].correlation_id != number:
            raise frames.FrameError(f"a response to request {number} of this connection, which was not asked next")
        return self._in_flight[0]

    def record_topics(self, content: bytes) -> None:
        """Remember which topics the client may READ, from the response to `probe_topics`.

        If more than 10,000 topics were remembered before, all of them are forgotten first.

        Raises:
            FrameError: the content is not a Fetch response.
        """
        if len(self._readable) > _MAX_READABLE_TOPICS:
            self._readable.clear()
        self._readable |= readable_topics(content)

    def record_login(self, content: bytes) -> bool:
        """Read the response to `probe_login`; return whether the client has logged in.

        While a login is incomplete, brokers respond to the probe with an error, and then close the connection.

        Raises:
            FrameError: the content is not a Fetch response.
        """
        self.logged_in = fetch_response(content).error_code == 0
        return self.logged_in

    def complete(self) -> None:
        """Remove the oldest pending request, because its response has been handled."""
        self._in_flight.popleft()
