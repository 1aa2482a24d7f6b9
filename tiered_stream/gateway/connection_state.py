"""One client connection, seen from between client and broker: what to do with each request and each response. No I/O.

A broker answers the requests of one connection in their order, so each response belongs to the oldest request that
has none yet. Requests go on with correlation ids of our own, each used once, and responses come back with the client's:
so a response is taken for the answer to that very request, whatever ids a client gives and whatever was misread before
it. A request that asks for locations goes on as a Fetch that asks for nothing but authorization to read (see
`authorization`); its response becomes the answer.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from tiered_stream.broker.flexible_versions import Reader
from tiered_stream.broker.location_messages import FIRST_VERSION, LocationFetchRequest, LocationFetchResponse
from tiered_stream.gateway import rewrite
from tiered_stream.gateway.authorization import read_probe, readable_topics
from tiered_stream.gateway.frames import (
    CORRELATION_ID_BYTES,
    HEAD_BYTES,
    FrameError,
    RequestHead,
    client_id,
    correlation_id,
    request_head,
    request_header,
    with_correlation_id,
)
from tiered_stream.gateway.location_requests import LARGEST_REQUEST, LocationRequest, TopicIdIndex, may_ask
from tiered_stream.gateway.reader_apis import API_VERSIONS, FETCH

_CORRELATION_IDS = 1 << 31
_MOST_READABLE = 10_000  # topics that are kept in mind of a connection
_LARGEST_API_VERSIONS = 16 << 10  # client id, the software's name and version, and some


class Handling(Enum):
    """What becomes of a response: passed on unread, rewritten, or made into an answer with locations."""

    PASS = "passed"  # noqa: S105 - no password
    REWRITE = "rewritten"
    LOCATE = "located"
    PROBE = "probed"
    """Nobody asked for it but us: it shows whether the client has logged in, or which topics it may read."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A request whose response is still to come; `correlation_id` is ours, `head` has the client's.

    `held`: the memory that it keeps until then, in bytes.
    """

    head: RequestHead
    correlation_id: int
    handling: Handling
    locations: LocationRequest | None = None
    held: int = 0


class ConnectionState:
    """The state of one connection; `logged_in` from the start where no login is asked for."""

    def __init__(self, *, logged_in: bool = True) -> None:
        self.logged_in = logged_in
        self._readable: set[UUID] = set()
        self._in_flight: deque[Pending] = deque()
        self._correlation_id = 0

    @property
    def in_flight(self) -> int:
        """How many requests have no response yet."""
        return len(self._in_flight)

    @staticmethod
    def bytes_needed(head: RequestHead, size: int) -> int:
        """How much of a request of `size` bytes must be read before `request` can tell what to do with it.

        Raises:
            FrameError: as `request`, where the head already says so.
        """
        rewrite.check_version(head.api_key, head.api_version)
        largest = {API_VERSIONS: _LARGEST_API_VERSIONS, FETCH: LARGEST_REQUEST}.get(head.api_key, 0)
        return size if size <= largest else HEAD_BYTES

    @staticmethod
    def may_ask(head: RequestHead, content: bytes) -> bool:
        """Whether a request, of which `bytes_needed` are there, may ask for locations."""
        return head.api_key == FETCH and may_ask(head, content)

    def request(self, content: bytes) -> tuple[bytes, bool]:
        """What goes to the broker in place of `content`, as much of a request as `bytes_needed` says.

        With True it may ask for locations; the caller must find out and pass on what `locate` returns instead, before
        the next request.

        Raises:
            FrameError: the client sends what the gateway cannot pass on.
        """
        head = request_head(content)
        rewrite.check_version(head.api_key, head.api_version)
        sent = with_correlation_id(content, self._next_correlation_id())
        if self.may_ask(head, content):
            return sent, True
        if rewrite.is_too_new(head.api_key, head.api_version):
            sent = rewrite.oldest_api_versions(self._correlation_id, client_id(content))
        rewritten = rewrite.is_rewritten(head.api_key, head.api_version)
        self._await(head, Handling.REWRITE if rewritten else Handling.PASS)
        return sent, False

    def locate(self, head: RequestHead, content: bytes, wanted: LocationRequest | None, held: int = 0) -> bytes:
        """What goes to the broker for a Fetch that `request` left open; None: the plain one that it also is."""
        sent = with_correlation_id(content, self._next_correlation_id())
        self._await(head, Handling.LOCATE if wanted else Handling.PASS, wanted, held)
        return sent

    def topics_to_probe(self, wanted: LocationRequest) -> set[UUID]:
        """The topics of which this connection has not shown yet that it may read them."""
        return wanted.topics() - self._readable

    def may_read(self, wanted: LocationRequest) -> list[TopicIdIndex]:
        """What is wanted of topics that this connection has shown that it may read."""
        return [each for each in wanted.wanted if each.topic_id in self._readable]

    def probe_topics(self, head: RequestHead, wanted: LocationRequest, held: int) -> bytes:
        """A request whose answer tells which of `topics_to_probe` the client may read."""
        sent = with_correlation_id(read_probe(wanted, self.topics_to_probe(wanted)), self._next_correlation_id())
        self._await(head, Handling.PROBE, wanted, held)
        return sent

    def probe(self) -> bytes:
        """A request that a broker answers well only to who has logged in: a Fetch of nothing.

        Whether a login is complete cannot be told from its own answers: that depends on the mechanism.
        """
        head = RequestHead(FETCH, FIRST_VERSION, self._next_correlation_id())
        self._await(head, Handling.PROBE)
        return request_header(head) + LocationFetchRequest(topics=[], isolation_level=0).encode_body(FIRST_VERSION)

    def _next_correlation_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) % _CORRELATION_IDS
        return self._correlation_id

    def _await(
        self, head: RequestHead, handling: Handling, wanted: LocationRequest | None = None, held: int = 0
    ) -> None:
        self._in_flight.append(Pending(head, self._correlation_id, handling, wanted, held))

    def response(self, head: bytes) -> Pending:
        """Whose response begins with these four bytes; it counts as in flight until `answered`.

        Raises:
            FrameError: it is nobody's.
        """
        found = correlation_id(head)
        if not self._in_flight or self._in_flight[0].correlation_id != found:
            raise FrameError(f"a response to request {found} of this connection, which was not asked next")
        return self._in_flight[0]

    def topics_probed(self, content: bytes) -> None:
        """Take the answer to `probe_topics`.

        Raises:
            FrameError: the content is no Fetch answer.
        """
        if len(self._readable) > _MOST_READABLE:
            self._readable.clear()
        self._readable |= readable_topics(content)

    def probed(self, content: bytes) -> bool:
        """Whether the answer to a probe says that the client has logged in.

        In the midst of a login brokers answer it with an error before they close the connection.

        Raises:
            FrameError: the content is no Fetch answer.
        """
        body = Reader(content, CORRELATION_ID_BYTES)
        try:
            body.tags()
            self.logged_in = LocationFetchResponse.decode_body(body).error_code == 0
        except ValueError as error:
            raise FrameError(f"not a Fetch answer of version {FIRST_VERSION}: {error}") from error
        return self.logged_in

    def answered(self) -> None:
        """The oldest request has its response."""
        self._in_flight.popleft()
