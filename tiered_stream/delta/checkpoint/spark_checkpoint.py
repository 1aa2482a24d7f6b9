"""Reader of Spark's own files in a query's checkpoint: the query's id, its committed micro-batches, and end offsets.

Spark writes the end offsets of micro-batch N to the file `offsets/N` before the micro-batch runs, and writes the file
`commits/N` when the micro-batch is done (Spark: `OffsetSeqLog`, `CommitLog`). A file in `offsets` has a line with its
version, a line with settings, and a line for each source. In version 1, a source's line has the offset. In version 2,
it has the source's id and the offset, such as `0:{"orders":{"0":6}}`. An offset is JSON, or `-` if the source has no
offset yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import orjson

from tiered_stream.errors import ConfigurationError, CorruptDataError, UnsupportedDataError, naming
from tiered_stream.model import OffsetRange, PartitionOffsets, TopicPartition
from tiered_stream.options.offset_json import LastOffsets, StreamOffsets, notes_of, offsets_from_dict
from tiered_stream.options.types import LONG_MAX

MAX_FILE_BYTES = 64 << 20
"""Maximum size in bytes of a checkpoint file; larger files are not read."""
_METADATA, _OFFSETS, _COMMITS = "metadata", "offsets", "commits"
_BY_POSITION, _BY_ID = b"v1", b"v2"
_HEADER_LINES = 2
_NO_OFFSET = b"-"


def too_large(folder: str, name: str) -> CorruptDataError:
    """Return the error for the file `name` in the checkpoint `folder`, which has more than `MAX_FILE_BYTES`."""
    return CorruptDataError(
        f"the checkpoint {folder}, {name}: it has more than {MAX_FILE_BYTES >> 20} MiB, and is not read. See what has "
        "written it"
    )


class ReadableFolder(Protocol):
    """Folder of a checkpoint that can be read; each implementation raises its own errors.

    `folder` is the folder's name in errors.
    """

    folder: str

    def entries(self, name: str = "") -> list[str]:
        """Return the names of the files and subfolders in the checkpoint's folder, or in its subfolder `name`.

        The list is empty if there is no such folder.
        """

    def read(self, name: str) -> bytes | None:
        """Return the bytes of the file `name`, or None if there is no such file.

        Raises:
            CorruptDataError: the file has more than `MAX_FILE_BYTES`.
        """


@dataclass(frozen=True, slots=True)
class BatchEnds:
    """End offsets of a micro-batch, as Spark has written them into the checkpoint.

    `by_source` has each source's offset as JSON, by the source's id; None: the source has no offset yet. `has_ids` is
    true if the checkpoint's file has the sources' ids. If it is false, a source's id is its position in the query, from
    `0`.
    """

    by_source: Mapping[str, str | None]
    has_ids: bool

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """Next offset to read, by partition; if two sources read the same partition, the lower of their offsets.

        A source is left out if its offset does not have the form `{topic: {partition: offset}}`. So the mapping may be
        empty.
        """
        positions: dict[TopicPartition, int] = {}
        for text in self.by_source.values():
            for partition, offset in _positions(text).items():
                positions[partition] = min(offset, positions.get(partition, offset))
        return positions


def _positions(text: str | None) -> dict[TopicPartition, int]:
    try:
        return {} if text is None else offsets_from_dict(orjson.loads(text))
    except ConfigurationError:
        return {}


def batch_ends(text: bytes) -> BatchEnds:
    """Parse `text`, the bytes of a file in the checkpoint's folder `offsets`.

    Raises:
        UnsupportedDataError: the file has an unknown version.
        CorruptDataError: the file is damaged.
    """
    lines = text.splitlines()
    version = lines[0] if lines else b""
    if version not in (_BY_POSITION, _BY_ID):
        if not version.startswith(b"v"):
            raise CorruptDataError("it is damaged: it does not begin with a version")
        known = " and ".join(line.decode() for line in (_BY_POSITION, _BY_ID))
        raise UnsupportedDataError(
            f"its version is {version.decode(errors='replace')!r:.20}, and this release reads {known}: a newer Spark "
            "has written it"
        )
    if len(lines) < _HEADER_LINES:
        raise CorruptDataError("it is damaged: it ends before the sources' offsets")
    has_ids = version == _BY_ID
    offsets = [
        (line.partition(b":") if has_ids else (str(number).encode(), b":", line))
        for number, line in enumerate(lines[_HEADER_LINES:])
    ]
    return BatchEnds(dict(_offset(*line) for line in offsets), has_ids)


def _offset(source: bytes, colon: bytes, offset: bytes) -> tuple[str, str | None]:
    try:
        if not colon:
            raise ValueError("a line has no source")
        if offset == _NO_OFFSET:
            return source.decode(), None
        orjson.loads(offset)
        return source.decode(), offset.decode()
    except ValueError as error:
        raise CorruptDataError(f"it is damaged: the offset of a source cannot be read ({error})") from error


def batch_ids(names: Iterable[str]) -> list[int]:
    """Return the micro-batch ids among the names of a checkpoint's files, in ascending order."""
    numbers = (int(name) for name in names if name.isascii() and name.isdecimal())
    return sorted(number for number in numbers if number <= LONG_MAX)


class SparkCheckpoint:
    """Reader of Spark's files in a query's checkpoint; all methods also raise the errors that `folder` raises."""

    def __init__(self, folder: ReadableFolder) -> None:
        self._folder = folder

    def query_id(self) -> str | None:
        """Return the query's id from the file `metadata` (Spark: `StreamMetadata`).

        The result is None if there is no such file yet.

        Raises:
            CorruptDataError: the file is damaged.
        """
        text = self._folder.read(_METADATA)
        if text is None:
            return None
        try:
            query_id = orjson.loads(text)["id"]
        except (orjson.JSONDecodeError, TypeError, KeyError):
            query_id = None
        if not isinstance(query_id, str):
            raise CorruptDataError(f"{self._name(_METADATA)}: it is damaged: it does not have the query's id")
        return query_id

    def last_committed(self) -> int | None:
        """Return the id of the last micro-batch that Spark has committed, or None if there is none."""
        return self._last(_COMMITS)

    def committed(self) -> tuple[int, BatchEnds] | None:
        """Return the id and the end offsets of the last micro-batch that Spark has committed, or None if there is none.

        Raises:
            UnsupportedDataError: the micro-batch's file in `offsets` has an unknown version.
            CorruptDataError: the file is missing, damaged, or too large.
        """
        batch = self.last_committed()
        if batch is None:
            return None
        ends = self.ends(batch)
        if ends is None:
            raise CorruptDataError(
                f"the checkpoint {self._folder.folder}: batch {batch} is committed, but {_OFFSETS}/{batch} is missing: "
                "bring it back"
            )
        return batch, ends

    def last_planned(self) -> int | None:
        """Return the id of the last micro-batch whose end offsets Spark has written, or None if there is none.

        It is possible that Spark has not committed this micro-batch yet.
        """
        return self._last(_OFFSETS)

    def ends(self, batch_id: int) -> BatchEnds | None:
        """Return the end offsets of a micro-batch, or None if Spark has deleted their file, or has not written it yet.

        Raises:
            UnsupportedDataError: the file has an unknown version.
            CorruptDataError: the file is damaged, or too large.
        """
        text = self._folder.read(f"{_OFFSETS}/{batch_id}")
        if text is None:
            return None
        with naming(lambda: self._name(f"{_OFFSETS}/{batch_id}")):
            return batch_ends(text)

    def _last(self, log: str) -> int | None:
        """Return the highest micro-batch id among the file names in the folder `log` (`offsets` or `commits`).

        None: no file name is a micro-batch id.
        """
        return max(batch_ids(self._folder.entries(log)), default=None)

    def _name(self, file: str) -> str:
        return f"the checkpoint {self._folder.folder}, {file}"


# Offsets of one micro-batch, as Spark's offset log in the query's checkpoint has them.


@dataclass(frozen=True, slots=True)
class BatchOffsets:
    """Start and end offsets of a micro-batch, by partition; `ends` also has the topics' ids (see `notes_of`)."""

    starts: PartitionOffsets
    ends: PartitionOffsets

    @property
    def ranges(self) -> dict[TopicPartition, OffsetRange]:
        """Offset range of each partition that has offsets in the micro-batch; a new partition begins at offset 0."""
        return {
            partition: OffsetRange(start, end)
            for partition, end in self.ends.items()
            if (start := self.starts.get(partition, 0)) < end
        }


def micro_batch_offsets(checkpoint: SparkCheckpoint, batch_id: int) -> BatchOffsets | None:
    """Return the offsets of a micro-batch, or None if the checkpoint does not have them, or if it has several sources.

    A checkpoint of an older release does not have the start offsets of the first micro-batch.

    Raises:
        ConfigurationError: the offsets in the checkpoint do not have the form `{topic: {partition: offset}}`.
        CorruptDataError, UnsupportedDataError: a file in the checkpoint cannot be read.
    """
    ends = noted_offsets(checkpoint.ends(batch_id))
    starts = notes_of(ends).start or (noted_offsets(checkpoint.ends(batch_id - 1)) if batch_id else None)
    return BatchOffsets(starts, ends) if ends and starts else None


def noted_offsets(ends: BatchEnds | None) -> PartitionOffsets:
    """Return the end offsets of a micro-batch with their notes, such as the topics' ids.

    The result is empty if `ends` is None, or if the checkpoint has several sources.

    Raises:
        ConfigurationError: the offsets in the checkpoint do not have the form `{topic: {partition: offset}}`.
    """
    texts = [text for text in ends.by_source.values() if text is not None] if ends else []
    return LastOffsets().from_dict(orjson.loads(texts[0])) if len(texts) == 1 else StreamOffsets({})
