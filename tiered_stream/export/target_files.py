"""Files and folders of an export. A file has a temporary name until it is complete."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID

import orjson

from tiered_stream.errors import ConfigurationError, CorruptDataError, ExportError, TieredStreamError
from tiered_stream.export.export_plan import ExportPlan
from tiered_stream.export.file_formats import FileFormat
from tiered_stream.model import TopicPartition, uuid_from_text, uuid_to_text
from tiered_stream.options.offset_json import offsets_from_dict, offsets_to_dict
from tiered_stream.options.offset_ranges import Ranges, ends_of, ranges_between
from tiered_stream.options.positions import TimeRange

MANIFEST = "_export.json"
_VERSION, _TEMPORARY = 1, ".part"
_MAX_NAME, _MAX_TOPIC = 255, 220
"""Maximum number of bytes of a file's name on Linux, and of characters of the topic in a file's name.

Kafka allows topics of 249 characters.
"""


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file with a temporary name; rename it to `path` at the end of the block.

    If the block fails, the temporary file is removed. If the process is killed, the temporary file `.NAME.part`
    remains, and the next export to the same path overwrites it. If `.NAME.part` is too long for a file name, a hash
    replaces `NAME`.

    Raises:
        ConfigurationError: another process writes the same file.
        ExportError: the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}{_TEMPORARY}")
    if len(os.fsencode(temporary.name)) > _MAX_NAME:
        temporary = path.with_name(f".{_hash(path.name)}{_TEMPORARY}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("ab") as file:
            _lock(file, path)
            file.truncate(0)
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                temporary.replace(path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
    except TieredStreamError:  # one of them is an OSError, too
        raise
    except OSError as error:
        raise ExportError(f"{path} cannot be written: {error}") from error


def _lock(file: BinaryIO, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Before the lock, another export may have renamed or removed the file that was opened here.
        is_there = os.path.samestat(os.fstat(file.fileno()), os.stat(file.name))
    except (BlockingIOError, FileNotFoundError):
        is_there = False
    except OSError as error:  # some network file systems have no locks
        raise ExportError(f"{path} cannot be locked: {error}") from error
    if not is_there:
        raise ConfigurationError(f"another export writes {path} now: wait for it, or write elsewhere")


def _is_temporary(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(_TEMPORARY)


def _hash(name: str) -> str:
    return sha256(os.fsencode(name)).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Manifest:
    """Content of `_export.json` in the folder of an export: its arguments, and the offset range of each partition.

    `topic_ids` has the topics' ids by the topic's name. `ending` is the ending of the files' names, such as `csv.gz`.
    `times` is the export's range of timestamps, if it has one, as it was when the export began. `finished` is True if
    all files are complete. `undecodable` is the number of records of each partition that did not decode and were left
    out of the partition's file.
    """

    arguments: Mapping[str, Any]
    ranges: Ranges
    topic_ids: Mapping[str, UUID]
    ending: str
    times: TimeRange | None = None
    finished: bool = False
    undecodable: Mapping[TopicPartition, int] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """Return the manifest as JSON, from which `from_json` restores it."""
        starts = {partition: offsets.start for partition, offsets in self.ranges.items()}
        values = {
            "version": _VERSION,
            "arguments": self.arguments,
            "format": self.ending,
            "startOffsets": offsets_to_dict(starts),
            "endOffsets": offsets_to_dict(ends_of(self.ranges)),
            "topicIds": {topic: uuid_to_text(topic_id) for topic, topic_id in self.topic_ids.items()},
            "times": self.times,
            "finished": self.finished,
            "undecodable": offsets_to_dict(self.undecodable),
        }
        return orjson.dumps(values, option=orjson.OPT_INDENT_2)

    @classmethod
    def from_json(cls, text: bytes) -> Manifest:
        """Return the manifest that `to_json` has written.

        Raises:
            CorruptDataError: the text is not a manifest, or has an unknown version.
        """
        try:
            parsed = orjson.loads(text)
            if parsed["version"] != _VERSION:
                raise CorruptDataError(
                    f"it is an export's manifest of version {parsed['version']}; known is {_VERSION}"
                )
            ranges = ranges_between(offsets_from_dict(parsed["startOffsets"]), offsets_from_dict(parsed["endOffsets"]))
            topic_ids = {topic: uuid_from_text(topic_id) for topic, topic_id in parsed["topicIds"].items()}
            ending = FileFormat.of(parsed["format"]).ending
            # Older releases store neither of the two.
            stored, undecodable = parsed.get("times"), offsets_from_dict(parsed.get("undecodable", {}))
            end = stored and stored["to_ms"]
            times = TimeRange(int(stored["from_ms"]), None if end is None else int(end)) if stored else None
            if not isinstance(parsed["arguments"]["settings"], dict):
                raise ValueError("its settings are no object")
            return cls(parsed["arguments"], ranges, topic_ids, ending, times, parsed["finished"], undecodable)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptDataError(f"it is no export's manifest: {error!r}") from error


class ExportFolder:
    """Folder of an export, with a file for each partition and a manifest. Methods raise ExportError on a failure."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def file_of(self, partition: TopicPartition, ending: str) -> Path:
        """Return the path of a partition's file. A hash replaces the end of a topic of more than 220 characters."""
        topic = partition.topic
        if len(topic) > _MAX_TOPIC:
            digest = _hash(topic)
            topic = f"{topic[: _MAX_TOPIC - len(digest) - 1]}~{digest}"
        return self.path / f"{topic}-{partition.partition}.{ending}"

    def manifest(self) -> Manifest | None:
        """Return the folder's manifest, or None if no export has begun there.

        It is None if the folder is missing or empty, or has only temporary files of an export that was killed.

        Raises:
            ConfigurationError: the folder has files, but no manifest.
            CorruptDataError: the manifest is damaged.
        """
        try:
            if (self.path / MANIFEST).exists():
                return Manifest.from_json((self.path / MANIFEST).read_bytes())
            entries = self.path.iterdir() if self.path.exists() else ()
            found = sorted(entry for entry in entries if not _is_temporary(entry))
        except OSError as error:
            raise ExportError(f"{self.path} cannot be read: {error}") from error
        if found:
            raise ConfigurationError(
                f"the folder {self.path} is not empty (it has {found[0].name}), and no export has begun in it: give a "
                "new folder"
            )
        return None

    @contextmanager
    def locked(self, manifest: Manifest | None) -> Iterator[None]:
        """Keep other exports out of the folder during the block.

        Args:
            manifest: manifest that the folder had when this export was planned.

        Raises:
            ConfigurationError: another process exports into the folder, or has changed its manifest since.
        """
        lock = self.path / f".lock{_TEMPORARY}"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = lock.open("ab")
        except OSError as error:
            raise ExportError(f"{self.path} cannot be written: {error}") from error
        with file:
            _lock(file, self.path)
            try:
                if self.manifest() != manifest:
                    raise ConfigurationError(
                        f"another export has written {self.path} since this one was planned: start this one again"
                    )
                yield
            finally:
                lock.unlink(missing_ok=True)

    def store(self, manifest: Manifest) -> None:
        """Write the manifest."""
        with new_file(self.path / MANIFEST) as file:
            file.write(manifest.to_json())

    def clear(self, manifest: Manifest) -> None:
        """Mark the export as unfinished, and remove its files; other files stay."""
        try:
            self.store(replace(manifest, finished=False))
            for partition in manifest.ranges:
                self.file_of(partition, manifest.ending).unlink(missing_ok=True)
        except OSError as error:
            raise ExportError(f"the files of the earlier export cannot be removed: {error}") from error

    def missing(self, plan: ExportPlan, ending: str) -> Ranges:
        """Return the offset ranges of the plan's partitions that have no file yet. Empty ranges are left out."""
        return {
            partition: offsets
            for partition, offsets in plan.ranges.items()
            if len(offsets) and not self.file_of(partition, ending).exists()
        }
