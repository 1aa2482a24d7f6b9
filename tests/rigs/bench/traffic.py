"""A producer and a consumer at a steady rate, and how long each record takes: to be acknowledged, and to arrive."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable
from multiprocessing.connection import Connection

from confluent_kafka import Consumer, KafkaError, Message, Producer

RECORDS_PER_SECOND = 500
RECORD_BYTES = 200
_FLOWING = 500
"""Records after which connections and code are warm."""


class Traffic:
    """Each record begins with the time of its making, of a clock that both sides share."""

    def __init__(self, bootstrap_servers: str, topic: str, records_per_second: int = RECORDS_PER_SECOND) -> None:
        self.produced: list[float] = []
        self.consumed: list[float] = []
        self._ended = threading.Event()
        self._topic = topic
        self._records_per_second = records_per_second
        self._servers = {"bootstrap.servers": bootstrap_servers}

    def produce(self) -> None:
        producer = Producer({**self._servers, "acks": "all", "linger.ms": 5})
        begin = time.monotonic()
        sent = 0
        while not self._ended.is_set():
            due = int((time.monotonic() - begin) * self._records_per_second)
            for _ in range(sent, due):
                now = time.monotonic_ns()
                value = now.to_bytes(8, "big").ljust(RECORD_BYTES, b".")
                producer.produce(self._topic, value, callback=self._acknowledged(now))
            sent = max(sent, due)
            producer.poll(0.001)
        producer.flush()

    def _acknowledged(self, begin: int) -> Callable[[KafkaError | None, Message], None]:
        def done(error: KafkaError | None, _message: Message) -> None:
            assert error is None, error
            self.produced.append((time.monotonic_ns() - begin) / 1e6)

        return done

    def consume(self) -> None:
        consumer = Consumer({**self._servers, "group.id": str(uuid.uuid4()), "auto.offset.reset": "earliest"})
        consumer.subscribe([self._topic])
        while not self._ended.is_set():
            message = consumer.poll(0.5)
            if message is None:
                continue
            assert message.error() is None, message.error()
            begin = int.from_bytes((message.value() or b"")[:8], "big")
            self.consumed.append((time.monotonic_ns() - begin) / 1e6)
        consumer.close()

    def end(self) -> None:
        self._ended.set()


def run(connection: Connection, bootstrap_servers: str, topic: str) -> None:
    """Say `ready` when records flow; when asked, send the latencies of all records since, in milliseconds."""
    os.sched_setaffinity(0, {0})
    traffic = Traffic(bootstrap_servers, topic)
    threads = [threading.Thread(target=each, daemon=True) for each in (traffic.produce, traffic.consume)]
    for thread in threads:
        thread.start()
    while min(len(traffic.produced), len(traffic.consumed)) < _FLOWING:
        time.sleep(0.05)
    produced, consumed = len(traffic.produced), len(traffic.consumed)
    connection.send("ready")
    connection.recv()
    traffic.end()
    for thread in threads:
        thread.join()
    connection.send((traffic.produced[produced:], traffic.consumed[consumed:]))
