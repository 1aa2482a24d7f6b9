"""Each row of KIP-1254's table of fallbacks, provoked on the real stack: exact rows, and a counter that says which."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.gateway.reading import options, tiered_only, with_urls
from tests.gateway.running import RunningGateway
from tests.reading import BY_STEP, FIRST_TIMESTAMP_MS, SEGMENT_STEP_MS, records, tier_segments
from tests.rigs.stack.consume import read_topic
from tests.rigs.stack.produce import produce_segments
from tests.rigs.stack.rows import Row
from tests.rigs.stack.topics import KEEP_LOCAL, create_tiered_topic, wait_until_tiered
from tests.storage.scripted_http import SILENCE, ScriptedHttp, answer
from tests.tasks import plan, read
from tiered_stream.errors import StorageError
from tiered_stream.model import Split
from tiered_stream.observe.read_metrics import ReadMetrics
from tiered_stream.options.choices import Fallback
from tiered_stream.options.parsing import Options

if TYPE_CHECKING:
    from tests.rigs.stack.tiered_stack import TieredStack

pytestmark = [pytest.mark.stack, pytest.mark.slow]

TOPIC = "fallbacks"
PATIENT = {"kafka.fetch.remote.connect.timeout.ms": "20000", "kafka.fetch.remote.read.timeout.ms": "20000"}


@pytest.fixture(scope="module")
def rows(stack: TieredStack) -> list[Row]:
    """What the topic holds, by a plain consumer."""
    tier_segments(stack, TOPIC, [60, 70, 80])
    return read_topic(stack.broker, TOPIC)


@pytest.fixture
def asked(gateway: RunningGateway) -> Options:
    return options(gateway, TOPIC, PATIENT)


@pytest.fixture
def impatient(asked: Options) -> Options:
    return replace(asked, storage=replace(asked.storage, connect_timeout_ms=300, read_timeout_ms=300))


@pytest.fixture
def splits(asked: Options, rows: list[Row]) -> list[Split]:
    planned = plan(asked)
    assert len(tiered_only(planned)) == 1 and rows
    return planned


def at(splits: list[Split], stack: TieredStack, url: str) -> list[Split]:
    """The splits, their objects at another endpoint."""
    return [with_urls(split, {stack.s3_endpoint: url}) for split in splits]


def trusting(asked: Options, url: str) -> Options:
    """The options, with locations at `url` allowed too."""
    return replace(asked, storage=replace(asked.storage, signed_hosts=(*asked.storage.signed_hosts, url)))


def fell_back(metrics: ReadMetrics, reason: str) -> None:
    assert (metrics.remote_fetch_fallbacks, getattr(metrics, f"fallbacks_{reason}")) == (1, 1), metrics


def test_nothing_falls_back_when_all_is_well(splits: list[Split], asked: Options, rows: list[Row]) -> None:
    found, metrics = read(splits, asked)
    assert found == rows and not metrics.remote_fetch_fallbacks


@pytest.fixture
def full_queue() -> Iterator[str]:
    """A server that takes no connection."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        waiting = socket.create_connection(server.getsockname(), timeout=5)
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        waiting.close()


def test_connect_timeout(
    splits: list[Split], impatient: Options, rows: list[Row], stack: TieredStack, full_queue: str
) -> None:
    found, metrics = read(at(splits, stack, full_queue), trusting(impatient, full_queue))
    assert found == rows
    fell_back(metrics, "connect_timeout")


def test_read_timeout(splits: list[Split], impatient: Options, rows: list[Row], stack: TieredStack) -> None:
    with ScriptedHttp([SILENCE]) as server:
        found, metrics = read(at(splits, stack, server.url), trusting(impatient, server.url))
    assert found == rows
    fell_back(metrics, "read_timeout")


def test_refused_credentials(
    splits: list[Split], asked: Options, rows: list[Row], stack: TieredStack, tmp_path: Path
) -> None:
    """Refused again after the location was signed anew: the storage does not know who signed it."""
    refused = [with_urls(split, {"X-Amz-Signature=": "X-Amz-Signature=0"}) for split in splits]
    assert read(refused, asked)[1].remote_fetch_fallbacks == 0, "a new signature helps"
    wrong = {**stack.options(), "remote.storage.aws.secret.access.key": "wrong"}
    with RunningGateway(tmp_path / "wrong-secret", wrong) as gateway:
        through = options(gateway, TOPIC, PATIENT)
        found, metrics = read(plan(through), through)
    assert found == rows
    fell_back(metrics, "refused")


def test_object_deleted_in_mid_split(gateway: RunningGateway, stack: TieredStack, topic: str) -> None:
    """The broker reads the same storage: it can help only where it has the segment on its own disk, too."""
    create_tiered_topic(stack.broker, topic, config={**BY_STEP, **KEEP_LOCAL})
    for number in range(4):
        values = records(60, number * 60, timestamp_ms=FIRST_TIMESTAMP_MS + number * SEGMENT_STEP_MS)
        produce_segments(stack.broker, topic, [values])
    wait_until_tiered(stack.broker, topic, deleted_locally=False)
    asked = options(gateway, topic, PATIENT)
    splits = plan(asked)
    (tiered,) = tiered_only(splits)
    assert len(tiered.locations) == 3
    base_offset = f"{tiered.locations[1].segment.base_offset:020d}"
    (key,) = stack.tier_dir.glob(f"{topic}-0-*/{base_offset}-*.log")
    key.unlink()
    found, metrics = read(splits, asked)
    assert found == read_topic(stack.broker, topic), "what came before the fallback is given once"
    assert metrics.remote_fetch_bytes and metrics.broker_fetch_bytes
    fell_back(metrics, "not_found")


def test_a_busy_storage_is_asked_again_before_anything_falls_back(
    splits: list[Split], asked: Options, rows: list[Row], stack: TieredStack
) -> None:
    with ScriptedHttp([answer(503)]) as server:
        found, metrics = read(at(splits, stack, server.url), trusting(asked, server.url))
        assert len(server.requests) >= 4
    assert found == rows
    fell_back(metrics, "other")


def test_a_location_at_a_host_that_is_not_the_storages(
    splits: list[Split], asked: Options, rows: list[Row], stack: TieredStack
) -> None:
    with ScriptedHttp([answer(200)]) as server:
        found, metrics = read(at(splits, stack, server.url), asked)
        assert not server.requests
    assert found == rows
    fell_back(metrics, "refused")


def test_unknown_storage_format(splits: list[Split], asked: Options, rows: list[Row]) -> None:
    foreign = [
        replace(split, locations=tuple(replace(each, storage_format="OtherV9") for each in split.locations))
        for split in splits
    ]
    found, metrics = read(foreign, asked)
    assert found == rows
    fell_back(metrics, "unknown_format")


def test_without_a_fetcher_locations_are_never_asked_for(
    gateway: RunningGateway, stack: TieredStack, rows: list[Row]
) -> None:
    disabled = options(gateway, TOPIC, {"kafka.fetch.remote.enabled": "false"})
    with RunningGateway(
        stack.folder / "unsigned", {**stack.options(), "gateway.signed.location.lifetime.seconds": "0"}
    ) as unsigned:
        for asked in (disabled, options(unsigned, TOPIC)):
            splits = plan(asked)
            assert not tiered_only(splits)
            found, metrics = read(splits, asked)
            assert found == rows and not metrics.remote_fetch_requests
        assert unsigned.metric("location_seconds_count") == 0
        own_storage = options(
            unsigned, TOPIC,
            {name: value for name, value in stack.options().items() if name.startswith("remote.")},
        )  # fmt: skip
        found, metrics = read(plan(own_storage), own_storage)
        assert found == rows and metrics.remote_fetch_requests and not metrics.remote_fetch_fallbacks


def test_a_reader_that_may_not_fall_back_fails_instead(
    splits: list[Split], impatient: Options, stack: TieredStack
) -> None:
    with ScriptedHttp([SILENCE]) as server, pytest.raises(StorageError):
        read(at(splits, stack, server.url), replace(trusting(impatient, server.url), fallback=Fallback.FAIL))


def test_an_expired_location_is_signed_anew_on_the_executor(
    splits: list[Split], asked: Options, rows: list[Row], gateway: RunningGateway
) -> None:
    old = [
        with_urls(split, {"X-Amz-Expires=60": "X-Amz-Expires=1", "X-Amz-Date=20": "X-Amz-Date=19"}) for split in splits
    ]
    found, metrics = read(old, asked)
    assert found == rows and not metrics.remote_fetch_fallbacks
