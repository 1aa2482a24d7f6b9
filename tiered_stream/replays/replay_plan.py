"""Plan of a replay: offset ranges that are determined once, so that a resumed replay reads the same ranges.

The plan is stored as JSON in the replay's checkpoint.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from uuid import UUID

import orjson

from tiered_stream.delta.settings.ingest_settings import LAND, ON_LANDED_OFFSETS
from tiered_stream.errors import ConfigurationError, CorruptDataError
from tiered_stream.model import OffsetRange, uuid_from_text, uuid_to_text
from tiered_stream.options import remote_options as remote
from tiered_stream.options import spark_options as spark
from tiered_stream.options.offset_json import offsets_from_dict, offsets_to_dict, offsets_to_json
from tiered_stream.options.offset_ranges import Ranges, ends_of, starting_at, times_options
from tiered_stream.options.positions import TimeRange
from tiered_stream.options.settings_files import POSITIONS, without

PLAN = "replay.json"
"""Name of the plan's file in the checkpoint."""
_VERSION = 1
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)
_NAME_LENGTH = 12
_QUERY_OPTIONS = (spark.COMMIT_GROUP_ID.name, spark.BOUNDED_STREAMING.name)
"""Options that a replay ignores, because a user sets them for the ingest query that shares the settings file."""


@dataclass(frozen=True, slots=True)
class ReplayArguments:
    """Arguments of a replay, as the user wrote them. To resume a replay, the user must give the same arguments.

    `reads` is the option that names the topics (`subscribe`, `subscribePattern` or `assign`): its name and its value.
    `target` is the kind and the place of the target, such as `topic orders-copy`.
    """

    reads: tuple[str, str]
    from_time: str
    to_time: str | None
    target: str
    exact: bool = False
    replace: bool = False

    def default_name(self) -> str:
        """Return the default name of the replay: the first 12 hexadecimal digits of a hash of the arguments."""
        return hashlib.sha256(orjson.dumps(asdict(self))).hexdigest()[:_NAME_LENGTH]

    def difference(self, other: ReplayArguments) -> str | None:
        """Return a text with both values of the first argument that differs from `other`, or None if none differs.

        `other` has the arguments with which an earlier run has begun the replay.
        """
        for name, ours in asdict(self).items():
            theirs = getattr(other, name)
            if ours != theirs:
                return f"{name.removesuffix('_time')} was {_shown(theirs)} and is {_shown(ours)}"
        return None


def _shown(value: object) -> str:
    if value is None or isinstance(value, bool):
        return "given" if value else "not given"
    return "=".join(value) if isinstance(value, tuple) else str(value)


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """Plan of a replay: its name, its arguments, and the offset range that it reads of each partition.

    `times` is the range of times from `--from` to `--to`. An exact replay (`--exact`) has ranges up to the log's end,
    and copies only records whose timestamps are within `times`. Any other replay copies all records in the ranges.
    `topic_ids` has the topics' ids by the topic's name.
    """

    name: str
    arguments: ReplayArguments
    times: TimeRange
    ranges: Ranges
    topic_ids: Mapping[str, UUID]

    @property
    def transaction_id(self) -> str:
        """Return the id of the replay's application transactions in Delta.

        The names of the replay's consumer groups and transactional ids in Kafka begin with this id.
        """
        return f"replay-{self.name}"

    @property
    def offsets(self) -> int:
        """Return the total number of offsets in the ranges. The number of records may be lower, but is never higher."""
        return sum(map(len, self.ranges.values()))

    def stream_options(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return the options of a streaming query that reads the plan's offset ranges.

        Args:
            options: the user's options. The result has the plan's start and end offsets and topic ids in place of the
                user's. `kafka.consumer.commit.groupid` and `boundedStreaming` are left out.
        """
        reads = {
            **starting_at(self.ranges),
            remote.ENDING_OFFSETS.name: offsets_to_json(ends_of(self.ranges)),
            remote.TOPIC_ID.name: orjson.dumps(self._topic_ids()).decode(),
            ON_LANDED_OFFSETS.name: LAND,  # a replay is asked for, whatever the table has
            **times_options(self.times if self.arguments.exact else None),
        }
        return without(options, (*POSITIONS, *_QUERY_OPTIONS, *reads)) | reads

    def check_same(self, name: str, arguments: ReplayArguments, folder: str) -> None:
        """Check that this plan, which was stored in the checkpoint `folder`, has this name and these arguments.

        Raises:
            ConfigurationError: the name or an argument differs.
        """
        if self.name != name:
            raise ConfigurationError(
                f"the checkpoint {folder} belongs to the replay {self.name}: use another checkpoint"
            )
        difference = arguments.difference(self.arguments)
        if difference is not None:
            raise ConfigurationError(
                f"the replay {self.name} was begun with other arguments: {difference}. To continue it, give the same "
                "arguments; for another replay, give another --name"
            )

    def to_json(self) -> bytes:
        """Return the plan as JSON in UTF-8, from which `from_json` restores the plan."""
        starts = {partition: offsets.start for partition, offsets in self.ranges.items()}
        values = {
            "version": _VERSION,
            "name": self.name,
            "arguments": asdict(self.arguments),
            "times": asdict(self.times),
            "startOffsets": offsets_to_dict(starts),
            "endOffsets": offsets_to_dict(ends_of(self.ranges)),
            "topicIds": self._topic_ids(),
        }
        return orjson.dumps(values, option=orjson.OPT_INDENT_2)

    def _topic_ids(self) -> dict[str, str]:
        return {topic: uuid_to_text(topic_id) for topic, topic_id in self.topic_ids.items()}

    @classmethod
    def from_json(cls, text: bytes) -> ReplayPlan:
        """Return the plan that `to_json` has written as `text`.

        Raises:
            CorruptDataError: the text is not a plan, or has an unknown version.
        """
        try:
            parsed = orjson.loads(text)
            if parsed["version"] != _VERSION:
                raise CorruptDataError(f"it is a replay's plan of version {parsed['version']}; known is {_VERSION}")
            starts, ends = offsets_from_dict(parsed["startOffsets"]), offsets_from_dict(parsed["endOffsets"])
            if starts.keys() != ends.keys():
                raise ValueError("its starts and ends are of different partitions")
            return cls(
                check_name(parsed["name"]),
                ReplayArguments(**{**parsed["arguments"], "reads": tuple(parsed["arguments"]["reads"])}),
                TimeRange(**parsed["times"]),
                {partition: OffsetRange(start, ends[partition]) for partition, start in starts.items()},
                {topic: uuid_from_text(topic_id) for topic, topic_id in parsed["topicIds"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptDataError(f"it is no replay's plan: {error!r}") from error


def check_name(name: str) -> str:
    """Return the replay's name unchanged if it can be part of a folder's name.

    Raises:
        ConfigurationError: the name is empty, too long or only dots, or has characters that are not allowed.
    """
    if not _NAME.fullmatch(name) or not name.strip("."):
        raise ConfigurationError(f"--name {name!r}: use letters, digits, '.', '_' and '-', at most 100")
    return name
