"""`scan`: golden archives without Spark, in order or as they come, and what becomes of its threads."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Generator
from functools import partial

import pyarrow as pa
import pytest

from tests.archives import COMMITTED, PLAIN, Rows, archive_options, arrow_rows, consumed
from tests.golden import NAMES
from tests.reading import options, records, tier_segments
from tests.rigs.stack.consume import read_topic
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.produce import produce_segments
from tests.rigs.stack.tiered_stack import TieredStack
from tiered_stream import scan
from tiered_stream.errors import ConfigurationError, StorageError
from tiered_stream.model import OffsetRange, Split, TopicPartition
from tiered_stream.read.scanner import THREAD_NAME, _ThreadedReader, follow
from tiered_stream.records.arrow import SCHEMA_WITH_HEADERS

pytestmark = pytest.mark.costly

SMALL_SPLITS = {"remote.split.bytes": "20k"}


def by_partition(reader: pa.RecordBatchReader) -> Rows:
    read: Rows = {}
    for batch in reader:
        row = batch.slice(0, 1).to_pylist()[0]
        read.setdefault(TopicPartition(row["topic"], row["partition"]), []).extend(arrow_rows(batch))
    return read


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("name", NAMES)
def test_records_come_partition_after_partition_in_the_order_of_their_offsets(name: str, threads: int) -> None:
    read = by_partition(scan(archive_options(name, SMALL_SPLITS), threads=threads, waiting_bytes=1))
    assert read == consumed(name, COMMITTED)
    assert list(read) == sorted(read)


@pytest.mark.parametrize("name", NAMES)
def test_without_an_order_the_same_records_come(name: str) -> None:
    read = by_partition(scan(archive_options(name, SMALL_SPLITS), threads=3, ordered=False))
    assert {partition: sorted(rows) for partition, rows in read.items()} == consumed(name, COMMITTED)


def test_a_table_of_it_has_the_columns_of_sparks_kafka_source() -> None:
    table = scan(archive_options(PLAIN)).read_all()
    assert table.schema == SCHEMA_WITH_HEADERS
    assert table.num_rows == sum(map(len, consumed(PLAIN, COMMITTED).values()))


def test_a_wrong_option_is_said_before_anything_is_read() -> None:
    with pytest.raises(ConfigurationError, match="startingOffsets"):
        scan(archive_options(PLAIN, {"startingOffsets": "yesterday"}))


@pytest.mark.parametrize("threads", [0, -1])
def test_a_number_of_threads_that_cannot_read_is_refused(threads: int) -> None:
    with pytest.raises(ConfigurationError, match="threads"):
        scan(archive_options(PLAIN), threads=threads)


def test_it_needs_no_spark() -> None:
    check = "import sys, tiered_stream; tiered_stream.scan; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0


PARTITION = TopicPartition("made-up", 0)


def splits(count: int) -> list[Split]:
    return [Split(PARTITION, OffsetRange(number, number + 1), ()) for number in range(count)]


def numbered(split: Split) -> pa.RecordBatch:
    return pa.record_batch({"offset": pa.array([split.offsets.start], pa.int64())})


def wait_for_the_threads_to_end() -> None:
    wait_until(lambda: all(each.name != THREAD_NAME for each in threading.enumerate()), "the threads end")


def endless(split: Split) -> Generator[pa.RecordBatch, None, None]:
    while True:
        yield numbered(split)


def failing(split: Split, *, at: int) -> Generator[pa.RecordBatch, None, None]:
    yield numbered(split)
    if split.offsets.start == at:
        raise StorageError("gone")


def test_one_split_that_fails_fails_the_scan_and_ends_all_threads() -> None:
    with pytest.raises(StorageError, match="gone"):
        list(_ThreadedReader(splits(40), partial(failing, at=7), 3, 1000).batches(ordered=True))
    wait_for_the_threads_to_end()


@pytest.mark.parametrize("ordered", [True, False])
def test_who_stops_reading_ends_the_threads(ordered: bool) -> None:
    batches = _ThreadedReader(splits(5), endless, 3, 1000).batches(ordered=ordered)
    next(batches)
    batches.close()
    wait_for_the_threads_to_end()


def test_threads_end_if_the_system_does_not_start_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = threading.Thread.start, [0]

    def start_two(thread: threading.Thread) -> None:
        started[0] += 1
        if started[0] > 2:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_two)
    with pytest.raises(RuntimeError, match="start new thread"):
        next(_ThreadedReader(splits(5), endless, 3, 1000).batches(ordered=True))
    wait_for_the_threads_to_end()


def test_an_unread_reader_that_is_let_go_leaves_no_threads() -> None:
    reader = scan(archive_options(PLAIN, SMALL_SPLITS), threads=2, waiting_bytes=1)
    reader.read_next_batch()
    del reader
    wait_for_the_threads_to_end()


def test_pyarrows_close_does_not_reach_the_threads_which_end_when_the_reader_is_let_go() -> None:
    """As the docs say. If pyarrow passes `close` on one day, they are to say that."""
    reader = scan(archive_options(PLAIN, SMALL_SPLITS), threads=2, waiting_bytes=1)
    reader.read_next_batch()
    reader.close()
    assert any(each.name == THREAD_NAME for each in threading.enumerate())
    del reader
    wait_for_the_threads_to_end()


def test_no_more_than_asked_for_is_decoded_ahead() -> None:
    """But one batch, which the consumer waits for."""
    size = numbered(splits(1)[0]).nbytes
    ahead = _ThreadedReader(splits(50), partial(failing, at=-1), 4, 3 * size)
    for _ in ahead.batches(ordered=True):
        assert ahead._held_bytes <= 4 * size


@pytest.mark.stack
def test_a_topic_is_read_as_a_consumer_reads_it(stack: TieredStack, topic: str) -> None:
    tier_segments(stack, topic, [40, 30, 50], partitions=2)
    read = by_partition(scan(options(stack, topic, {"remote.split.bytes": "1k"}), threads=3))
    assert [row for rows in read.values() for row in rows] == read_topic(stack.broker, topic)


@pytest.mark.stack
def test_who_follows_a_topic_gets_what_is_there_and_what_comes(stack: TieredStack, topic: str) -> None:
    there = tier_segments(stack, topic, [40, 30])
    batches = follow(options(stack, topic), pause_ms=20)
    rows = [row for batch in taken(batches, there) for row in arrow_rows(batch)]
    produce_segments(stack.broker, topic, [records(25, there)])
    rows += [row for batch in taken(batches, 25) for row in arrow_rows(batch)]
    batches.close()
    assert rows == read_topic(stack.broker, topic)


def taken(batches: Generator[pa.RecordBatch, None, None], rows: int) -> list[pa.RecordBatch]:
    """The next batches, until they have so many rows."""
    found: list[pa.RecordBatch] = []
    while sum(batch.num_rows for batch in found) < rows:
        found.append(next(batches))
    return found
