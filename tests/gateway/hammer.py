"""Many clients that ask a gateway for locations and records while connections are killed at random."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from tests.gateway.requests import location_fetch, read, read_located, receive, request
from tiered_stream.broker.wire.location_messages import decode_segments
from tiered_stream.gateway.protocol.frames import frame
from tiered_stream.model import NO_TOPIC_ID, TopicPartition


@dataclass
class Tally:
    """What all clients saw together."""

    answers: int = 0
    broken: int = 0
    wrong: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def answered(self) -> None:
        with self.changed:
            self.answers += 1
            self.changed.notify_all()

    def wait_for_more(self, answers: int) -> None:
        """Until there are so many more than now."""
        with self.changed:
            until = self.answers + answers
            self.changed.wait_for(lambda: self.answers >= until)


class Client:
    """Asks on one connection after another; in every tenth exchange it hangs up in the middle."""

    def __init__(self, bootstrap: str, topic: str, expected: list[tuple[int, int]], tally: Tally, seed: int) -> None:
        host, _, port = bootstrap.partition(":")
        self._bootstrap = (host, int(port))
        self._topic = topic
        self._expected = expected
        self._tally = tally
        self._random = random.Random(seed)
        self._wanted = (0, 0)

    def run(self, over: threading.Event) -> None:
        """Go on until then."""
        while not over.is_set():
            try:
                self._connection(over)
            except (OSError, EOFError):
                self._tally.broken += 1
                over.wait(0.05)

    def _connection(self, over: threading.Event) -> None:
        with socket.create_connection(self._bootstrap, timeout=30) as bootstrap:
            kind = MetadataRequest.MetadataRequestTopic
            asked = request(MetadataRequest(topics=[kind(name=self._topic)]), 12)
            metadata = read(MetadataResponse, self._exchange(bootstrap, asked), 12)
        (broker,), (topic,) = metadata.brokers, metadata.topics
        with socket.create_connection((broker.host, broker.port), timeout=30) as connection:
            while not over.is_set():
                if self._random.random() < 0.1:
                    content = self._location_fetch(topic)
                    connection.sendall(frame(content)[: self._random.randrange(len(content))])
                    return
                self._check(self._exchange(connection, self._location_fetch(topic)))

    def _location_fetch(self, topic: Any) -> bytes:
        start, end = sorted(self._random.sample(range(self._expected[-1][1] + 1), 2))
        self._wanted = (start, end)
        epoch = topic.partitions[0].leader_epoch
        return location_fetch(
            {0: (start, end)}, topic_id=topic.topic_id, leader_epoch=epoch, local_segments_wanted=True
        )

    def _check(self, content: bytes) -> None:
        answer = read_located(content)
        if answer.error_code in (5, 6, 7, 78):  # they pass
            return
        start, end = self._wanted
        expected = [(max(start, low), min(end, high)) for low, high in self._expected if low < end and high > start]
        named = decode_segments(answer.remote_log_segments or b"\1", TopicPartition(self._topic, 0), NO_TOPIC_ID)
        found = [(each.offsets.start, each.offsets.end) for each in named]
        self._tally.answered()
        # While other clients wait, a response may end after any segment, and says where.
        is_whole = found == expected and answer.located_end_offset == end
        is_begun = bool(found) and found == expected[: len(found)] and answer.located_end_offset == found[-1][1]
        if answer.error_code or not (is_whole or is_begun):
            self._tally.wrong.append(f"{self._wanted}: error {answer.error_code}, {found}, not {expected}")

    def _exchange(self, connection: socket.socket, content: bytes) -> bytes:
        connection.sendall(frame(content))
        return receive(connection)


@contextmanager
def hammering(bootstrap: str, topic: str, expected: list[tuple[int, int]], clients: int) -> Iterator[Tally]:
    """So many clients at it; `expected` are the offsets of the topic's segments, end exclusive."""
    tally, over = Tally(), threading.Event()
    threads = [
        threading.Thread(target=Client(bootstrap, topic, expected, tally, seed).run, args=(over,))
        for seed in range(clients)
    ]
    for thread in threads:
        thread.start()
    try:
        yield tally
    finally:
        over.set()
        for thread in threads:
            thread.join()
