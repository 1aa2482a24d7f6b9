"""A broker of Kafka 4.4 keeps closed segments from the tier (KIP-1241): what is read, and what is said of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.cli.running import run
from tests.inspection.test_query_checkpoint import write_checkpoint
from tests.rigs.stack.broker import KafkaBroker
from tests.rigs.stack.consume import read_topic
from tests.rigs.stack.produce import RawProducer
from tests.rigs.stack.rows import Record
from tests.rigs.stack.topics import create_tiered_topic, roll, wait_until_tiered_to
from tiered_stream.broker.client import open_client
from tiered_stream.broker.list_offsets import topic_configs
from tiered_stream.model import Split
from tiered_stream.options.parsing import parse_options
from tiered_stream.plan.read_cost import NOT_TIERED_YET
from tiered_stream.plan.tiering_delay import COPY_LAG_CONFIGS, copy_lag
from tiered_stream.read.split_reader import read_split
from tiered_stream.spark.source import BatchReader
from tiered_stream.spark.split_partition import SplitPartition

pytestmark = [pytest.mark.stack, pytest.mark.slow]

KEYS = [*(b"%d" % number for number in range(10)), b"roll"]
WAITS = {"remote.copy.lag.ms": "3600000", "local.retention.ms": "7200000", "local.retention.bytes": "-2"}
SAID = (
    f"{NOT_TIERED_YET}; brokers keep closed segments from the tier until they are 1 h old (remote.copy.lag.ms=3600000"
)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Options to read the topics `quick` and `slow`, of ten records each in a closed segment and one more."""
    folder = tmp_path_factory.mktemp("kafka-4.4")
    now_ms = time.time_ns() // 1_000_000
    with KafkaBroker(folder / "broker", folder / "tier", jars="kafka-4.4") as broker:
        create_tiered_topic(broker, "quick")
        create_tiered_topic(broker, "slow", config=WAITS)
        with RawProducer(broker) as producer:
            for topic in ("quick", "slow"):
                producer.send(topic, [Record(key, timestamp_ms=now_ms) for key in KEYS[:-1]])
        for topic in ("slow", "quick"):
            roll(broker, topic)
        wait_until_tiered_to(broker, "quick", {0: 10})
        yield {
            "kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "quick,slow",
            "startingOffsets": "earliest", "remote.storage.uri": (folder / "tier" / "kafka-tiered-storage").as_uri(),
        }  # fmt: skip
        for topic in ("quick", "slow"):
            assert [row.key for row in read_topic(broker, topic)] == KEYS


def splits(given: dict[str, str]) -> list[Split]:
    planned = BatchReader(parse_options(given, streaming=False)).partitions()
    return [each.split for each in planned if isinstance(each, SplitPartition)]


def test_every_record_is_read_once_wherever_it_is(given: dict[str, str]) -> None:
    options = parse_options(given, streaming=False)
    keys: dict[str, list[Any]] = {"quick": [], "slow": []}
    for split in splits(given):
        for batch in read_split(split, options):
            keys[split.topic_partition.topic] += batch.column("key").to_pylist()
    for found in keys.values():
        assert found == KEYS
    assert {split.topic_partition.topic for split in splits(given) if split.locations} == {"quick"}


def test_plan_says_how_much_comes_from_brokers_and_which_setting_keeps_it_there(given: dict[str, str]) -> None:
    ended = run("plan", given, "--json")
    quick, slow = orjson.loads(ended.stdout)["partitions"]
    assert (quick["broker_offsets"], quick["broker_reason"]) == (1, NOT_TIERED_YET)
    assert slow["broker_offsets"] == 11 and slow["broker_reason"].startswith(SAID)
    assert "From brokers: 11 of 22 offsets (50.0%)" in run("plan", given).output


def test_lag_says_it_too(given: dict[str, str], tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "c", 4, '{"quick":{"0":5},"slow":{"0":5}}')
    ended = run("lag", given, "--json", "--checkpoint", str(checkpoint))
    quick, slow = orjson.loads(ended.stdout)["partitions"]
    assert (quick["tiered_offsets"], slow["tiered_offsets"]) == (5, 0)
    assert quick["broker_reason"] == NOT_TIERED_YET and slow["broker_reason"].startswith(SAID)


def test_a_topic_that_sets_none_of_it_copies_at_once(given: dict[str, str]) -> None:
    client = open_client({"bootstrap.servers": given["kafka.bootstrap.servers"]})
    told = topic_configs(client, ["quick"], COPY_LAG_CONFIGS)
    assert set(told["quick"]) == set(COPY_LAG_CONFIGS)
    assert copy_lag(told["quick"]) is None
