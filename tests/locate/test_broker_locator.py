"""The locator of KIP-1248 over answers that a test makes up; over real ones it is tested in `tests/gateway`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from tests.broker.scripted import TOPIC_ID, MetadataRequest, ScriptedClient, answering, fetched, metadata
from tests.broker.wire.segment_entries import encode_entries
from tests.broker.wire.test_location_messages import segment
from tests.locate.segments import segment_ends
from tiered_stream.broker.wire.location_messages import (
    FetchTopic,
    LocatedPartition,
    LocationFetchRequest,
    LocationFetchResponse,
)
from tiered_stream.errors import BrokerAuthorizationError, BrokerUnavailableError, CorruptDataError
from tiered_stream.locate.broker_locator import BrokerLocator
from tiered_stream.locate.locator import SegmentShare
from tiered_stream.model import (
    AbortedTransaction,
    ByteRange,
    LeaderEpoch,
    OffsetRange,
    SegmentLocation,
    TopicPartition,
)
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.records.flexible_versions import Reader

UNKNOWN_TOPIC_ID = 100
PARTITION = TopicPartition("t", 0)
ALL = {PARTITION: OffsetRange(0, 1000)}


def located(*segments: Any, end: int = 1000, encoded: bytes | None = None, **others: Any) -> Any:
    """A Fetch answer that names these segments, or has these bytes for them, and is complete up to `end`."""
    answer = read(fetched(**others))
    (topic,) = answer.responses
    (partition,) = topic.partitions
    if encoded is None:
        encoded = encode_entries(segments) if segments else b""
    named = replace(partition, remote_log_segments=encoded, located_end_offset=end)
    return replace(answer, responses=[replace(topic, partitions=[named])])


def read(answer: Any) -> LocationFetchResponse:
    """An answer of kafka-python's as the locator gets it."""
    return LocationFetchResponse.decode_body(Reader(bytes(answer.encode(version=17))))


def whole(number: int, **others: Any) -> Any:
    """The segment with the offsets from 100 times `number` on."""
    start = 100 * number
    fields = {
        "base_offset": start, "last_offset": start + 99, "start_offset": start, "end_offset": start + 100,
        "start_position": 0, "end_position": 1_000, "leader_epochs": [(0, 0)], "aborted_transactions": [],
        "following_offset_min": -1, "following_offset_max": -1,
    }  # fmt: skip
    return segment(number, **{**fields, **others})


def locator(
    answer: Callable[[Any], Any], *, signed_only: bool = False, part_bytes: int = 500, falls_back: bool = False
) -> tuple[BrokerLocator, ScriptedClient]:
    """One whose broker gives `answer` to each Fetch."""
    client = ScriptedClient(answering(lambda _, message: answer(message)), {"request.timeout.ms": "100"})
    made = BrokerLocator(
        client, IsolationLevel.READ_COMMITTED, part_bytes=part_bytes, signed_only=signed_only, falls_back=falls_back
    )
    return made, client


def wanted(message: Any) -> tuple[int, int]:
    (partition,) = message.topics[0].partitions
    return partition.fetch_offset, partition.remote_log_segment_end_offset


def test_an_answer_s_segments_are_locations() -> None:
    offsets = {"start_offset": 120, "end_offset": 180, "following_offset_min": 180, "following_offset_max": 190}
    positions = {"start_position": 200, "end_position": 700}
    history = {"leader_epochs": [(0, 0), (2, 150)], "aborted_transactions": [(7, 130, 140)]}
    entry = whole(1, **offsets, **positions, **history)
    made, client = locator(lambda message: located(whole(0), entry))
    first, second = made.locate(ALL)[PARTITION]
    assert first.segment.topic_partition == PARTITION and first.segment.topic_id == TOPIC_ID
    assert (first.offsets, first.bytes, first.following) == (OffsetRange(0, 100), ByteRange(0, 1000), None)
    assert (second.offsets, second.bytes, second.following) == (OffsetRange(120, 180), ByteRange(200, 700), (180, 190))
    assert second.segment.leader_epochs == (LeaderEpoch(0, 0), LeaderEpoch(2, 150))
    assert second.segment.custom_metadata == b"custom" and second.segment.size == 1000
    assert second.aborted_transactions == (AbortedTransaction(7, 130, 140),)
    assert second.signed_url == "https://storage/log?signature" and "signature" not in repr(second)
    ((_, message),) = client.asked(LocationFetchRequest)
    assert wanted(message) == (0, 1000) and message.isolation_level == 1
    assert message.remote_log_segment_location_requested and message.local_segments_wanted
    assert message.remote_log_segment_part_bytes == 500 and message.supported_storage_format_versions


def test_an_answer_that_ends_early_is_continued_where_it_ends() -> None:
    answers = {0: located(whole(0), end=100), 100: located(end=300), 300: located(whole(3), whole(5), end=1000)}
    made, client = locator(lambda message: answers[wanted(message)[0]])
    assert [each.offsets.start for each in made.locate(ALL)[PARTITION]] == [0, 300, 500]
    asked = [wanted(message) for _, message in client.asked(LocationFetchRequest)]
    assert asked == [(0, 1000), (100, 1000), (300, 1000)]


def test_an_answer_that_never_gets_further_is_given_up() -> None:
    made, _ = locator(lambda message: located(end=0))
    with pytest.raises(CorruptDataError, match="end of t-0"):
        made.locate(ALL)


def test_a_broker_that_passes_over_the_request_names_nothing() -> None:
    made, _ = locator(lambda message: read(fetched(b"records")))
    assert made.locate(ALL) == {PARTITION: ()}


@pytest.mark.parametrize(
    "entries",
    [
        [whole(0), whole(0)],
        [whole(1), whole(0)],
        [whole(10)],
        [whole(0, end_offset=101)],
        [whole(0, start_offset=50, end_offset=50)],
        [whole(0, end_position=1001)],
        [whole(0, start_position=9, end_position=8)],
        [whole(0, remote_log_segment_id=None)],
        [whole(0, start_offset=-5)],
        [whole(0, base_offset=0, last_offset=(1 << 63) - 1)],  # the offset after the last one would overflow
    ],
)
def test_an_answer_that_contradicts_itself_is_corrupt(entries: list[Any]) -> None:
    made, _ = locator(lambda message: located(*entries))
    with pytest.raises(CorruptDataError, match="t-0"):
        made.locate(ALL)


@pytest.mark.parametrize(
    ("encoded", "said"),
    [(encode_entries([whole(0)])[:-3], "segment"), (encode_entries([]), "empty list")],
    ids=["cut", "empty"],
)
def test_an_answer_without_a_whole_list_of_segments_is_corrupt(encoded: bytes, said: str) -> None:
    with pytest.raises(CorruptDataError, match=said):
        locator(lambda message: located(encoded=encoded))[0].locate(ALL)


@pytest.mark.parametrize("falls_back", [False, True])
def test_who_may_not_read_is_told_by_the_broker_itself(falls_back: bool) -> None:
    made, _ = locator(lambda message: located(error_code=29), falls_back=falls_back)
    with pytest.raises(BrokerAuthorizationError, match="grant READ on the topic"):
        made.locate(ALL)


def test_a_topic_that_was_made_again_is_another_topic() -> None:
    topic_id = TOPIC_ID

    def answer(_: int, message: Any) -> Any:
        if isinstance(message, MetadataRequest):
            return metadata(topic_id=topic_id)
        asked = message.topics[0].topic_id
        return located(
            *[whole(0)] * (asked == topic_id), topic_id=asked, error_code=UNKNOWN_TOPIC_ID * (asked != topic_id)
        )

    made = BrokerLocator(ScriptedClient(answer), IsolationLevel.READ_COMMITTED, part_bytes=500)
    assert made.locate(ALL)[PARTITION][0].segment.topic_id == TOPIC_ID
    topic_id = UUID(int=8)
    assert made.locate(ALL)[PARTITION][0].segment.topic_id == UUID(int=8)


def test_without_a_fetcher_only_signed_locations_count_and_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    entries = [whole(0), whole(1)]
    made, _ = locator(lambda message: located(*entries), signed_only=True)
    assert len(made.locate(ALL)[PARTITION]) == 2 and caplog.records == []
    entries[1] = whole(1, signed_remote_log_segment_location=None)
    for _ in range(2):
        assert [each.offsets.start for each in made.locate(ALL)[PARTITION]] == [0]
    assert caplog.text.count("their locations are not signed") == 1


def test_segment_ends_are_those_inside_or_at_the_range_s_end() -> None:
    entries = [whole(0), whole(1), whole(2, end_offset=250)]
    made, client = locator(lambda message: located(*entries, end=250))
    assert segment_ends(made, {PARTITION: OffsetRange(0, 250)}) == {PARTITION: (100, 200)}
    found = made.segments({PARTITION: OffsetRange(0, 250)})[PARTITION]
    assert [(each.offsets.end, each.segment.end_offset) for each in found] == [(100, 99), (200, 199), (250, 299)]
    (_, (_, message)) = client.asked(LocationFetchRequest)
    assert message.offsets_only and not message.remote_log_segment_part_bytes
    made, _ = locator(lambda message: located(whole(0), whole(1), end=200))
    assert segment_ends(made, {PARTITION: OffsetRange(0, 200)}) == {PARTITION: (100, 200)}


def test_a_location_is_cut_by_asking_for_its_parts() -> None:
    parts = [whole(0, end_offset=40, end_position=400), whole(0, start_offset=40, start_position=400)]

    def answer(message: Any) -> Any:
        return located(*parts, end=100) if message.remote_log_segment_part_bytes == 400 else located(whole(0), end=100)

    made, _ = locator(answer)
    (location,) = made.locate({PARTITION: OffsetRange(0, 100)})[PARTITION]
    assert [each.bytes for each in made.cut_all([(location, 400)])[0]] == [ByteRange(0, 400), ByteRange(400, 1000)]
    assert made.cut_all([(location, 2000)])[0] == [location]


class Cluster:
    """Of each partition one segment: a thousand offsets of 100 bytes each, in batches of ten; it says how it is cut."""

    def __init__(self, partitions: int) -> None:
        self.client = ScriptedClient(self.answer)
        self.partitions = [TopicPartition("t", number) for number in range(partitions)]
        self.locator = BrokerLocator(self.client, IsolationLevel.READ_COMMITTED, part_bytes=1 << 20)

    def answer(self, node_id: int, message: Any) -> Any:
        if isinstance(message, MetadataRequest):
            return metadata(partitions=len(self.partitions))
        (topic,) = message.topics
        cut = partial(self._partition, part_bytes=message.remote_log_segment_part_bytes or 1 << 20)
        return LocationFetchResponse(0, 0, 0, [FetchTopic(topic.topic_id, [cut(each) for each in topic.partitions])])

    def _partition(self, wanted: Any, part_bytes: int) -> LocatedPartition:
        start, end = wanted.fetch_offset, min(wanted.remote_log_segment_end_offset, 1000)
        step = max(10, part_bytes // 1000 * 10)
        edges = [start, *range(start - start % 10 + step, end, step), end]
        entries = [
            whole(
                0, remote_log_segment_id=UUID(int=wanted.partition + 1), last_offset=999, size_in_bytes=100_000,
                start_offset=first, end_offset=last, start_position=first // 10 * 1000,
                end_position=-(-last // 10) * 1000,
            )
            for first, last in pairwise(edges)
        ]  # fmt: skip
        return LocatedPartition(
            wanted.partition, 0, 1000, 1000, 0, remote_log_segments=encode_entries(entries), located_end_offset=end
        )

    def asked(self) -> int:
        """How many questions since this was last asked."""
        count = len(self.client.asked(LocationFetchRequest))
        self.client.requests.clear()
        return count


def test_the_ends_of_many_shares_take_a_question_for_each_order_of_magnitude() -> None:
    cluster = Cluster(400)
    located = cluster.locator.locate({each: OffsetRange(0, 1000) for each in cluster.partitions})
    cluster.asked()
    shares = {
        each: SegmentShare(found[0].segment, OffsetRange(100, 1000), 20_000 + 10 * each.partition)
        for each, found in located.items()
    }
    shares[cluster.partitions[0]] = replace(shares[cluster.partitions[0]], bytes=5000)
    ends = cluster.locator.ends_inside(shares)
    assert cluster.asked() == 2
    assert ends.pop(cluster.partitions[0]) == 150
    assert ends.keys() == set(cluster.partitions[1:]) and all(250 < end <= 300 for end in ends.values())


def test_a_share_smaller_than_a_batch_ends_behind_it() -> None:
    cluster = Cluster(1)
    (partition,) = cluster.partitions
    (location,) = cluster.locator.locate({partition: OffsetRange(0, 1000)})[partition]
    share = SegmentShare(location.segment, OffsetRange(0, 1000), 1)
    assert cluster.locator.ends_inside({partition: share}) == {partition: 10}


def test_the_parts_of_many_locations_take_one_question() -> None:
    cluster = Cluster(400)
    located = cluster.locator.locate({each: OffsetRange(5, 1000) for each in cluster.partitions})
    cluster.asked()
    cuts = [(found[0], 20_000 + each.partition) for each, found in located.items()]
    parts = cluster.locator.cut_all(cuts)
    assert cluster.asked() == 1
    for (location, _), of in zip(cuts, parts, strict=True):
        assert [each.segment for each in of] == [location.segment] * 5
        assert [each.offsets.start for each in of] == [5, 200, 400, 600, 800]


def test_the_parts_of_many_locations_are_found_without_a_look_at_each_part_for_each_location(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = 0

    class Counted(SegmentLocation):
        def __getattribute__(self, name: str) -> Any:
            nonlocal looks
            looks += name == "offsets"
            return super().__getattribute__(name)

    made, _ = locator(lambda message: located(whole(0), end=100))
    (whole_segment,) = made.locate({PARTITION: OffsetRange(0, 100)})[PARTITION]
    described = whole_segment.segment
    locations = [SegmentLocation(described, OffsetRange(at, at + 2), ByteRange(at, at + 2)) for at in range(0, 600, 2)]
    parts = tuple(Counted(described, OffsetRange(at, at + 1), ByteRange(at, at + 1)) for at in range(600))
    monkeypatch.setattr(made, "_request", lambda ranges, terms: {PARTITION: parts})
    cut = made.cut_all([(location, 1) for location in locations])
    assert [part for of_location in cut for part in of_location] == [*parts]
    assert looks <= 20 * len(parts)


def test_the_locations_of_one_partition_are_cut_in_one_question_where_they_are_neighbours() -> None:
    cluster = Cluster(1)
    (partition,) = cluster.partitions
    locations = [
        cluster.locator.locate({partition: OffsetRange(start, end)})[partition][0]
        for start, end in ((0, 200), (200, 400), (700, 1000))
    ]
    cluster.asked()
    parts = cluster.locator.cut_all([(each, 10_000) for each in locations])
    assert cluster.asked() == 2
    assert [[each.offsets.start for each in of] for of in parts] == [[0, 100], [200, 300], [700, 800, 900]]


def test_pieces_at_any_offsets_take_one_question_and_few_bytes_more() -> None:
    cluster = Cluster(40)
    located = cluster.locator.locate({each: OffsetRange(0, 1000) for each in cluster.partitions})
    cluster.asked()
    starts = range(99, 1000, 99)
    pieces = cluster.locator.cut_at([(found[0], starts) for found in located.values()])
    assert cluster.asked() == 1
    for found, of in zip(located.values(), pieces, strict=True):
        assert [each.offsets for each in of] == [OffsetRange(*each) for each in pairwise([0, *starts, 1000])]
        for each in of:
            assert each.segment == found[0].segment
            assert each.bytes.start <= 100 * each.offsets.start and 100 * each.offsets.end <= each.bytes.end
            assert len(each.bytes) <= 100 * len(each.offsets) + 2 * 3000


def test_a_location_is_signed_anew_or_gone() -> None:
    urls = iter(["first", "second"])
    made, _ = locator(lambda message: located(whole(0, signed_remote_log_segment_location=next(urls))))
    (location,) = made.locate(ALL)[PARTITION]
    assert made.signed_url(location) == "second"
    made, _ = locator(lambda message: located())
    assert made.signed_url(location) is None


def test_a_leader_that_does_not_answer_leaves_its_partition_to_the_brokers_where_that_may_be() -> None:
    made, _ = locator(lambda _: None, falls_back=True)
    assert made.locate(ALL) == {PARTITION: ()}
    assert segment_ends(made, ALL) == {PARTITION: ()}
    made, _ = locator(lambda _: None)
    with pytest.raises(BrokerUnavailableError):
        made.locate(ALL)


FIRST_PART = whole(0, end_offset=40, end_position=400)


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [whole(0, start_offset=40, start_position=400)],
        [FIRST_PART],
        [FIRST_PART, whole(7, base_offset=0, last_offset=99, start_offset=40, end_offset=100)],
        [whole(7, base_offset=0, last_offset=99, start_offset=0, end_offset=100)],
    ],
    ids=["none any more", "not the first offset", "not the last offset", "the rest elsewhere", "all elsewhere"],
)
def test_parts_that_are_not_exactly_the_location_leave_it_whole(parts: list[Any]) -> None:
    def answer(message: Any) -> Any:
        return located(*(parts if message.remote_log_segment_part_bytes == 400 else [whole(0)]), end=100)

    made, _ = locator(answer)
    (location,) = made.locate({PARTITION: OffsetRange(0, 100)})[PARTITION]
    assert made.cut_all([(location, 400)])[0] == [location]


def test_a_segment_that_ends_for_the_log_before_its_own_end_has_that_end() -> None:
    made, _ = locator(lambda _: located(whole(0, end_offset=90), whole(1, base_offset=80, start_offset=90)))
    assert segment_ends(made, ALL) == {PARTITION: (90, 200)}


def test_a_url_of_another_segment_at_the_same_offsets_is_not_the_location_s() -> None:
    entries = iter([whole(0), whole(7, base_offset=0, last_offset=99, start_offset=0, end_offset=100)])
    made, _ = locator(lambda _: located(next(entries), end=100))
    (location,) = made.locate({PARTITION: OffsetRange(0, 100)})[PARTITION]
    assert made.signed_url(location) is None


@pytest.mark.parametrize(
    ("entries", "end", "said"),
    [([], 400, "located up to 400, though asked from 500"), ([whole(4)], 1000, "names offsets outside of")],
    ids=["ends before the range", "begins before the range"],
)
def test_an_answer_about_offsets_before_the_range_is_corrupt(entries: list[Any], end: int, said: str) -> None:
    made, _ = locator(lambda _: located(*entries, end=end))
    with pytest.raises(CorruptDataError, match=said):
        made.locate({PARTITION: OffsetRange(500, 1000)})


def test_an_answer_that_names_offsets_beyond_its_own_end_is_corrupt_because_they_would_be_named_twice() -> None:
    answers = {0: located(whole(0), whole(1), end=150), 150: located(whole(1, start_offset=150), end=1000)}
    made, _ = locator(lambda message: answers[wanted(message)[0]])
    with pytest.raises(CorruptDataError, match=r"names offsets outside of OffsetRange\(start=0, end=150\)"):
        made.locate(ALL)


def test_an_empty_range_is_asked_of_nobody() -> None:
    made, client = locator(lambda _: located(whole(0)))
    assert made.locate({PARTITION: OffsetRange(5, 5)}) == {PARTITION: ()}
    assert client.asked(LocationFetchRequest) == []


def test_the_offset_that_follows_a_location_may_be_as_low_as_0() -> None:
    made, _ = locator(lambda _: located(whole(0, following_offset_min=0, following_offset_max=100)))
    assert [each.following for each in made.locate(ALL)[PARTITION]] == [(0, 100)]
