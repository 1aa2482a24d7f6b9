"""librdkafka, see `tests.gateway.clients`."""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, KafkaError, Message, Producer


def main(does: str, servers: str, topic: str, group: str = "") -> None:
    if does == "consume":
        consume(servers, topic, group)
    else:
        produce(servers, topic)


def produce(servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "compression.type": "lz4"})
    for line in sys.stdin.buffer:
        key, _, value = line.rstrip(b"\n").partition(b"\t")
        producer.produce(topic, value, key, on_delivery=_check)
        producer.poll(0)
    producer.flush()


def _check(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        raise RuntimeError(f"not produced: {error}")


def consume(servers: str, topic: str, group: str) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    while True:
        for message in consumer.consume(500, timeout=0.2):
            if message.error() is None:
                at = f"Partition:{message.partition()}\tOffset:{message.offset()}\t".encode()
                sys.stdout.buffer.write(at + (message.key() or b"") + b"\t" + (message.value() or b"") + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
