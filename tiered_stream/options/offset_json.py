"""The offset JSON that Spark's `kafka` source and ours share.

It is `{"topic":{"0":6}}`: by topic and partition, the next offset to read (Spark's `JsonUtils`,
`KafkaSourceOffset`). In the starting and ending options -2 stands for earliest and -1 for latest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import orjson

from tiered_stream.errors import ConfigurationError
from tiered_stream.model import PartitionOffsets, TopicPartition

EARLIEST = -2
LATEST = -1

_INT_MAX = 2**31 - 1
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
_SHOWN_CHARACTERS = 200


def offsets_from_dict(topics: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """The offsets in Spark's nested form `{topic: {partition: offset}}`."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in topics.items()
        for partition, offset in partitions.items()
    }


def offsets_to_dict(offsets: PartitionOffsets) -> dict[str, dict[str, int]]:
    """Inverse of `offsets_from_dict`, ordered by topic and partition."""
    topics: dict[str, dict[str, int]] = {}
    for topic_partition in sorted(offsets):
        topics.setdefault(topic_partition.topic, {})[str(topic_partition.partition)] = offsets[topic_partition]
    return topics


def offsets_to_json(offsets: PartitionOffsets) -> str:
    """The offset JSON as Spark writes it: no spaces; ordered by topic and partition."""
    return orjson.dumps(offsets_to_dict(offsets)).decode()


def parse_partition_offsets(text: str, option: str) -> dict[TopicPartition, int]:
    """The offset JSON, -2 and -1 included (Spark: `JsonUtils.partitionOffsets`).

    As there, fractions are cut off and the last of a repeated key counts.

    Raises:
        ConfigurationError: `text`, the value of `option`, does not have that form.
    """
    example = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
    return _parse_partition_longs(text, option, example, "an offset: -2 is earliest, -1 is latest")


def parse_partition_timestamps(text: str, option: str) -> dict[TopicPartition, int]:
    """As `parse_partition_offsets`, with milliseconds since the epoch in place of offsets."""
    example = '{"topicA":{"0":1718000000000,"1":1718000000000}}'
    return _parse_partition_longs(text, option, example, "a timestamp in milliseconds since the epoch")


def parse_partitions(text: str) -> tuple[TopicPartition, ...]:
    """The value of `assign`: partition numbers by topic (Spark: `JsonUtils.partitions`), each partition once.

    Raises:
        ConfigurationError: `text` does not have that form, or names no partition.
    """
    partitions: dict[TopicPartition, None] = {}
    with _named_errors("assign", text, '{"topicA":[0,1],"topicB":[0]}'):
        for topic, numbers in _json_object(text).items():
            if not isinstance(numbers, list):
                raise ValueError(f"topic {topic!r} needs an array of partition numbers")
            for number in numbers:
                whole = _whole_number(number)
                if whole is None or not 0 <= whole <= _INT_MAX:
                    raise ValueError(f"{number!r} is no partition number of topic {topic!r}")
                partitions[TopicPartition(topic, whole)] = None
        if not partitions:
            raise ValueError("it names no partition")
    return tuple(partitions)


def _parse_partition_longs(text: str, option: str, example: str, meaning: str) -> dict[TopicPartition, int]:
    values: dict[TopicPartition, int] = {}
    with _named_errors(option, text, example):
        for topic, partitions in _json_object(text).items():
            if not isinstance(partitions, dict):
                raise ValueError(f"topic {topic!r} needs an object by partition")
            for key, value in partitions.items():
                if not (key.isascii() and key.isdigit() and len(key) <= 10 and int(key) <= _INT_MAX):
                    raise ValueError(f"{key!r} is no partition number of topic {topic!r}")
                whole = _whole_number(value)
                if whole is None or whole < EARLIEST:
                    raise ValueError(f"{value!r} of {topic}-{key} is not {meaning}")
                values[TopicPartition(topic, int(key))] = whole
    return values


@contextmanager
def _named_errors(option: str, text: str, example: str) -> Iterator[None]:
    """The user's error also says which option it is, and what it should be."""
    try:
        yield
    except ValueError as error:
        shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
        raise ConfigurationError(f"option {option}: {error}; expected e.g. {example}, got {shown}") from error


def _json_object(text: str) -> dict[str, Any]:
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(parsed, dict):
        raise ValueError("not a JSON object")
    return parsed


def _whole_number(value: object) -> int | None:
    """A JSON number without its fraction, when it fits 64 bits; None for anything else, quoted numbers included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if _LONG_MIN <= value <= _LONG_MAX else None
