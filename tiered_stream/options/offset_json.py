"""Offset JSON of Spark's `kafka` source, in which this source writes its offsets too.

An example is `{"topic":{"0":6}}`: the next offset to read, by topic and partition (Spark's `JsonUtils`,
`KafkaSourceOffset`). In the starting and ending options, -2 means earliest and -1 latest.

In Spark's offset log, offsets may have notes about the stream's start and end, and about its topics' ids. The offset
log is the only place where a Python source can store something before a micro-batch depends on it. A note is written as
a topic without partitions, whose name no topic can have, such as `startingOffsets={"t":{"0":5}}`. Spark's `kafka`
source and older releases of this package read no offset from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import orjson

from tiered_stream.errors import ConfigurationError
from tiered_stream.model import PartitionOffsets, TopicPartition, is_topic_name, uuid_from_text, uuid_to_text
from tiered_stream.options.types import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN, whole_number

EARLIEST = -2
LATEST = -1

_SHOWN_CHARACTERS = 200
_FORM = '{"topic":{"0":6}}'
_INITIAL, _START, _END, _TOPIC_IDS = "initial offsets", "startingOffsets=", "ending=", "topicIds="


def offsets_from_dict(topics: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Convert a checkpoint's offsets from Spark's nested form `{topic: {partition: offset}}`, and check them.

    Raises:
        ConfigurationError: the offsets do not have that form, a topic has a name that Kafka does not allow, or an
            offset is negative or beyond 64 bits. Spark does not check the content of its checkpoints.
    """
    offsets: dict[TopicPartition, int] = {}
    if not isinstance(topics, dict) or not all(isinstance(partitions, dict) for partitions in topics.values()):
        raise ConfigurationError(f"the checkpoint's offsets are not of the form {_FORM}: {_shown(topics)}")
    for topic, partitions in topics.items():
        if partitions and not is_topic_name(topic):
            raise ConfigurationError(f"the checkpoint's offsets have {_shown(topic)!r}, which is no topic's name")
        for partition, offset in partitions.items():
            if not _is_partition(partition) or type(offset) is not int or not 0 <= offset <= LONG_MAX:
                raise ConfigurationError(
                    f"the checkpoint's offsets have {_shown(offset)} as the offset of {topic}-{partition}"
                )
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def offsets_to_dict(offsets: PartitionOffsets) -> dict[str, dict[str, int]]:
    """Convert offsets into Spark's nested form `{topic: {partition: offset}}`, ordered by topic and partition."""
    topics: dict[str, dict[str, int]] = {}
    for topic_partition in sorted(offsets):
        topics.setdefault(topic_partition.topic, {})[str(topic_partition.partition)] = offsets[topic_partition]
    return topics


def offsets_to_json(offsets: PartitionOffsets) -> str:
    """Return the offset JSON as Spark writes it: without spaces, ordered by topic and partition."""
    return orjson.dumps(offsets_to_dict(offsets)).decode()


@dataclass(frozen=True, slots=True)
class KnownEnd:
    """Known part of the end of a bounded stream.

    `position` is the end position in the options, as text. If the options change, the stream does not use this end any
    more. `time_ms` is the time (ms since the epoch) for an end position such as `-90m`, and None for any other
    position. `offsets` are end offsets (exclusive) that were looked up by time, by partition.
    """

    position: str
    time_ms: int | None = None
    offsets: PartitionOffsets = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Notes:
    """Notes about a stream, which Spark's offset log stores with the offsets at which a micro-batch ends.

    `initial` is True for the stream's initial offsets, which Spark requests but does not store. `start` has the offsets
    at which the first micro-batch starts; it is None except in the notes of the first micro-batch. `end` is the end of
    a bounded stream, or None if the end is not known. `topic_ids` has the id of each topic for which brokers have
    reported an id.
    """

    initial: bool = False
    start: PartitionOffsets | None = None
    end: KnownEnd | None = None
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)


_NO_NOTES = Notes()


class StreamOffsets(dict[TopicPartition, int]):
    """Mapping from partition to the next offset to read, with notes about the stream. Equality ignores the notes."""

    def __init__(self, offsets: PartitionOffsets, notes: Notes = _NO_NOTES) -> None:
        super().__init__(offsets)
        self.notes = notes


def notes_of(offsets: PartitionOffsets) -> Notes:
    """Return the notes about the stream that `offsets` have, or empty notes if `offsets` are not `StreamOffsets`."""
    return offsets.notes if isinstance(offsets, StreamOffsets) else _NO_NOTES


class LastOffsets:
    """Converter between `StreamOffsets` and Spark's nested form `{topic: {partition: offset}}`, with a cache.

    The cache has the last two results of `to_dict`, because Spark passes the same offsets again at each trigger.
    """

    def __init__(self) -> None:
        self._cache: deque[tuple[dict[str, dict[str, int]], PartitionOffsets]] = deque(maxlen=2)

    def from_dict(self, topics: Mapping[str, Mapping[str, int]]) -> PartitionOffsets:
        """Convert Spark's nested form `{topic: {partition: offset}}` into offsets by partition, with their notes.

        If `topics` equals a cached result of `to_dict`, the cached offsets are returned. Callers must not change the
        result.

        Raises:
            ConfigurationError: the offsets do not have that form, an offset is negative or beyond 64 bits, or a note
                cannot be read.
        """
        for form, offsets in self._cache:
            if form == topics:
                return offsets
        return StreamOffsets(offsets_from_dict(topics), _notes_from(topics))

    def to_dict(self, offsets: PartitionOffsets) -> dict[str, dict[str, int]]:
        """Convert offsets and their notes into Spark's nested form `{topic: {partition: offset}}`.

        For equal offsets with equal notes, the cached result is returned. Callers must not change the result.
        """
        for form, cached in self._cache:
            if offsets == cached and notes_of(offsets) == notes_of(cached):
                return form
        form = {**offsets_to_dict(offsets), **_notes_to_dict(notes_of(offsets))}
        self._cache.append((form, offsets))
        return form


def _notes_to_dict(notes: Notes) -> dict[str, dict[str, int]]:
    topics = [_INITIAL] if notes.initial else []
    if notes.start is not None:
        topics.append(_START + offsets_to_json(notes.start))
    if notes.end is not None:
        end = {"position": notes.end.position, "time": notes.end.time_ms, "offsets": offsets_to_dict(notes.end.offsets)}
        topics.append(_END + orjson.dumps(end).decode())
    if notes.topic_ids:
        ids = {topic: uuid_to_text(topic_id) for topic, topic_id in sorted(notes.topic_ids.items())}
        topics.append(_TOPIC_IDS + orjson.dumps(ids).decode())
    return {topic: {} for topic in topics}


def _notes_from(topics: Mapping[str, Mapping[str, int]]) -> Notes:
    start, end = None, None
    ids: dict[str, UUID] = {}
    for topic in (topic for topic, partitions in topics.items() if not partitions):
        try:
            if topic.startswith(_START):
                start = offsets_from_dict(orjson.loads(topic.removeprefix(_START)))
            elif topic.startswith(_END):
                end = _end_from(orjson.loads(topic.removeprefix(_END)))
            elif topic.startswith(_TOPIC_IDS):
                texts = orjson.loads(topic.removeprefix(_TOPIC_IDS))
                ids = {name: uuid_from_text(text) for name, text in texts.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f"the checkpoint's offsets have a note that cannot be read ({error}): {topic:.200}. Bring back the "
                "checkpoint as it was"
            ) from error
    return Notes(_INITIAL in topics, start, end, ids)


def _end_from(note: Mapping[str, Any]) -> KnownEnd:
    time_ms = note["time"]
    return KnownEnd(
        str(note["position"]), None if time_ms is None else int(time_ms), offsets_from_dict(note["offsets"])
    )


def parse_specific_offsets(text: str) -> tuple[dict[TopicPartition, int], dict[str, int]]:
    """Parse offset JSON for a start or an end, such as `{"topicA":"earliest","topicB":{"0":23,"1":-1}}`.

    The result has two dictionaries: offsets by partition (-2 means earliest, -1 latest), and -2 or -1 by topic for
    topics with `"earliest"` or `"latest"` in place of an object. (Spark: `JsonUtils.specificOffsets`, in versions after
    Spark 4.2.0.)

    As in Spark, fractions of numbers are cut off, and `null` is 0 or an empty object. If a key occurs several times,
    its last value is used. Numbers that Spark's parser Jackson would change, and text after the object, which Jackson
    would ignore, are errors.

    Raises:
        ValueError: the text does not have this form.
    """
    special = {"earliest": EARLIEST, "latest": LATEST}
    with _example('{"topicA":"earliest","topicB":{"0":23,"1":-1}}'):
        document = _json_object(text)
        words = {topic: value.strip().lower() for topic, value in document.items() if isinstance(value, str)}
        for topic, word in words.items():
            if word not in special:
                raise ValueError(f"has {word!r} for topic {topic!r}, neither earliest nor latest")
        partitions = {topic: document[topic] for topic in document.keys() - words.keys()}
        offsets = _partition_longs(partitions, "an offset: -2 is earliest, -1 is latest", EARLIEST)
    return offsets, {topic: special[word] for topic, word in words.items()}


def parse_partition_timestamps(text: str) -> dict[TopicPartition, int]:
    """Parse JSON with timestamps by topic and partition, such as `{"topicA":{"0":1718000000000}}`.

    Timestamps are in milliseconds since the epoch, and may be negative.

    Raises:
        ValueError: the text does not have this form.
    """
    with _example('{"topicA":{"0":1718000000000,"1":1718000000000}}'):
        return _partition_longs(_json_object(text), "a timestamp in milliseconds since the epoch", LONG_MIN)


def parse_partitions(text: str) -> tuple[TopicPartition, ...]:
    """Parse the value of `assign`, such as `{"topicA":[0,1]}`, and return the partitions without duplicates.

    As in Spark's `JsonUtils.partitions`, the text may name partitions that do not exist, or no partition at all.

    Raises:
        ValueError: the text does not have this form.
    """
    partitions: dict[TopicPartition, None] = {}
    with _example('{"topicA":[0,1],"topicB":[0]}'):
        for topic, numbers in _json_object(text).items():
            if not isinstance(numbers, list | None):
                raise ValueError(f"has no array of partition numbers for topic {topic!r}")
            for number in numbers or ():
                whole = _whole_number(number)
                if whole is None or not INT_MIN <= whole <= INT_MAX:
                    raise ValueError(f"has {number!r}, which is no partition number, for topic {topic!r}")
                partitions[TopicPartition(topic, whole)] = None
    return tuple(partitions)


def _partition_longs(document: Mapping[str, Any], meaning: str, minimum: int) -> dict[TopicPartition, int]:
    values: dict[TopicPartition, int] = {}
    for topic, partitions in document.items():
        if not isinstance(partitions, dict | None):
            raise ValueError(f"has no object by partition for topic {topic!r}")
        for key, value in (partitions or {}).items():
            whole = _whole_number(value)
            if whole is None or whole < minimum:
                raise ValueError(f"has {value!r} for {topic}-{key}, which is not {meaning}")
            values[TopicPartition(topic, _partition(key, topic))] = whole
    return values


@contextmanager
def _example(form: str) -> Iterator[None]:
    """Add `form`, an example of the right form, to the message of a ValueError raised in the block."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{error}; expected e.g. {form}") from error


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _is_partition(key: str) -> bool:
    return key.isascii() and key.isdigit() and len(key) <= 10 and int(key) <= INT_MAX


def _partition(key: str, topic: str) -> int:
    """Parse the partition number `key` as Java does. Raises ValueError, which names `topic`, for any other text."""
    try:
        number = whole_number(key)
    except ValueError:
        number = -1
    if not 0 <= number <= INT_MAX:
        raise ValueError(f"has {key!r}, which is no partition number, for topic {topic!r}")
    return number


def _json_object(text: str) -> dict[str, Any]:
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"is not JSON ({error})") from error
    if not isinstance(parsed, dict):
        raise ValueError("is not a JSON object")
    return parsed


def _whole_number(value: object) -> int | None:
    """Return a JSON number without its fraction, or 0 for `null`, or None for any other value or beyond 64 bits."""
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if LONG_MIN <= value <= LONG_MAX else None
