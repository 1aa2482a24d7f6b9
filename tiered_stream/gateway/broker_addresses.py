"""Answers that name brokers' addresses, with the gateway's in their place. No I/O.

Only the addresses are read and replaced; all other bytes are passed on as they are. In Metadata and DescribeCluster
the brokers come first, so that the number of partitions costs nothing. In Produce, ShareFetch and ShareAcknowledge they
come last (KIP-951: where leaders are that moved), and the partitions before them are passed over. Which fields there
are in which version, Kafka says in `clients/src/main/resources/common/message/*Response.json`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from tiered_stream.broker.flexible_versions import Reader, uvarint
from tiered_stream.gateway.endpoints import Address, Advertise

PRODUCE, METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER, SHARE_FETCH, SHARE_ACKNOWLEDGE = 0, 3, 10, 60, 78, 79

_BROKERS = 1  # DescribeCluster's endpoint type; controllers are not reached through the gateway
_NODE_ENDPOINTS_TAG = 0
_INT8, _INT16, _INT32 = Struct(">b"), Struct(">h"), Struct(">i")
_PRODUCED_BYTES = 4 + 2 + 8 + 8 + 8  # index, error code, base offset, log append time, log start offset
_ACQUIRED = Struct(">qqhx")  # first and last offset, delivery count, no tagged fields


class _Answer:
    """Reads on through an answer and replaces addresses.

    Raises (all methods):
        ValueError: the bytes are not such an answer.
        ConfigurationError: as `advertise`.
    """

    def __init__(self, reader: Reader, flexible: bool, advertise: Advertise) -> None:
        self.reader = reader
        self.flexible = flexible
        self._advertise = advertise
        self._pieces: list[bytes] = []
        self._copied = 0

    def text(self) -> None:
        """Pass over a string, which may be null."""
        self.reader.skip(self._length())

    def array(self, item: Callable[[], None]) -> None:
        """Read an array by its items; a null one has none."""
        for _ in range(self.reader.uvarint() - 1 if self.flexible else self.int32()):
            item()

    def int32(self) -> int:
        return int(self.reader.unpack(_INT32)[0])

    def tags(self) -> None:
        if self.flexible:
            self.reader.tags()

    def address(self) -> None:
        """Replace the host and the port that follow a node id; of no node there is none."""
        node_id, start = self.int32(), self.reader.position
        host = self.reader.take(self._length(), "a host").decode()
        port = self.int32()
        if node_id < 0 or not host:
            return
        told = self._advertise(node_id, Address(host, port))
        encoded = told.host.encode()
        length = uvarint(len(encoded) + 1) if self.flexible else _INT16.pack(len(encoded))
        self._put(start, length + encoded + _INT32.pack(told.port))

    def endpoint(self) -> None:
        """A `NodeEndpoint`."""
        self.address()
        self.text()  # rack
        self.tags()

    def tagged_endpoints(self) -> None:
        """Tagged fields, one of them an array of `NodeEndpoint`; each says how long it is."""
        for _ in range(self.reader.uvarint()):
            tag, start = self.reader.uvarint(), self.reader.position
            value = self.reader.take(self.reader.uvarint(), "a tagged field")
            if tag == _NODE_ENDPOINTS_TAG:
                inner = _Answer(Reader(value), self.flexible, self._advertise)
                inner.array(inner.endpoint)
                replaced = inner.content()
                self._put(start, uvarint(len(replaced)) + replaced)

    def content(self) -> bytes:
        """All of it."""
        return b"".join([*self._pieces, self.reader.data[self._copied :]])

    def _length(self) -> int:
        return max(0, self.reader.uvarint() - 1 if self.flexible else int(self.reader.unpack(_INT16)[0]))

    def _put(self, start: int, by: bytes) -> None:
        """What lies between `start` and where we are."""
        self._pieces += self.reader.data[self._copied : start], by
        self._copied = self.reader.position


def _metadata(answer: _Answer, version: int) -> None:
    def broker() -> None:
        answer.address()
        if version >= 1:
            answer.text()  # rack
        answer.tags()

    answer.reader.skip(4 * (version >= 3))  # throttle time
    answer.array(broker)


def _find_coordinator(answer: _Answer, version: int) -> None:
    def coordinator() -> None:
        answer.text()  # key
        answer.address()
        answer.reader.skip(2)  # error code
        answer.text()  # error message
        answer.tags()

    answer.reader.skip(4 * (version >= 1))  # throttle time
    if version >= 4:
        answer.array(coordinator)
        return
    answer.reader.skip(2)  # error code
    if version >= 1:
        answer.text()  # error message
    answer.address()


def _describe_cluster(answer: _Answer, version: int) -> None:
    def broker() -> None:
        answer.address()
        answer.text()  # rack
        answer.reader.skip(version >= 2)  # whether it is fenced
        answer.tags()

    answer.reader.skip(4 + 2)  # throttle time, error code
    answer.text()  # error message
    if version >= 1 and answer.reader.unpack(_INT8) != (_BROKERS,):
        return
    answer.text()  # cluster id
    answer.reader.skip(4)  # controller
    answer.array(broker)


def _produce(answer: _Answer, version: int) -> None:
    reader = answer.reader

    def record_error() -> None:
        reader.skip(4)
        answer.text()
        answer.tags()

    def partition() -> None:
        reader.skip(_PRODUCED_BYTES)
        answer.array(record_error)
        answer.text()  # error message
        answer.tags()

    def topic() -> None:
        reader.skip(16) if version >= 13 else answer.text()
        answer.array(partition)
        answer.tags()

    answer.array(topic)
    reader.skip(4)  # throttle time
    answer.tagged_endpoints()


def _share_fetch(answer: _Answer, version: int) -> None:
    def partition() -> None:
        _share_partition(answer)
        answer.reader.skip(2)  # of the acknowledgement, error code
        answer.text()  # and message
        _current_leader(answer)
        answer.text()  # records, whose length is a text's
        answer.reader.structs(_ACQUIRED)
        answer.tags()

    answer.reader.skip(4 + 2)  # throttle time, error code
    answer.text()  # error message
    answer.reader.skip(4)  # acquisition lock timeout
    _share_topics(answer, partition)


def _share_acknowledge(answer: _Answer, version: int) -> None:
    def partition() -> None:
        _share_partition(answer)
        _current_leader(answer)
        answer.tags()

    answer.reader.skip(4 + 2)  # throttle time, error code
    answer.text()  # error message
    answer.reader.skip(4 * (version >= 2))  # acquisition lock timeout
    _share_topics(answer, partition)


def _share_partition(answer: _Answer) -> None:
    answer.reader.skip(4 + 2)  # index, error code
    answer.text()  # error message


def _current_leader(answer: _Answer) -> None:
    answer.reader.skip(4 + 4)  # id, epoch
    answer.tags()


def _share_topics(answer: _Answer, partition: Callable[[], None]) -> None:
    def topic() -> None:
        answer.reader.skip(16)  # topic id
        answer.array(partition)
        answer.tags()

    answer.array(topic)
    answer.array(answer.endpoint)


_LAYOUTS: dict[int, tuple[Callable[[_Answer, int], None], range, int]] = {
    PRODUCE: (_produce, range(10, 14), 9),
    METADATA: (_metadata, range(14), 9),
    FIND_COORDINATOR: (_find_coordinator, range(7), 3),
    DESCRIBE_CLUSTER: (_describe_cluster, range(3), 0),
    SHARE_FETCH: (_share_fetch, range(1, 3), 0),
    SHARE_ACKNOWLEDGE: (_share_acknowledge, range(1, 3), 0),
}
"""By API: how to read it, the versions that name addresses, and the first flexible version."""

VERSIONS = {api_key: versions for api_key, (_, versions, _) in _LAYOUTS.items()}
"""By API, the versions with addresses that can be replaced. Older ones name none; newer ones are not known."""


def with_addresses(api_key: int, version: int, content: bytes, header_bytes: int, advertise: Advertise) -> bytes:
    """The answer with the addresses that clients are told.

    Args:
        version: one of `VERSIONS`.
        header_bytes: of its correlation id; a flexible version's tagged fields follow.

    Raises:
        ValueError: it is not such an answer.
        ConfigurationError: as `advertise`.
    """
    replace_in, _, first_flexible = _LAYOUTS[api_key]
    answer = _Answer(Reader(content, header_bytes), version >= first_flexible, advertise)
    answer.tags()
    replace_in(answer, version)
    return answer.content()
