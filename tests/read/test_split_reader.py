"""One split to Arrow, from segments in a folder and, where storage fails, from a real broker."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from struct import unpack_from
from threading import Event
from unittest.mock import Mock
from uuid import UUID

import pyarrow as pa
import pytest
from kafka import TopicPartition as KafkaTopicPartition

from tests.archives import arrow_rows
from tests.broker.scripted import MetadataRequest, ScriptedClient, fetched, metadata
from tests.plan.planned_splits import plan_splits
from tests.reading import BY_STEP, SEGMENT_STEP_MS, options, records
from tests.records.batches import marker_batch, transactional_batch
from tests.rigs.stack.batches import CODECS, record_batch
from tests.rigs.stack.consume import read_topic
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.produce import RawProducer
from tests.rigs.stack.rows import Record, Row
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import KEEP_LOCAL, create_tiered_topic, roll, wait_until_tiered
from tests.rigs.stack.transactions import TransactionalProducer
from tests.tier.topics import PARTITION, TierFolder
from tiered_stream.broker.record_fetch import FetchedRecords
from tiered_stream.errors import (
    CorruptDataError,
    DataLossError,
    FetchTimeoutError,
    OffsetOutOfRangeError,
    StorageFormatError,
    StorageObjectNotFoundError,
)
from tiered_stream.locate.log_source import open_log_source
from tiered_stream.model import (
    AbortedTransaction,
    OffsetRange,
    RemoteLogSegment,
    SegmentLocation,
    Split,
    TopicPartition,
)
from tiered_stream.observe.metrics_receiver import MetricsReceiver
from tiered_stream.options.parsing import FetchOptions, Options, parse_options
from tiered_stream.read import split_reader as read_module
from tiered_stream.read.split_reader import SplitReader, read_split
from tiered_stream.read.task_storage import TaskStorage
from tiered_stream.records.arrow import record_schema
from tiered_stream.spark.report_addresses import addresses_option

SMALL_REQUESTS = FetchOptions(request_bytes=1000, in_flight=3, memory_bytes=4000)


def record_at(offset: int) -> Record:
    """The record that tests put at an offset."""
    headers = (("h", b"%d" % offset),) if offset % 3 else ()
    return Record(b"key %d" % offset, b"value " * (offset % 50), headers, 1_700_000_000_000 + offset)


def batches_of(start: int, end: int, size: int = 7, codecs: Sequence[str] = ("none",)) -> list[bytes]:
    """Batches of `size` offsets from `start` to `end` (exclusive), the codecs taking turns."""
    return [
        record_batch(map(record_at, range(base, min(base + size, end))), codecs[index % len(codecs)], base_offset=base)
        for index, base in enumerate(range(start, end, size))
    ]


def rows_at(*offsets: int) -> list[Row]:
    """What must come out for the records at these offsets."""
    return [
        Row(PARTITION.partition, offset, each.timestamp_ms, 0, each.key, each.value, each.headers)
        for offset in offsets
        for each in [record_at(offset)]
    ]


@pytest.fixture
def tier(tmp_path: Path) -> TierFolder:
    return TierFolder(tmp_path)


def offline(tier: TierFolder, **given: str) -> Options:
    """Options to read the folder, with no broker, in small requests."""
    reading = {"subscribe": "orders", "remote.log.locator": "archive", "includeHeaders": "true"}
    parsed = parse_options({**reading, "remote.storage.uri": tier.root.as_uri(), **given}, streaming=False)
    return replace(parsed, fetch=SMALL_REQUESTS)


def failing(parsed: Options, tier: Path, fails_at: str) -> Options:
    given = {**parsed.kafka, "test.tier": str(tier), "test.fails.at": fails_at}
    return replace(parsed, fetcher_class="tests.failing_fetcher.FailingFetcher", kafka=given)


def split_of(*locations: SegmentLocation, offsets: OffsetRange | None = None) -> Split:
    return Split(PARTITION, offsets or OffsetRange(locations[0].offsets.start, locations[-1].offsets.end), locations)


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    return [row for batch in batches for row in arrow_rows(batch)]


def test_the_segments_of_a_split_are_read_one_after_the_other(tier: TierFolder) -> None:
    ends = [0, 50, 60, 160]
    segments = [tier.write(batches_of(*span, codecs=list(CODECS)), span[1]) for span in pairwise(ends)]
    assert rows_of(read_split(split_of(*(each.location() for each in segments)), offline(tier))) == rows_at(*range(160))


def test_records_outside_the_splits_offsets_are_dropped(tier: TierFolder) -> None:
    first, second = (tier.write(batches_of(start, start + 70), start + 70) for start in (0, 70))
    offsets = OffsetRange(33, 111)
    locations = [
        replace(part, offsets=part.offsets.intersect(offsets)) for part in (first.location(4), second.location(0, 6))
    ]
    assert rows_of(read_split(split_of(*locations), offline(tier))) == rows_at(*range(33, 111))


def test_the_splits_of_a_task_share_one_read_ahead(tier: TierFolder) -> None:
    """The first split's bytes come when those of the second one have been asked for."""
    splits = [split_of(tier.write(batches_of(start, start + 5), start + 5).location()) for start in range(0, 50, 5)]
    parsed = replace(offline(tier), fetch=FetchOptions())
    storage = TaskStorage(splits, parsed)
    asked: list[int] = []
    fetch, second = storage.fetcher.fetch_log_segment, Event()

    def counted(segment: RemoteLogSegment, start: int, end: int = -1) -> bytes:
        asked.append(segment.base_offset)
        if segment.base_offset == 5:
            second.set()
        assert segment.base_offset or second.wait(600)
        return fetch(segment, start, end)

    storage.fetcher = Mock(wraps=storage.fetcher, fetch_log_segment=counted, slow_down_responses=lambda: 0)
    found = []
    for split in splits:
        reader = SplitReader(split, parsed, storage=storage)
        found += rows_of(reader.batches())
        assert reader.metrics.remote_fetch_requests == 1
    assert found == rows_at(*range(50))
    assert sorted(asked) == list(range(0, 50, 5))


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_split_of_a_task_that_storage_fails_to_give_leaves_the_others_as_they_are(
    tier: TierFolder, gone: int
) -> None:
    written = [tier.write(batches_of(start, start + 30), start + 30) for start in (0, 30, 60)]
    tier.log(written[gone]).unlink()
    parsed = offline(tier)
    splits = [split_of(each.location()) for each in written]
    storage = TaskStorage(splits, parsed)
    for number, split in enumerate(splits):
        reader = SplitReader(split, parsed, storage=storage)
        if number == gone:
            with pytest.raises(StorageObjectNotFoundError):
                rows_of(reader.batches())
        else:
            assert rows_of(reader.batches()) == rows_at(*range(30 * number, 30 * number + 30))


def test_a_split_that_is_left_before_its_end_leaves_the_others_as_they_are(tier: TierFolder) -> None:
    splits = [split_of(tier.write(batches_of(start, start + 30), start + 30).location()) for start in (0, 30, 60)]
    parsed = offline(tier)
    storage = TaskStorage(splits, parsed)
    first = SplitReader(splits[0], parsed, max_rows=1, storage=storage).batches()
    next(first)
    first.close()  # type: ignore[attr-defined]
    assert rows_of(SplitReader(splits[2], parsed, storage=storage).batches()) == rows_at(*range(60, 90))


def test_records_of_other_times_are_dropped(tier: TierFolder) -> None:
    split = split_of(tier.write(batches_of(0, 70), 70).location())
    first = rows_at(0)[0].timestamp_ms
    between = {"remote.from.timestamp": str(first + 20), "remote.to.timestamp": str(first + 23)}
    reader = SplitReader(split, offline(tier, **between))
    assert rows_of(reader.batches()) == rows_at(20, 21, 22) and reader.metrics.records == 3
    assert rows_of(read_split(split, offline(tier, **{"remote.from.timestamp": str(first + 69)}))) == rows_at(69)
    for nothing in (str(first + 70), str(2**63 - 1)):
        assert list(read_split(split, offline(tier, **{"remote.from.timestamp": nothing}))) == []


def test_columns_are_those_that_are_asked_for_in_their_order(tier: TierFolder) -> None:
    split = split_of(tier.write(batches_of(0, 70), 70).location())
    whole = pa.Table.from_batches(read_split(split, offline(tier)))
    some = ["offset"], ["headers", "value"], ["topic"], ["timestampType", "partition", "key"]
    for columns in (*some, whole.column_names):
        found = pa.Table.from_batches(read_split(split, offline(tier, columns=",".join(columns))))
        assert found.schema == record_schema(True, columns) and found == whole.select(columns)
    first = rows_at(0)[0].timestamp_ms
    late = {"remote.from.timestamp": str(first + 69), "columns": "offset"}
    assert [batch.to_pydict() for batch in read_split(split, offline(tier, **late))] == [{"offset": [69]}]


@pytest.mark.parametrize("cuts", [[0, 4], [0, 1, 2, 9], list(range(10))])
def test_a_segment_cut_at_batch_starts_gives_each_record_once(tier: TierFolder, cuts: list[int]) -> None:
    written = tier.write(batches_of(100, 170, codecs=list(CODECS)), 170)
    parts = [split_of(written.location(first, end)) for first, end in pairwise([*cuts, 10])]
    rows = [row for part in parts for row in rows_of(read_split(part, offline(tier)))]
    assert rows == rows_at(*range(100, 170))


@pytest.mark.contract("1.6 gap in the log")
def test_offsets_that_a_segment_lacks_are_no_loss(tier: TierFolder) -> None:
    batches = [record_batch([record_at(base)], base_offset=base) for base in (0, 5, 6, 40)]
    assert rows_of(read_split(split_of(tier.write(batches, 60).location()), offline(tier))) == rows_at(0, 5, 6, 40)


@pytest.mark.contract("1.6 gap in the log")
def test_markers_and_aborted_transactions_are_left_out_also_where_they_span_segments(tier: TierFolder) -> None:
    def by(producer_id: int, offset: int) -> bytes:
        return transactional_batch([record_at(offset)], offset, producer_id)

    first = tier.write([by(5, 0), by(6, 1), *batches_of(2, 4), by(5, 4)], 5)
    second = tier.write([marker_batch(5, 6, commit=True), by(5, 6), marker_batch(7, 5, commit=False), by(5, 8)], 9)
    third = tier.write([marker_batch(9, 5, commit=True), *batches_of(10, 12)], 12)
    aborted = (AbortedTransaction(5, 0, 7),)
    locations = first.location(aborted=aborted), second.location(aborted=aborted), third.location()
    assert rows_of(read_split(split_of(*locations), offline(tier))) == rows_at(1, 2, 3, 8, 10, 11)
    unfiltered = split_of(*(replace(location, aborted_transactions=()) for location in locations))
    uncommitted = offline(tier, **{"kafka.isolation.level": "read_uncommitted"})
    assert rows_of(read_split(unfiltered, uncommitted)) == rows_at(0, 1, 2, 3, 4, 6, 8, 10, 11)


def test_a_split_whose_segments_hold_no_record_of_it_gives_nothing(tier: TierFolder) -> None:
    written = tier.write([marker_batch(0, 5, commit=True)], 1)
    assert list(read_split(split_of(written.location()), offline(tier))) == []


@pytest.mark.parametrize("remaining", [0, 30, 700, 1500])
def test_a_truncated_object_is_corrupt_and_names_the_partition(tier: TierFolder, remaining: int) -> None:
    written = tier.write(batches_of(0, 70), 70)
    log = tier.log(written)
    log.write_bytes(log.read_bytes()[:remaining])
    with pytest.raises(CorruptDataError, match="orders-3"):
        list(read_split(split_of(written.location()), offline(tier)))


@pytest.mark.contract("1.6 no progress for the poll timeout")
@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_task_that_gets_nothing_for_the_poll_timeout_fails_whatever_may_be_lost(
    monkeypatch: pytest.MonkeyPatch, fail_on_data_loss: str
) -> None:
    client = ScriptedClient(lambda _, message: metadata() if isinstance(message, MetadataRequest) else fetched())
    monkeypatch.setattr("tiered_stream.broker.client.open_client", lambda _: client)
    given = {"kafkaConsumer.pollTimeoutMs": "30", "failOnDataLoss": fail_on_data_loss}
    parsed = parse_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t", **given}, streaming=False)
    expected = r"partition t-0: cannot fetch record for offset 5 in 30 ms \(kafkaConsumer\.pollTimeoutMs\)"
    with client, pytest.raises(FetchTimeoutError, match=expected):
        list(read_split(Split(TopicPartition("t", 0), OffsetRange(5, 9)), parsed))


@pytest.mark.parametrize(
    "given",
    [
        {"remote.fallback": "fail"},
        {"remote.fallback": "broker"},
        {"remote.fallback": "fail", "kafka.bootstrap.servers": "127.0.0.1:1"},
    ],
    ids=["no broker", "no broker to fall back to", "no fallback"],
)
def test_without_a_broker_or_a_fallback_a_missing_object_is_an_error(tier: TierFolder, given: dict[str, str]) -> None:
    written = tier.write(batches_of(0, 70), 70)
    tier.log(written).unlink()
    with pytest.raises(StorageObjectNotFoundError, match=tier.log(written).name):
        list(read_split(split_of(written.location()), offline(tier, **given)))


def test_what_reading_cost_is_counted_and_sent(tier: TierFolder) -> None:
    segments = [tier.write(batches_of(start, start + 100), start + 100) for start in range(0, 300, 100)]
    size = sum(each.segment.size for each in segments)
    with MetricsReceiver() as receiver:
        given = offline(tier, **{"remote.metrics.secret.addresses": addresses_option(receiver.report_to)})
        batches = list(read_split(split_of(*(each.location() for each in segments)), given))
        wait_until(lambda: receiver.total().records > 0, "the task's counters", pause=0.01)
        total = receiver.total()
    assert (total.records, total.record_bytes) == (300, sum(batch.nbytes for batch in batches))
    assert total.remote_fetch_bytes == size
    assert size / 2000 <= total.remote_fetch_requests <= size / 250  # the usual bytes, twice or a quarter of them
    assert 0 < total.remote_fetch_latency_max <= total.remote_fetch_latency_total
    assert total.remote_fetch_errors == total.remote_fetch_fallbacks == 0
    assert total.broker_fetch_requests == total.broker_fetch_bytes == 0


def test_no_byte_outside_the_locations_is_asked_for(tier: TierFolder) -> None:
    written = tier.write(batches_of(0, 700), 700)
    split = split_of(written.location(3, 40), replace(written.location(40, 45)))
    reader = SplitReader(split, offline(tier))
    assert rows_of(reader.batches()) == rows_at(*range(21, 315))
    assert reader.metrics.remote_fetch_bytes == split.storage_bytes


STARTS = [0, 130, 261, 391, 522]
EVERYTHING = OffsetRange(0, 653)


@pytest.fixture(scope="module")
def kept_locally(stack: TieredStack) -> str:
    """A topic with five tiered segments, every batch in the index, of which the broker keeps its own copies.

    Each has 12 batches of 10 records, and one more of a transaction. That of the first two segments is aborted.
    """
    topic = "kept-locally"
    create_tiered_topic(stack.broker, topic, config=BY_STEP | KEEP_LOCAL | {"index.interval.bytes": "0"})
    later_than_markers = (int(time.time()) + 3600) * 1000
    with RawProducer(stack.broker) as producer, TransactionalProducer(stack.broker, topic) as transaction:
        for number, start in enumerate(STARTS):
            contents = records(130, start, 100, later_than_markers + number * SEGMENT_STEP_MS)
            producer.send_all(topic, contents[:120], batch_records=10)
            assert transaction.send(topic, contents[120:]) == start + 120
            if number == 1:
                transaction.abort()
            elif number > 2:
                transaction.commit()
    roll(stack.broker, topic)
    assert wait_until_tiered(stack.broker, topic, deleted_locally=False) == {0: EVERYTHING.end}
    return topic


def planned(stack: TieredStack, topic: str, offsets: OffsetRange, **given: str) -> tuple[list[Split], Options]:
    """The splits of an offset range of partition 0, and the options to read them with."""
    parsed = parse_options(options(stack, topic, given), streaming=False)
    with closing(open_log_source(parsed)) as tier:
        splits = plan_splits({TopicPartition(topic, 0): offsets}, tier.locator, split_bytes=parsed.split_bytes)
    return splits, replace(parsed, fetch=SMALL_REQUESTS)


def consumed(stack: TieredStack, topic: str, offsets: OffsetRange) -> list[Row]:
    return read_topic(stack.broker, topic, ranges={0: (offsets.start, offsets.end)})


def log_objects(stack: TieredStack, topic: str) -> list[Path]:
    return sorted(stack.tier_dir.glob(f"{topic}-0-*/*.log"))


@pytest.mark.parametrize(
    "fails_at", ["0:0", "0:5000", "130:0", "130:15000", "261:0", "261:1000", "261:7777", "522:9000"]
)
def test_what_storage_no_longer_gives_comes_from_the_broker_once_and_in_order(
    stack: TieredStack, kept_locally: str, fails_at: str, caplog: pytest.LogCaptureFixture
) -> None:
    (split,), parsed = planned(stack, kept_locally, OffsetRange(3, 649))
    reader = SplitReader(split, failing(parsed, stack.tier_dir, fails_at))
    with caplog.at_level(logging.WARNING, "tiered_stream.read.split_reader"):
        assert rows_of(reader.batches()) == consumed(stack, kept_locally, split.offsets)
    assert (reader.metrics.remote_fetch_errors, reader.metrics.remote_fetch_fallbacks) == (1, 1)
    assert reader.metrics.broker_fetch_bytes > 0
    (warning,) = (record.getMessage() for record in caplog.records if record.name == "tiered_stream.read.split_reader")
    assert "broker" in warning and ": no access" in warning


@pytest.mark.parametrize("split_bytes", ["1", "5000", "128m"])
@pytest.mark.parametrize(
    ("offsets", "batches_more"), [(EVERYTHING, 0), (OffsetRange(57, 431), 1)], ids=["whole segments", "parts of them"]
)
def test_bytes_asked_for_are_those_needed(
    stack: TieredStack, kept_locally: str, offsets: OffsetRange, batches_more: int, split_bytes: str
) -> None:
    """An index entry tells a batch's last offset: the batch before a start is read too, and one at each cut."""
    splits, parsed = planned(stack, kept_locally, offsets, **{"remote.split.bytes": split_bytes})
    readers = [SplitReader(split, parsed) for split in splits]
    assert rows_of(batch for reader in readers for batch in reader.batches()) == consumed(stack, kept_locally, offsets)
    batches = [size for path in log_objects(stack, kept_locally) for size in needed_batches(path, offsets)]
    asked, needed = sum(reader.metrics.remote_fetch_bytes for reader in readers), sum(batches)
    cuts = sum(before.locations[-1].segment == after.locations[0].segment for before, after in pairwise(splits))
    assert needed <= asked <= 1.02 * needed + (batches_more + cuts) * max(batches)
    assert sum(reader.metrics.broker_fetch_bytes for reader in readers) == 0
    assert len(splits) > 5 or split_bytes == "128m"


def needed_batches(log_object: Path, offsets: OffsetRange) -> Iterator[int]:
    """The sizes of the batches that hold the offsets."""
    log, position = log_object.read_bytes(), 0
    while position < len(log):
        base_offset, length, last_delta = unpack_from(">qi11xi", log, position)
        if base_offset < offsets.end and base_offset + last_delta >= offsets.start:
            yield 12 + length
        position += 12 + length


@pytest.fixture(scope="module")
def shortened(stack: TieredStack) -> str:
    """A topic of 100 records whose first 40 have been deleted."""
    topic = "shortened"
    create_tiered_topic(stack.broker, topic)
    with RawProducer(stack.broker) as producer:
        producer.send_all(topic, records(100), batch_records=10)
    with stack.broker.admin() as admin:
        admin.delete_records({KafkaTopicPartition(topic, 0): 40})
    return topic


def test_records_of_a_topic_that_was_made_again_since_the_plan_are_data_loss(
    stack: TieredStack, shortened: str, caplog: pytest.LogCaptureFixture
) -> None:
    split = Split(TopicPartition(shortened, 0), OffsetRange(50, 60), topic_id=UUID(int=9))
    with pytest.raises(DataLossError, match=r"COULD_NOT_READ_OFFSET_RANGE.*made again.*failOnDataLoss"):
        list(read_split(split, parse_options(options(stack, shortened), streaming=False)))
    lenient = parse_options(options(stack, shortened, {"failOnDataLoss": "false"}), streaming=False)
    reader = SplitReader(split, lenient)
    assert (rows_of(reader.batches()), reader.metrics.lost_offsets) == ([], 10)
    assert f"{shortened}-0: offsets 50 to 60 " in caplog.text


@pytest.mark.contract("1.6 log start that moves during the read", "2.98")
@pytest.mark.parametrize(("offsets", "held"), [((0, 90), (40, 90)), ((70, 130), (70, 100)), ((0, 30), (0, 0))])
def test_records_that_are_gone_are_data_loss(
    stack: TieredStack, shortened: str, offsets: tuple[int, int], held: tuple[int, int]
) -> None:
    split = Split(TopicPartition(shortened, 0), OffsetRange(*offsets))
    with pytest.raises(DataLossError, match=f"COULD_NOT_READ_OFFSET_RANGE. {shortened}-0: offsets .* failOnDataLoss"):
        list(read_split(split, parse_options(options(stack, shortened), streaming=False)))
    lenient = parse_options(options(stack, shortened, {"failOnDataLoss": "false"}), streaming=False)
    assert [row.offset for row in rows_of(read_split(split, lenient))] == list(range(*held))


def test_what_a_broker_sends_is_paced(stack: TieredStack, shortened: str, monkeypatch: pytest.MonkeyPatch) -> None:
    paced: list[int] = []
    monkeypatch.setattr(read_module, "pace_of", lambda side, rate: paced.append)
    split = Split(TopicPartition(shortened, 0), OffsetRange(40, 100))
    reader = SplitReader(split, parse_options(options(stack, shortened), streaming=False))
    assert len(rows_of(reader.batches())) == 60
    assert sum(paced) == reader.metrics.broker_fetch_bytes > 0


class BrokerLog:
    """A broker's log, one batch a Fetch: it is in place of `read_range` and of the reader of offsets.

    `moves` says at which offset of a read the log start becomes another one. Left out are the wire, topic ids, and
    transactions.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, batches: list[bytes], start: int = 0) -> None:
        self.batches = {int.from_bytes(batch[:8], "big"): batch for batch in batches}
        self.start = start
        self.moves: dict[int, int] = {}
        self.asked: list[OffsetRange] = []
        monkeypatch.setattr("tiered_stream.broker.client.open_client", lambda _: None)
        monkeypatch.setattr("tiered_stream.broker.record_fetch.read_range", self.read_range)
        monkeypatch.setattr("tiered_stream.broker.list_offsets.BrokerOffsetReader", lambda *_: self)

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.start)

    def read_range(self, *arguments: object, **_: object) -> Iterator[FetchedRecords]:
        _, partition, wanted, _ = arguments
        assert isinstance(partition, TopicPartition) and isinstance(wanted, OffsetRange)
        self.asked.append(wanted)
        at = wanted.start
        while at < wanted.end:
            self.start = self.moves.get(at, self.start)
            if at < self.start:
                raise OffsetOutOfRangeError(f"the log begins at offset {self.start}")
            following = {base: each for base, each in self.batches.items() if at < base + batch_records(each)}
            if not following:
                return
            base = min(following)
            yield FetchedRecords(partition, at, following[base], 1000, 1000)
            at = base + batch_records(following[base])


def batch_records(batch: bytes) -> int:
    count: int = unpack_from(">i", batch, 57)[0]
    return count


@pytest.mark.parametrize(
    ("fails_at", "given"),
    [("0:0", range(1)), ("0:4000", range(7, 70)), ("70:0", range(70, 71)), ("70:4000", range(77, 140))],
)
def test_a_broker_is_asked_for_no_record_again_that_storage_gave_before_it_failed(
    tier: TierFolder, monkeypatch: pytest.MonkeyPatch, fails_at: str, given: range
) -> None:
    written = [tier.write(batches_of(start, start + 70), start + 70) for start in (0, 70)]
    broker = BrokerLog(monkeypatch, batches_of(0, 140))
    parsed = failing(offline(tier, **{"kafka.bootstrap.servers": "b:1"}), tier.root, fails_at)
    reader = SplitReader(split_of(*(each.location() for each in written)), parsed)
    assert rows_of(reader.batches()) == rows_at(*range(140))
    (asked,) = broker.asked
    assert asked.start in given and asked.end == 140
    metrics = reader.metrics
    assert (metrics.remote_fetch_errors, metrics.remote_fetch_fallbacks, metrics.lost_offsets) == (1, 1, 0)


def lenient(tier: TierFolder) -> Options:
    return offline(tier, **{"kafka.bootstrap.servers": "b:1", "failOnDataLoss": "false"})


@pytest.mark.parametrize(
    ("wanted", "log_start", "held"),
    [
        ((0, 90), 40, (40, 90)),
        ((39, 90), 40, (40, 90)),
        ((0, 41), 40, (40, 41)),
        ((0, 40), 40, (0, 0)),
        ((0, 30), 40, (0, 0)),
        ((40, 120), 40, (40, 100)),
        ((110, 120), 40, (0, 0)),
    ],
)
def test_a_read_goes_on_at_the_log_start_and_counts_the_offsets_that_are_lost(
    tier: TierFolder, monkeypatch: pytest.MonkeyPatch, wanted: tuple[int, int], log_start: int, held: tuple[int, int]
) -> None:
    BrokerLog(monkeypatch, batches_of(0, 100), log_start)
    reader = SplitReader(Split(PARTITION, OffsetRange(*wanted)), lenient(tier))
    assert rows_of(reader.batches()) == rows_at(*range(*held))
    assert reader.metrics.lost_offsets == wanted[1] - wanted[0] - len(range(*held))


def test_a_log_start_that_moves_twice_during_a_read_costs_only_what_it_passed(
    tier: TierFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = BrokerLog(monkeypatch, batches_of(0, 100))
    broker.moves = {14: 40, 56: 70}
    split = Split(PARTITION, OffsetRange(3, 90))
    reader = SplitReader(split, lenient(tier))
    assert rows_of(reader.batches()) == rows_at(*range(3, 14), *range(40, 56), *range(70, 90))
    assert reader.metrics.lost_offsets == (40 - 14) + (70 - 56)
    assert broker.asked == [OffsetRange(3, 90), OffsetRange(40, 90), OffsetRange(70, 90)]
    broker.start = 0
    strict = offline(tier, **{"kafka.bootstrap.servers": "b:1"})
    with pytest.raises(DataLossError, match="orders-3: offsets 14 to 90 "):
        list(read_split(split, strict))


@pytest.mark.parametrize("cut", [0, 1])
def test_each_segment_of_a_split_must_end_with_a_whole_batch(tier: TierFolder, cut: int) -> None:
    parts = [tier.write(batches_of(start, start + 70), start + 70).location() for start in (0, 70)]
    parts[cut] = replace(parts[cut], bytes=replace(parts[cut].bytes, end=parts[cut].bytes.end - 1))
    with pytest.raises(CorruptDataError, match=f"orders-3 at offset {70 * cut + 63}"):
        list(read_split(split_of(*parts), offline(tier)))


def test_a_segment_of_an_unknown_storage_format_is_left_to_the_broker_if_there_is_one(
    tier: TierFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, other = (tier.write(batches_of(start, start + 70), start + 70).location() for start in (0, 70))
    split = split_of(known, replace(other, storage_format="parquet"))
    with pytest.raises(StorageFormatError, match="'parquet'"):
        list(read_split(split, offline(tier)))
    broker = BrokerLog(monkeypatch, batches_of(0, 140))
    with_broker = offline(tier, **{"kafka.bootstrap.servers": "b:1"})
    reader = SplitReader(split, with_broker)
    assert rows_of(reader.batches()) == rows_at(*range(140))
    assert (broker.asked, reader.metrics.remote_fetch_requests) == ([OffsetRange(0, 140)], 0)


@pytest.mark.parametrize("max_rows", [1, 2])
def test_the_latest_timestamp_stays_known_though_an_older_record_follows(tier: TierFolder, max_rows: int) -> None:
    batches = [record_batch([Record(timestamp_ms=at) for at in (5000, 3000)])]
    reader = SplitReader(split_of(tier.write(batches, 2).location()), offline(tier), max_rows=max_rows)
    assert [row.timestamp_ms for row in rows_of(reader.batches())] == [5000, 3000]
    assert reader.metrics.record_timestamp_max == 5000


def test_a_segment_whose_last_offsets_have_no_record_is_not_read_again_where_the_next_one_fails(
    tier: TierFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tier.write(batches_of(0, 35), 60), tier.write(batches_of(60, 95), 95)
    tier.log(second).unlink()
    broker = BrokerLog(monkeypatch, [*batches_of(0, 35), *batches_of(60, 95)])
    with_broker = offline(tier, **{"kafka.bootstrap.servers": "b:1"})
    found = rows_of(read_split(split_of(first.location(), second.location()), with_broker))
    assert found == rows_at(*range(35), *range(60, 95))
    assert [asked.start for asked in broker.asked] == [35]


def test_the_seconds_of_decoding_are_some_of_those_that_reading_takes(tier: TierFolder) -> None:
    reader = SplitReader(split_of(tier.write(batches_of(0, 70), 70).location()), offline(tier))
    began = time.perf_counter()
    assert len(rows_of(reader.batches())) == 70
    assert 0 < reader.metrics.decode_seconds < time.perf_counter() - began
