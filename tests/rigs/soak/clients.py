"""Clients that come to a gateway and go: some read, some ask for locations, most behave badly."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import Callable
from uuid import UUID

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, TopicPartition

from tests.gateway.requests import location_fetch, metadata_request, read_located
from tests.rigs.soak.produced import PARTITIONS, TOPIC
from tests.rigs.stack.processes import LONG

PAUSE_SECONDS = 2.0
"""The longest between one client and the next."""
_SILENT = 20
"""How many may be connected and say nothing."""
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: no farewell."""
_UNREAD = 200
_SERVED = (0, 1)
"""No error, or OFFSET_OUT_OF_RANGE: retention has come first."""


class Clients:
    """One after the other, each of a kind that chance chooses."""

    def __init__(self, bootstrap_servers: str, broker_port: int, topic_id: UUID, seed: int) -> None:
        self.came: Counter[str] = Counter()
        self._bootstrap_servers = bootstrap_servers
        self._broker = ("127.0.0.1", broker_port)
        self._topic_id = topic_id
        self._chance = random.Random(seed)
        self._silent: deque[socket.socket] = deque()
        self._kinds: tuple[Callable[[], None], ...] = (
            self.read, self.ask, self.send_half_a_frame, self.send_junk, self.announce_too_much, self.read_no_answer,
            self.say_nothing,
        )  # fmt: skip

    def come_and_go(self, ended: threading.Event) -> None:
        """Until then.

        Raises:
            AssertionError, OSError: one that behaved well was not served.
        """
        while not ended.wait(self._chance.uniform(0, PAUSE_SECONDS)):
            kind = self._chance.choice(self._kinds)
            kind()
            self.came[kind.__name__] += 1
        while self._silent:
            self._silent.popleft().close()

    def read(self) -> None:
        """A consumer, of old records or the newest."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap_servers, "group.id": "none"})
        place = self._chance.choice((OFFSET_BEGINNING, OFFSET_END))
        consumer.assign([TopicPartition(TOPIC, self._chance.randrange(PARTITIONS), place)])
        for message in consumer.consume(200, timeout=2):
            assert message.error() is None, message.error()
        consumer.close()

    def ask(self) -> None:
        """For locations, and wait for the answer."""
        content = self._question()
        with socket.create_connection(self._broker, timeout=LONG) as connection:
            connection.sendall(_framed(content))
            with connection.makefile("rb") as received:
                answer = received.read(int.from_bytes(received.read(4), "big"))
        assert read_located(answer).error_code in _SERVED, read_located(answer)

    def send_half_a_frame(self) -> None:
        frame = _framed(self._question())
        self._send_and_reset(frame[: self._chance.randrange(1, len(frame))])

    def send_junk(self) -> None:
        self._send_and_reset(self._chance.randbytes(300))

    def announce_too_much(self) -> None:
        self._send_and_reset(struct.pack(">i", 2**31 - 1) + bytes(1000))

    def read_no_answer(self) -> None:
        """Of many requests in a row."""
        self._send_and_reset(_framed(metadata_request()) * _UNREAD)

    def say_nothing(self) -> None:
        """And stay, until others have come who say nothing."""
        self._silent.append(socket.create_connection(self._broker, timeout=LONG))
        if len(self._silent) > _SILENT:
            self._silent.popleft().close()

    def _question(self) -> bytes:
        start = self._chance.randrange(10_000)
        wanted = {self._chance.randrange(PARTITIONS): (start, start + 10_000)}
        return location_fetch(wanted, topic_id=self._topic_id, leader_epoch=0)

    def _send_and_reset(self, data: bytes) -> None:
        with socket.create_connection(self._broker, timeout=LONG) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            try:
                connection.sendall(data)
            except OSError:
                pass  # the gateway was quicker


def _framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content
