from __future__ import annotations

from collections.abc import Collection

import pytest

from tests.plan.in_memory_offsets import InMemoryOffsets, Log
from tiered_stream.errors import BrokerAuthorizationError, BrokerUnavailableError, UnknownTopicError
from tiered_stream.model import NO_TOPIC_ID, TopicPartition
from tiered_stream.options.parsing import Subscription, parse_options
from tiered_stream.plan.offset_lookup import OffsetLookup, assigned

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def reader() -> InMemoryOffsets:
    return InMemoryOffsets({"t": [Log(2, 5), Log()], "xtx": [Log()], "u": [Log()], "__consumer_offsets": [Log()]})


class Naps(list[float]):
    """Stands in for `time.sleep` and keeps the seconds."""

    __call__ = list.append


def lookup(offsets: InMemoryOffsets, naps: Naps | None = None, attempts: int = 3) -> OffsetLookup:
    return OffsetLookup(offsets, Subscription(topics=("t",)), attempts, 250, Naps() if naps is None else naps)


@pytest.mark.contract("1.2 subscribe", "2.96")
def test_named_topics_are_read_with_all_their_partitions() -> None:
    offsets = reader()
    assignment = assigned(Subscription(topics=("t", "u")), offsets)
    assert assignment.partitions == {T0, T1, TopicPartition("u", 0)}
    assert assignment.topic_ids == {"t": offsets.ids["t"], "u": offsets.ids["u"]}


@pytest.mark.contract("1.2 subscribePattern", "2.96")
def test_a_pattern_is_found_anywhere_in_a_name_but_never_in_an_internal_one() -> None:
    assert {each.topic for each in assigned(Subscription(pattern="t"), reader()).partitions} == {"t", "xtx"}
    assert {each.topic for each in assigned(Subscription(pattern="^t$"), reader()).partitions} == {"t"}
    assert assigned(Subscription(pattern="consumer_offsets"), reader()).partitions == frozenset()


def test_an_internal_topic_that_is_named_is_not_read_and_this_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    offsets = InMemoryOffsets({"t": [Log(), Log()], "__only_here": [Log()]})
    subscriptions = [
        Subscription(topics=("t", "__only_here")),
        Subscription(assigned=(T0, T1, TopicPartition("__only_here", 0))),
    ]
    for subscription in subscriptions:
        assignment = assigned(subscription, offsets)
        assert (assignment.partitions, assignment.topic_ids.keys()) == ({T0, T1}, {"t"})
    assert caplog.text.count("__only_here is an internal topic") == 1


def test_a_pattern_may_match_nothing() -> None:
    assert assigned(Subscription(pattern="nothing"), reader()).partitions == frozenset()
    assert OffsetLookup(reader(), Subscription(pattern="nothing"), 3, 0).latest()[1] == {}


@pytest.mark.contract("1.2 assign", "2.96")
def test_assigned_partitions_that_do_not_exist_are_left_out() -> None:
    assert assigned(Subscription(assigned=(T1, TopicPartition("t", 9))), reader()).partitions == {T1}


@pytest.mark.contract("1.2 subscribe")
def test_a_named_topic_that_was_never_found_is_not_looked_up_again(caplog: pytest.LogCaptureFixture) -> None:
    naps = Naps()
    with pytest.raises(UnknownTopicError, match="nowhere"):
        OffsetLookup(reader(), Subscription(topics=("nowhere",)), 3, 250, naps).assignment()
    assert (naps, caplog.messages) == ([], [])


@pytest.mark.contract("1.2 fetchOffset.numRetries")
def test_a_topic_that_was_never_found_is_awaited_where_the_user_has_set_the_attempts() -> None:
    naps, awaits = (
        Naps(),
        parse_options(
            {"kafka.bootstrap.servers": "a:1", "subscribe": "nowhere", "fetchOffset.numRetries": "4"}, streaming=False
        ),
    )
    with pytest.raises(UnknownTopicError, match="nowhere"):
        OffsetLookup.of(awaits, reader(), naps).assignment()
    assert naps == [1.0] * 3


@pytest.mark.contract("1.2 subscribe", "1.2 fetchOffset.numRetries")
def test_a_topic_that_was_found_before_fails_after_the_retries() -> None:
    offsets, naps = reader(), Naps()
    looking = lookup(offsets, naps)
    looking.assignment()
    offsets.delete("t")
    with pytest.raises(UnknownTopicError, match="topic t "):
        looking.assignment()
    assert naps == [0.25, 0.25]


@pytest.mark.contract("1.2 fetchOffset.retryIntervalMs", "1.5 lookups that fail", "2.94")
def test_a_failure_that_passes_is_retried() -> None:
    offsets, naps = reader(), Naps()
    offsets.failures = [BrokerUnavailableError("no answer"), BrokerUnavailableError("no answer")]
    assert lookup(offsets, naps).latest()[1] == {T0: 5, T1: 0}
    assert naps == [0.25, 0.25]


@pytest.mark.contract("1.2 fetchOffset.numRetries", "1.5 lookups that fail", "2.94")
def test_a_failure_that_stays_surfaces_after_all_attempts() -> None:
    offsets = reader()
    offsets.failures = [BrokerUnavailableError(f"no answer {number}") for number in range(5)]
    with pytest.raises(BrokerUnavailableError, match="no answer 2"):
        lookup(offsets).latest()


def test_a_failure_that_the_user_must_mend_is_not_retried() -> None:
    offsets, naps = reader(), Naps()
    offsets.failures = [BrokerAuthorizationError("no")]
    with pytest.raises(BrokerAuthorizationError):
        lookup(offsets, naps).latest()
    assert naps == []


@pytest.mark.contract("1.5 end below what was read")
def test_an_end_below_what_was_read_is_asked_for_again() -> None:
    offsets = reader()

    def recover(seconds: float) -> None:
        offsets.log(T0).latest = 9

    asking = OffsetLookup(offsets, Subscription(topics=("t",)), 3, 250, recover)
    assert asking.latest({T0: 8})[1] == {T0: 9, T1: 0}


@pytest.mark.contract("1.5 end below what was read")
def test_an_end_that_stays_below_what_was_read_is_believed() -> None:
    naps = Naps()
    assert lookup(reader(), naps).latest({T0: 8})[1] == {T0: 5, T1: 0}
    assert naps == [0.25, 0.25]


def test_log_starts_are_told_of_partitions_that_exist() -> None:
    assert lookup(reader()).earliest([T0, TopicPartition("t", 9), TopicPartition("gone", 0)]) == {T0: 2}


def test_bounds_are_asked_for_only_where_something_is_to_be_read() -> None:
    asked: list[set[TopicPartition]] = []

    class Asked(InMemoryOffsets):
        def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
            asked.append(set(partitions))
            return super().latest(partitions)

    looking = lookup(Asked({"t": [Log(2, 5), Log(1, 7)]}))
    bounds = looking.bounds({T0: 3, T1: 7}, {T0: 5, T1: 7})
    assert asked == [{T0}] and bounds.earliest == {T0: 2} and bounds.latest == {T0: 5, T1: 7}
    assert looking.bounds({T0: 3, T1: 7}, {T0: 5, T1: 7}, idle=True).earliest == {T0: 2, T1: 1}
    assert looking.bounds({}, {T0: 5, T1: 7}).latest == {T0: 5, T1: 7} and asked[1:] == [{T0, T1}] * 2


def test_a_partition_that_is_gone_has_no_bounds() -> None:
    gone = TopicPartition("gone", 0)
    assert lookup(reader()).bounds({gone: 3, T0: 2}, {gone: 3, T0: 5}).latest == {T0: 5, T1: 0}


def test_a_broker_that_knows_no_topic_ids_gives_none() -> None:
    offsets = reader()
    offsets.ids["t"] = NO_TOPIC_ID
    assert assigned(Subscription(topics=("t", "u")), offsets).topic_ids == {"u": offsets.ids["u"]}
