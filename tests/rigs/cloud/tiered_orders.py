"""A broker in the namespaces, whose topic `orders` is tiered: a test puts the segments into a cloud's bucket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.reading import BY_STEP, records
from tests.rigs.bench.aiven_tier import KEY_PREFIX, aiven_objects
from tests.rigs.stack.broker import KafkaBroker
from tests.rigs.stack.produce import produce_segments
from tests.rigs.stack.tiered_stack import BUCKET
from tests.rigs.stack.topics import create_tiered_topic, wait_until_tiered
from tests.setups.place import TOPIC

_SIZES = (40, 50, 1)
"""Records of the segments; the last one is the tail, which only the broker has."""


@dataclass(frozen=True)
class TieredOrders:
    """The topic: its broker, and the objects that Aiven's plugin makes of its segments, by key."""

    bootstrap_servers: str
    objects: tuple[tuple[str, bytes], ...]
    records = sum(_SIZES)

    def options(self, storage: Mapping[str, str]) -> dict[str, str]:
        """Return the options that read all of the topic, with those of its storage."""
        return {
            "kafka.bootstrap.servers": self.bootstrap_servers, "subscribe": TOPIC, "startingOffsets": "earliest",
            "remote.log.storage.manager.class.name": "io.aiven.kafka.tieredstorage.RemoteStorageManager",
            "rsm.config.key.prefix": KEY_PREFIX, **storage,
        }  # fmt: skip


@contextmanager
def tiered_orders(folder: Path) -> Iterator[TieredOrders]:
    """Start the broker, and tier the topic."""
    storage = folder / "storage"
    storage.mkdir()
    with KafkaBroker(folder / "broker", storage) as broker:
        create_tiered_topic(broker, TOPIC, config=BY_STEP)
        segments = [records(size, timestamp_ms=1_700_000_000_000 + at * 10_000) for at, size in enumerate(_SIZES)]
        produce_segments(broker, TOPIC, segments)
        wait_until_tiered(broker, TOPIC)
        made = aiven_objects(storage / BUCKET, folder / "objects", broker.bootstrap_servers, TOPIC)
        yield TieredOrders(broker.bootstrap_servers, tuple(made))
