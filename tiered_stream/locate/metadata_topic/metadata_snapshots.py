"""Snapshots on disk of the metadata topic's records, so that the next query of the cluster reads only newer records.

There is one file for each metadata partition (partition of `__remote_log_metadata`). The file's name is a digest of the
partition's identity: cluster id, id of the metadata topic, number of its partitions, number of the partition. A file
has a section for each topic that a query has read. Numbers are big-endian:

    magic       8 bytes
    digest      32 bytes  BLAKE2b of the partition's identity and of the contents
    contents    number of sections uint32; then for each section: topic id 16 bytes, the offset to continue from int64,
                the last batch before the offset to continue from (base offset int64, CRC uint32), size of the section
                in bytes uint32, digest of the section 32 bytes
    sections    state of a topic (`TopicState.packed`): unreadable records, each with its offset int64 and its value;
                partitions, each as in a metadata record, and a byte that is 1 if the partition is deleted; rows of
                segments (`segment_columns.SEGMENT`, little-endian), and the leader epochs and custom metadata of the
                segments. Arrays and bytes begin with their length, as Kafka's compact types do.

A file is written under a temporary name and then renamed: readers always see a whole file, and the last writer wins. If
a file is damaged, the records of its topics are read from the beginning of the log. Other users must not have access to
the folder. Its files can be deleted at any time.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from typing import BinaryIO, NamedTuple
from uuid import UUID

from tiered_stream.errors import CorruptDataError
from tiered_stream.process.private_folder import is_private_and_writable, user_cache_folder

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 128 << 20
MAX_FOLDER_BYTES = 1 << 30
NO_SNAPSHOTS = "none"
"""Value of the option `remote.log.metadata.snapshot.dir` with which snapshots are neither written nor read."""

_MAGIC = b"tsrlm\0\0\2"
_DIGEST_BYTES = 32
_COUNT = Struct(">I")
_ENTRY = Struct(f">16sqqII{_DIGEST_BYTES}s")
_SUFFIX = ".snapshot"


class LastBatch(NamedTuple):
    """Base offset and CRC of the last record batch that a snapshot includes.

    If a metadata partition still has this batch, the snapshot was made from the same log, and can be used.
    """

    base_offset: int
    crc: int


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """State of a topic's segments, from the records below the offset `position` in one partition of the metadata topic.

    `packed` has the state as `TopicState.packed` returns it. `last_batch` is the record batch before `position`.
    """

    position: int
    last_batch: LastBatch
    packed: bytes


@dataclass(frozen=True, slots=True)
class SnapshotKey:
    """Identity of the partition of `__remote_log_metadata` from whose records a snapshot file is made."""

    cluster_id: str
    metadata_topic_id: UUID
    partition_count: int
    partition: int

    def digest(self, data: bytes) -> bytes:
        """Return the BLAKE2b digest (32 bytes) of this identity together with `data`."""
        named = repr((self.cluster_id, self.metadata_topic_id.hex, self.partition_count, self.partition))
        return blake2b(len(named).to_bytes(4, "big") + named.encode() + data, digest_size=_DIGEST_BYTES).digest()


class MetadataSnapshots:
    """Snapshot files in one folder. If a file cannot be read or written, a warning is logged, and nothing is raised."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, key: SnapshotKey, topic_ids: Collection[UUID] | None = None) -> dict[UUID, TopicSnapshot]:
        """Return by topic id the snapshots in the file of the metadata partition `key`.

        Only snapshots of the topics `topic_ids` are returned; None: of all topics. The result is empty if the file is
        missing or damaged, or other users have access to the folder.
        """
        if not (self._folder.exists() and is_private_and_writable(self._folder)):
            return {}
        try:
            with open(self._path(key), "rb") as file:
                return read_snapshot(file, key, topic_ids)
        except FileNotFoundError:
            return {}
        except (OSError, CorruptDataError) as error:
            log.warning("%s is not used, the metadata topic is read from its beginning: %s", self._path(key), error)
            return {}

    def save(self, key: SnapshotKey, topics: Mapping[UUID, TopicSnapshot]) -> None:
        """Write snapshots, by topic id, into the file of the metadata partition `key`.

        The file keeps its snapshots of other topics. If it would then be larger than `MAX_FILE_BYTES`, the other
        snapshots are dropped. If it is still too large, or other users have access to the folder, it is not written.
        """
        data = encode_snapshot({**self.load(key), **topics}, key)
        if len(data) > MAX_FILE_BYTES:
            data = encode_snapshot(topics, key)
        if len(data) > MAX_FILE_BYTES or not is_private_and_writable(self._folder):
            return
        try:
            handle, name = tempfile.mkstemp(_SUFFIX, dir=self._folder)  # only the user may read it
            try:
                with open(handle, "wb") as file:
                    file.write(data)
                os.replace(name, self._path(key))
            except BaseException:
                os.unlink(name)
                raise
        except OSError as error:
            log.warning("no snapshot of the metadata topic is written in %s: %s", self._folder, error)
        self._delete_oldest()

    def _delete_oldest(self) -> None:
        """Delete the oldest files in the folder, until the other files have at most `MAX_FOLDER_BYTES` together."""
        room = MAX_FOLDER_BYTES
        with suppress(OSError):  # another process may delete files, too
            ours = [Path(entry.path) for entry in os.scandir(self._folder) if entry.name.endswith(_SUFFIX)]
            for path in sorted(ours, key=lambda path: path.stat().st_mtime, reverse=True):
                room -= path.stat().st_size
                if room < 0:
                    path.unlink()

    def _path(self, key: SnapshotKey) -> Path:
        return self._folder / (key.digest(b"")[:16].hex() + _SUFFIX)


def open_snapshots(folder: str) -> MetadataSnapshots | None:
    """Return the snapshots in `folder`, the value of the option `remote.log.metadata.snapshot.dir`.

    If `folder` is empty, a folder in the user's cache is used. Return None if `folder` is `none`, or if the path needs
    the user's home folder and the user has no home folder.
    """
    if folder == NO_SNAPSHOTS:
        return None
    try:
        return MetadataSnapshots(Path(folder).expanduser() if folder else user_cache_folder() / "metadata")
    except RuntimeError:  # the user has no home folder
        return None


def encode_snapshot(topics: Mapping[UUID, TopicSnapshot], key: SnapshotKey) -> bytes:
    """Return the bytes of a snapshot file for the metadata partition `key`; `topics` are the snapshots by topic id."""
    entries = [
        _ENTRY.pack(topic_id.bytes, topic.position, *topic.last_batch, len(topic.packed), key.digest(topic.packed))
        for topic_id, topic in topics.items()
    ]
    contents = b"".join(entries)
    head = _MAGIC + key.digest(contents) + _COUNT.pack(len(entries)) + contents
    return b"".join((head, *(topic.packed for topic in topics.values())))


def read_snapshot(
    file: BinaryIO, key: SnapshotKey, topic_ids: Collection[UUID] | None = None
) -> dict[UUID, TopicSnapshot]:
    """Return by topic id the snapshots in a file of the metadata partition `key`.

    Only snapshots of the topics `topic_ids` are returned; None: of all topics in the file.

    Raises:
        CorruptDataError: the file is damaged, of another version, or of another metadata partition than `key`.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    head = file.read(len(_MAGIC) + _DIGEST_BYTES + _COUNT.size)
    if size > MAX_FILE_BYTES or len(head) < len(_MAGIC) + _DIGEST_BYTES + _COUNT.size or not head.startswith(_MAGIC):
        raise CorruptDataError("it is no snapshot of this version")
    (count,) = _COUNT.unpack_from(head, len(head) - _COUNT.size)
    contents = file.read(min(count * _ENTRY.size, size))
    if len(contents) != count * _ENTRY.size or head[len(_MAGIC) : -_COUNT.size] != key.digest(contents):
        raise CorruptDataError("its contents were altered, or are cut off")
    snapshots, at = {}, len(head) + len(contents)
    for topic_id_bytes, position, base_offset, crc, section_size, digest in _ENTRY.iter_unpack(contents):
        topic_id = UUID(bytes=topic_id_bytes)
        if topic_ids is None or topic_id in topic_ids:
            file.seek(at)
            packed = file.read(min(section_size, size))
            if len(packed) != section_size or digest != key.digest(packed):
                raise CorruptDataError("a section was altered, or is cut off")
            snapshots[topic_id] = TopicSnapshot(position, LastBatch(base_offset, crc), packed)
        at += section_size
    return snapshots
