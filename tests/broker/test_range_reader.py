from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace
from struct import pack
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.scripted import (
    TOPIC_ID,
    FetchRequest,
    MetadataRequest,
    ScriptedClient,
    answering,
    fetched,
    metadata,
    offsets,
)
from tests.records.batches import marker_batch, transactional_batch
from tests.rigs.stack.batches import record_batch
from tests.rigs.stack.rows import Record
from tiered_stream.broker.connections import Deadline
from tiered_stream.broker.list_offsets import ListOffsetsRequest
from tiered_stream.broker.record_fetch import (
    FetchedRecords,
    FetchTerms,
    _Position,
    fetch_records,
    offset_after,
    read_range,
)
from tiered_stream.errors import (
    BrokerUnavailableError,
    CorruptDataError,
    FetchTimeoutError,
    OffsetOutOfRangeError,
    TopicRecreatedError,
)
from tiered_stream.model import AbortedTransaction, OffsetRange, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.offset_json import EARLIEST
from tiered_stream.records.header import aborted_in_fetched, control_batches

PARTITION = TopicPartition("t", 0)
COMMITTED = IsolationLevel.READ_COMMITTED
OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_ID, UNKNOWN_SERVER_ERROR, CODE_OF_THE_FUTURE = 1, 100, -1, 9999
PATIENT_MS = 600_000
NEXT_ID = UUID(int=8)


def batch(base_offset: int, records: int = 2, value: bytes = b"v") -> bytes:
    return record_batch([Record(value=value)] * records, base_offset=base_offset)


def legacy_message(offset: int) -> bytes:
    """Magic 1: offset, size, CRC (not looked at), magic, attributes, timestamp, null key, empty value."""
    return pack(">qiibbqii", offset, 22, 0, 1, 0, 0, -1, 0)


def after(records: bytes, fetch_offset: int = 0) -> int | None:
    return offset_after(FetchedRecords(PARTITION, fetch_offset, records, 100, 100))


def test_the_offset_after_the_last_whole_batch_is_found_wherever_the_bytes_are_cut() -> None:
    first, second = batch(10, 3), batch(20, 2)
    log = first + second

    for length in range(len(log) + 1):
        whole = None if length < len(first) else 13 if length < len(log) else 22
        assert after(log[:length], 10) == whole


def test_messages_of_the_old_formats_count_one_offset_each() -> None:
    assert after(legacy_message(7) + legacy_message(8) + b"\0" * 5, 7) == 9


def test_small_messages_of_the_old_formats_do_not_hide_a_later_marker() -> None:
    """Producer 7's aborted transaction ends at its marker, and what comes after that was committed."""
    later = transactional_batch([Record(value=b"w")], 12, 7), marker_batch(13, 7, commit=True), batch(14)
    log = legacy_message(9), transactional_batch([Record(value=b"v")], 10, 7), marker_batch(11, 7, commit=False), *later
    mixed = b"".join((*log, legacy_message(16)))

    assert aborted_in_fetched(mixed, [(7, 10)], 100) == (AbortedTransaction(7, 10, 11),)
    assert list(control_batches(mixed)) == [(11, 7), (13, 7)]


@pytest.mark.parametrize(
    "records",
    [
        pack(">qiib", -1, 49, 0, 2) + bytes(60),
        pack(">qiib", 0, -5, 0, 2) + bytes(60),
        pack(">qiib", 0, 48, 0, 2) + bytes(60),
        pack(">qiib", 0, 21, 0, 1) + bytes(60),
        pack(">qiib", 0, 13, 0, 0) + bytes(60),
        pack(">qiib", 0, 49, 0, 3) + bytes(60),
        batch(3),
    ],
)
def test_bytes_that_are_no_batches_or_end_below_the_offset_asked_for_are_refused(records: bytes) -> None:
    with pytest.raises(CorruptDataError, match="t-0, offset 50"):
        after(records, 50)


@given(st.binary(max_size=300))
def test_any_bytes_give_an_offset_or_the_format_error(records: bytes) -> None:
    try:
        following = after(records)
    except CorruptDataError:
        return
    assert following is None or following > 0


def client_of(answers: Any, *, end: int = 100, **properties: str) -> ScriptedClient:
    def answer(_: int, message: Any) -> Any:
        return offsets(end) if isinstance(message, ListOffsetsRequest) else next(answers)

    return ScriptedClient(answering(answer), {name.replace("_", "."): value for name, value in properties.items()})


def read(client: ScriptedClient, end: int, start: int = 0, poll_timeout_ms: int = PATIENT_MS) -> list[bytes]:
    with client:
        answers = read_range(client, PARTITION, OffsetRange(start, end), COMMITTED, poll_timeout_ms=poll_timeout_ms)
        return [answer.records for answer in answers]


def asked_offsets(client: ScriptedClient) -> list[int]:
    return [message.topics[0].partitions[0].fetch_offset for _, message in client.asked(FetchRequest)]


def test_a_range_goes_on_after_the_last_whole_batch_and_stops_at_its_end() -> None:
    cut = batch(0, 2) + batch(2, 2)[:30]
    client = client_of(iter([fetched(cut), fetched(batch(2, 3)), fetched(b"not asked for")]))

    assert read(client, 4) == [cut, batch(2, 3)]
    assert asked_offsets(client) == [0, 2]


def test_the_next_fetch_is_on_its_way_while_an_answer_is_held() -> None:
    second_is_asked_for = threading.Event()

    def fetches() -> Iterator[Any]:
        yield fetched(batch(0))
        second_is_asked_for.set()
        yield fetched(batch(2))

    with client_of(fetches()) as client:
        answers = read_range(client, PARTITION, OffsetRange(0, 4), COMMITTED, poll_timeout_ms=PATIENT_MS)

        assert next(answers).records == batch(0)
        assert second_is_asked_for.wait(timeout=30)
        assert [answer.records for answer in answers] == [batch(2)]


def test_an_empty_range_asks_nothing() -> None:
    client = client_of(iter([]))

    assert read(client, 5, start=5) == []
    assert client.requests == []


def test_a_range_ends_early_at_the_end_of_the_log() -> None:
    client = client_of(iter([fetched(batch(0), end=2), fetched(end=2)]), end=2)

    assert read(client, 10) == [batch(0)]


def test_an_empty_answer_below_the_end_of_the_log_is_asked_for_again() -> None:
    client = client_of(iter([fetched(), fetched(), fetched(batch(0))]))

    assert read(client, 2) == [batch(0)]


def test_a_high_watermark_that_lags_is_not_taken_for_the_end_of_the_log() -> None:
    client = client_of(iter([fetched(end=0), fetched(batch(0))]), end=2)

    assert read(client, 2) == [batch(0)]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (fetched(), "the responses had no record"),
        (None, "broker 1: the connection was closed"),
        (fetched(error_code=UNKNOWN_SERVER_ERROR), "UNKNOWN_SERVER_ERROR"),
    ],
    ids=["nothing", "no connection", "error"],
)
def test_a_log_that_gives_nothing_ends_in_an_error_that_says_where_and_why(answer: Any, reason: str) -> None:
    client = client_of(itertools.repeat(answer), default_api_timeout_ms="600000")

    with pytest.raises(FetchTimeoutError, match=f"t-0: .*offset 0 .*50 ms .*{reason}"):
        read(client, 2, poll_timeout_ms=50)


@pytest.mark.parametrize("code", [UNKNOWN_SERVER_ERROR, CODE_OF_THE_FUTURE])
def test_a_broker_that_failed_without_saying_why_is_asked_again(code: int, caplog: pytest.LogCaptureFixture) -> None:
    client = client_of(iter([fetched(error_code=code), fetched(error_code=code), fetched(batch(0))]))

    assert read(client, 2) == [batch(0)]
    assert caplog.text.count("partition t-0, offset 0: broker 1 responded") == 2


def test_the_time_that_a_reader_is_busy_does_not_count() -> None:
    answers = iter([None, fetched(batch(0))])
    with client_of(answers) as client:
        position = _Position(client, PARTITION, 0, FetchTerms(COMMITTED, 1000, 0), PATIENT_MS)
        position.start_fetch(Deadline(0))
        assert position._fetch is not None
        assert isinstance(position._fetch.exception(), BrokerUnavailableError)

        found = position.poll()

    assert found is not None and found.records == batch(0)


def test_a_batch_that_is_cut_off_is_refused() -> None:
    with pytest.raises(CorruptDataError, match="no whole batch in 40 bytes"):
        read(client_of(iter([fetched(batch(0)[:40])])), 2)


def test_an_offset_outside_the_log_is_named_with_the_bounds_of_the_log() -> None:
    def answer(_: int, message: Any) -> Any:
        if isinstance(message, FetchRequest):
            return fetched(error_code=OFFSET_OUT_OF_RANGE)
        return offsets(4 if message.topics[0].partitions[0].timestamp == EARLIEST else 7)

    with pytest.raises(OffsetOutOfRangeError, match="t-0: offset 3 .* 4 .* 7"):
        read(ScriptedClient(answering(answer)), 5, start=3)


def test_records_come_from_the_replica_that_the_leader_names() -> None:
    def answer(node_id: int, message: Any) -> Any:
        return fetched(read_replica=2) if node_id == 1 else fetched(batch(message.topics[0].partitions[0].fetch_offset))

    client = ScriptedClient(answering(answer), {"client.rack": "r"})

    assert read(client, 4) == [batch(0), batch(2)]
    assert [node_id for node_id, _ in client.asked(FetchRequest)] == [1, 2, 2]
    assert client.asked(FetchRequest)[0][1].rack_id == "r"


@pytest.mark.parametrize("failure", [None, fetched(), fetched(error_code=OFFSET_OUT_OF_RANGE)])
def test_a_replica_that_fails_gives_way_to_the_leader(failure: Any) -> None:
    def answer(node_id: int, message: Any) -> Any:
        if node_id == 2:
            return failure
        return fetched(read_replica=2) if message.rack_id else fetched(batch(0))

    assert read(ScriptedClient(answering(answer), {"client.rack": "r"}), 2) == [batch(0)]


def test_an_id_that_is_not_the_topic_s_is_asked_for_before_it_is_believed() -> None:
    """The planner's metadata is newer than that of a worker which Spark uses again."""
    ids = itertools.chain([TOPIC_ID], itertools.repeat(NEXT_ID))

    def answer(_: int, message: Any) -> Any:
        return fetched(batch(0), topic_id=message.topics[0].topic_id)

    with ScriptedClient(answering(answer, lambda: metadata(topic_id=next(ids)))) as client:
        client.metadata(["t"])
        terms = FetchTerms(COMMITTED, max_bytes=1, max_wait_ms=0, topic_id=NEXT_ID)
        assert fetch_records(client, PARTITION, 0, terms).records
        assert len(client.asked(MetadataRequest)) == 2
        with pytest.raises(TopicRecreatedError, match="'t' .*AAAAAAAAAAAAAAAAAAAACA"):
            fetch_records(client, PARTITION, 0, replace(terms, topic_id=TOPIC_ID))


def test_a_topic_that_was_made_again_is_data_loss() -> None:
    ids = itertools.chain([TOPIC_ID], itertools.repeat(NEXT_ID))

    answer = answering(lambda *_: fetched(error_code=UNKNOWN_TOPIC_ID), lambda: metadata(topic_id=next(ids)))
    with ScriptedClient(answer) as client, pytest.raises(TopicRecreatedError, match="topic 't' "):
        fetch_records(client, PARTITION, 0, FetchTerms(COMMITTED, max_bytes=1, max_wait_ms=0, topic_id=TOPIC_ID))


def test_topics_without_an_id_are_fetched_by_name() -> None:
    nameless = UUID(int=0)
    answer = answering(lambda *_: fetched(batch(0), topic_id=nameless), lambda: metadata(topic_id=nameless))
    client = ScriptedClient(answer)
    assert read(client, 2) == [batch(0)]
    ((_, request),) = client.asked(FetchRequest)
    assert request._max_version == 12
