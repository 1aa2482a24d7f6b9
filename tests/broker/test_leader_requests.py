from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from tests.broker.responses import metadata_response
from tests.broker.scripted import (
    BROKERS,
    ListOffsetsRequest,
    MetadataRequest,
    ScriptedClient,
    answering,
    led,
    metadata,
    offsets,
)
from tiered_stream.broker import client as client_module
from tiered_stream.broker.connections import Deadline
from tiered_stream.broker.list_offsets import BrokerOffsetReader
from tiered_stream.errors import (
    BrokerAuthorizationError,
    BrokerError,
    BrokerUnavailableError,
    CorruptDataError,
    UnknownTopicError,
)
from tiered_stream.model import TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.offset_json import EARLIEST, LATEST

PARTITION, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
NOT_LEADER, UNKNOWN_TOPIC, TOPIC_AUTHORIZATION_FAILED, INVALID_REQUEST = 6, 3, 29, 42


def latest(client: ScriptedClient) -> int:
    with client:
        return BrokerOffsetReader(client, IsolationLevel.READ_COMMITTED).latest([PARTITION])[PARTITION]


def test_a_topic_that_was_never_heard_of_is_asked_for_however_young_the_machine_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "time", SimpleNamespace(monotonic=lambda: 10.0))
    client = ScriptedClient(answering(lambda *_: offsets(42)))

    assert latest(client) == 42


def test_a_partition_that_was_not_heard_of_is_asked_for_before_it_is_believed_not_to_be_there() -> None:
    counts = iter([1, 2, 2])
    client = ScriptedClient(lambda _, message: metadata(partitions=next(counts)))
    added, missing = TopicPartition("t", 1), TopicPartition("t", 2)

    def leaders(*partitions: TopicPartition) -> Any:
        return client.run(lambda: client.leaders(partitions, client.deadline()))

    with client:
        assert list(leaders(PARTITION)) == [PARTITION]
        assert list(leaders(PARTITION, added)) == [PARTITION, added]
        assert list(leaders(PARTITION, added)) == [PARTITION, added]
        assert len(client.asked(MetadataRequest)) == 2
        with pytest.raises(UnknownTopicError, match="t-2 .* 2 partitions"):
            leaders(missing)


def test_a_question_follows_the_leader_to_another_broker() -> None:
    leaders = itertools.chain([1], itertools.repeat(2))

    def answer(node_id: int, _: Any) -> Any:
        return offsets(42) if node_id == 2 else offsets(-1, error_code=NOT_LEADER)

    client = ScriptedClient(answering(answer, lambda: metadata(next(leaders))))
    assert latest(client) == 42
    assert [node_id for node_id, _ in client.asked(ListOffsetsRequest)] == [1, 2]


@pytest.mark.parametrize(("answered", "offset"), [((120, 80), 80), ((-1, 80), 80), ((80, 80), 80), ((-1, -1), None)])
def test_a_timestamp_whose_segment_moves_to_remote_storage_meanwhile_is_found_at_the_second_question(
    answered: tuple[int, int], offset: int | None
) -> None:
    answers = iter(answered)
    client = ScriptedClient(answering(lambda *_: offsets(next(answers))))

    with client:
        reader = BrokerOffsetReader(client, IsolationLevel.READ_COMMITTED)
        assert reader.for_timestamps({PARTITION: 1_000}) == {PARTITION: offset}


def test_a_broken_connection_is_tried_again_with_new_metadata() -> None:
    answers = iter([None, None, offsets(42)])
    client = ScriptedClient(answering(lambda *_: next(answers)))

    assert latest(client) == 42
    assert len(client.asked(MetadataRequest)) == 3


def test_a_partition_that_stays_without_a_leader_is_named_when_time_is_up() -> None:
    client = ScriptedClient(lambda *_: metadata(leader=-1), {"default.api.timeout.ms": "50"})

    with pytest.raises(BrokerUnavailableError, match=r"t-0: .* 50 ms.*no leader"):
        latest(client)


def test_the_last_reason_is_told_when_time_is_up() -> None:
    client = ScriptedClient(answering(lambda *_: offsets(-1, error_code=NOT_LEADER)), {"default.api.timeout.ms": "50"})

    with pytest.raises(BrokerUnavailableError, match="last: NOT_LEADER_OR_FOLLOWER"):
        latest(client)


def test_the_reason_before_the_last_one_is_told_too() -> None:
    answers = itertools.chain([offsets(-1, error_code=NOT_LEADER)], itertools.repeat(None))
    client = ScriptedClient(answering(lambda *_: next(answers)), {"default.api.timeout.ms": "300"})

    with pytest.raises(BrokerUnavailableError, match="last: .*; before that: NOT_LEADER_OR_FOLLOWER$"):
        latest(client)


def each_latest(client: ScriptedClient, patience_ms: int | None) -> Any:
    return BrokerOffsetReader(client, IsolationLevel.READ_COMMITTED).special_offsets(
        LATEST, [PARTITION, OTHER], patience_ms
    )


def test_what_one_partition_lacks_does_not_keep_another_from_its_answer() -> None:
    def answer(node_id: int, _: Any) -> Any:
        return offsets(42) if node_id == 1 else offsets(-1, partition=1, error_code=TOPIC_AUTHORIZATION_FAILED)

    with ScriptedClient(answering(answer, lambda: led(1, 2))) as client:
        answers = each_latest(client, None)
        assert answers.found == {PARTITION: 42}
        assert isinstance(answers.faults[OTHER], BrokerAuthorizationError)


def test_where_a_local_log_begins_is_not_known_of_a_partition_without_a_leader() -> None:
    brokers = answering(lambda *_: offsets(42), lambda: led(1, -1))
    with ScriptedClient(brokers, {"default.api.timeout.ms": "3600000"}) as client:
        reader = BrokerOffsetReader(client, IsolationLevel.READ_COMMITTED)
        assert reader.earliest_local([PARTITION, OTHER], 1_800_000) == {PARTITION: 42, OTHER: None}


def test_who_has_little_patience_does_not_wait_for_a_leader_and_others_do() -> None:
    """The time allowed is an hour."""
    long = {"default.api.timeout.ms": "3600000"}
    elections = itertools.chain([-1, -1, -1], itertools.repeat(2))

    brokers = answering(lambda node, _: offsets(42, partition=node - 1), lambda: led(1, next(elections)))
    with ScriptedClient(brokers, long) as client:
        answers = each_latest(client, 1_800_000)
        assert answers.found == {PARTITION: 42}
        assert "no leader" in str(answers.faults[OTHER]) and answers.faults[OTHER].retriable
        assert each_latest(client, None).found == {PARTITION: 42, OTHER: 42}


def test_a_broker_that_does_not_answer_costs_its_partitions_when_patience_ends() -> None:
    with ScriptedClient(answering(lambda node, _: offsets(42) if node == 1 else None, lambda: led(1, 2))) as client:
        answers = each_latest(client, 300)
        assert answers.found == {PARTITION: 42} and "closed" in str(answers.faults[OTHER])


def test_a_request_that_ends_with_an_error_is_not_reported_as_repeated_later() -> None:
    codes = iter([NOT_LEADER, INVALID_REQUEST])
    client = ScriptedClient(answering(lambda *_: offsets(-1, error_code=next(codes))))

    with pytest.raises(BrokerError):
        latest(client)
    assert client.troubles == {}


def test_a_request_that_ends_does_not_hide_that_another_is_being_repeated() -> None:
    described, repeated, has_leader = itertools.count(), threading.Event(), threading.Event()

    def found() -> Any:
        if next(described):
            repeated.set()
        return led(1, 2 if has_leader.is_set() else -1)

    brokers = answering(lambda node, _: offsets(42, partition=node - 1), found)
    patient = {"default.api.timeout.ms": "3600000", "retry.backoff.max.ms": "1"}
    with ThreadPoolExecutor(1) as threads, ScriptedClient(brokers, patient) as client:
        reader = BrokerOffsetReader(client, IsolationLevel.READ_COMMITTED)
        other = threads.submit(reader.latest, [OTHER])
        repeated.wait()
        assert reader.latest([PARTITION]) == {PARTITION: 42}
        (trouble,) = client.troubles.values()
        assert str(OTHER) in trouble
        has_leader.set()
        assert other.result() == {OTHER: 42}
        assert client.troubles == {}


def test_null_arrays_are_no_answer() -> None:
    broken, nothing = offsets(1), metadata()
    broken.topics = nothing.topics = None
    client = ScriptedClient(answering(lambda *_: broken), {"default.api.timeout.ms": "300"})
    with pytest.raises(BrokerUnavailableError, match="t-0: .*missing"):
        latest(client)
    with ScriptedClient(lambda *_: nothing) as client:
        assert client.metadata() == {}


def test_a_topic_that_appears_late_is_waited_for() -> None:
    codes = itertools.chain([UNKNOWN_TOPIC, UNKNOWN_TOPIC], itertools.repeat(0))
    client = ScriptedClient(answering(lambda *_: offsets(1), lambda: metadata(error_code=next(codes))))

    assert latest(client) == 1


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (
            TOPIC_AUTHORIZATION_FAILED,
            BrokerAuthorizationError,
            "t-0: the user is not authorized: grant DESCRIBE on the topic",
        ),
        (INVALID_REQUEST, BrokerError, "partition t-0: Kafka responded with INVALID_REQUEST"),
    ],
)
def test_an_error_that_will_not_pass_is_raised_at_once(code: int, kind: type[Exception], text: str) -> None:
    client = ScriptedClient(answering(lambda *_: offsets(-1, error_code=code)))

    with pytest.raises(kind, match=text):
        latest(client)
    assert len(client.asked(ListOffsetsRequest)) == 1


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (TOPIC_AUTHORIZATION_FAILED, BrokerAuthorizationError, "topic 't': the user is not authorized: grant DESCRIBE"),
        (UNKNOWN_TOPIC, UnknownTopicError, "no such topic: 't'.*never created"),
        (17, UnknownTopicError, "'t': not a valid topic name"),
    ],
)
def test_metadata_errors_name_the_topic(code: int, kind: type[Exception], text: str) -> None:
    client = ScriptedClient(lambda *_: metadata(error_code=code), {"default.api.timeout.ms": "100"})

    with client, pytest.raises(kind, match=text):
        client.metadata(["t"])


@pytest.mark.parametrize(
    ("response", "kind", "text"),
    [
        (metadata_response({}, BROKERS), UnknownTopicError, "no such topic: 't'"),
        (led(), BrokerUnavailableError, "'t': LEADER_NOT_AVAILABLE"),
    ],
    ids=["no such topic in the response", "no partition of the topic"],
)
def test_metadata_without_what_was_asked_for_is_an_error(response: Any, kind: type[Exception], text: str) -> None:
    client = ScriptedClient(lambda *_: response, {"default.api.timeout.ms": "100"})
    with pytest.raises(kind, match=text):
        latest(client)


@pytest.mark.parametrize(("asked", "answered"), [(LATEST, -1), (EARLIEST, -1), (1_000, -2)])
def test_an_offset_that_no_log_can_have_is_corrupt(asked: int, answered: int) -> None:
    with ScriptedClient(answering(lambda *_: offsets(answered))) as client:
        reader = BrokerOffsetReader(client, IsolationLevel.READ_COMMITTED)
        with pytest.raises(CorruptDataError, match=f"t-0: .* the offset {answered}"):
            reader.for_timestamps({PARTITION: asked})


def test_an_offset_that_no_log_can_have_costs_its_partition_only() -> None:
    answers = {1: offsets(7), 2: offsets(-1, partition=1)}
    with ScriptedClient(answering(lambda node_id, _: answers[node_id], lambda: led(1, 2))) as client:
        reader = BrokerOffsetReader(client, IsolationLevel.READ_COMMITTED)
        answer = reader.special_offsets(LATEST, [PARTITION, TopicPartition("t", 1)], None)
    assert answer.found == {PARTITION: 7}
    assert type(answer.faults[TopicPartition("t", 1)]) is CorruptDataError


def test_brokers_are_asked_once_even_when_the_time_is_up() -> None:
    with ScriptedClient(lambda *_: metadata()) as client:
        found = client.run(lambda: client.fetch_metadata(["t"], Deadline(0)))

    assert set(found) == {"t"}


def test_an_answer_for_a_partition_that_was_not_asked_for_is_refused() -> None:
    client = ScriptedClient(answering(lambda *_: offsets(1, partition=3)))

    with pytest.raises(CorruptDataError, match="broker 1 .* t-3"):
        latest(client)


def test_metadata_never_lets_a_broker_create_a_topic() -> None:
    with ScriptedClient(lambda *_: metadata()) as client:
        client.metadata(["t"])

    ((_, request),) = client.asked(MetadataRequest)
    assert request.allow_auto_topic_creation is False


def test_a_closed_client_says_so() -> None:
    client = ScriptedClient(lambda *_: metadata())
    client.close()
    client.close()

    with pytest.raises(BrokerUnavailableError, match="closed"):
        client.metadata()
