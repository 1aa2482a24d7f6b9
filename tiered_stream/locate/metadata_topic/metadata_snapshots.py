"""What the metadata topic told, kept on disk, so that the next query of the cluster need not read it all again.

One file for each metadata partition, named by a digest of whose it is (cluster, metadata topic, how many partitions,
which), in it a section for each topic that a query asked for. Numbers are big-endian:

    magic       8 bytes
    digest      32 bytes  BLAKE2b of whose it is and of the contents
    contents    of each section: topic id 16 bytes, the offset to go on from int64, the last batch before that (base
                offset int64, CRC uint32), bytes of the section uint32, its digest 32 bytes; their number uint32 before
    sections    values of records: offset int64, bytes uint32, and these bytes

A section's records add up to what is known of the topic (`ToldTopic.summary`). A file is written beside its place and
moved there: who reads it has a whole one, and of several that write, the last one's stays. Whatever is amiss costs no
more than to read a topic's records from their beginning. The folder must be the user's alone; what is in it may be
deleted at any time.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from typing import BinaryIO, NamedTuple
from uuid import UUID

from tiered_stream.errors import CorruptDataError
from tiered_stream.private_folder import is_private_and_writable, user_cache_folder

log = logging.getLogger(__name__)

MOST_FILE_BYTES = 128 << 20
MOST_FOLDER_BYTES = 1 << 30
NOWHERE = "none"

_MAGIC = b"tsrlm\0\0\1"
_DIGEST_BYTES = 32
_COUNT = Struct(">I")
_ENTRY = Struct(f">16sqqII{_DIGEST_BYTES}s")
_VALUE = Struct(">qI")
_SUFFIX = ".snapshot"

OffsetValue = tuple[int, bytes]


class LastBatch(NamedTuple):
    """By which a metadata partition is known again: the base offset and the CRC of the last batch that was read."""

    base_offset: int
    crc: int


@dataclass(frozen=True, slots=True)
class KeptTopic:
    """What one metadata partition told of one topic, up to `position`."""

    position: int
    last_batch: LastBatch
    packed: bytes

    @classmethod
    def of(cls, position: int, last_batch: LastBatch, values: Iterable[OffsetValue]) -> KeptTopic:
        packed = b"".join(piece for offset, value in values for piece in (_VALUE.pack(offset, len(value)), value))
        return cls(position, last_batch, packed)

    def values(self) -> Iterator[OffsetValue]:
        """The records' offsets and values. Raises CorruptDataError: they do not have their format."""
        data, at = self.packed, 0
        while at < len(data):
            if at + _VALUE.size > len(data):
                raise CorruptDataError("a kept record is cut off")
            offset, size = _VALUE.unpack_from(data, at)
            at += _VALUE.size
            if offset < 0 or size > len(data) - at:
                raise CorruptDataError("a kept record is cut off")
            yield offset, data[at : at + size]
            at += size


@dataclass(frozen=True, slots=True)
class Whose:
    """Of which metadata partition of which cluster a file is."""

    cluster_id: str
    metadata_topic_id: UUID
    partition_count: int
    partition: int

    def digest(self, data: bytes) -> bytes:
        """Of data that is this one's."""
        named = repr((self.cluster_id, self.metadata_topic_id.hex, self.partition_count, self.partition))
        return blake2b(len(named).to_bytes(4, "big") + named.encode() + data, digest_size=_DIGEST_BYTES).digest()


class MetadataSnapshots:
    """The files of one folder. What cannot be read or written is as if it were not there: nothing is raised."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, whose: Whose, topic_ids: Collection[UUID] | None = None) -> dict[UUID, KeptTopic]:
        """What is kept of the topics; None: of all."""
        if not (self._folder.exists() and is_private_and_writable(self._folder)):
            return {}
        try:
            with open(self._path(whose), "rb") as file:
                return read_snapshot(file, whose, topic_ids)
        except FileNotFoundError:
            return {}
        except (OSError, CorruptDataError) as error:
            log.warning("%s is not used, the metadata topic is read from its beginning: %s", self._path(whose), error)
            return {}

    def save(self, whose: Whose, topics: Mapping[UUID, KeptTopic]) -> None:
        """Keep this of the topics, and of others what is kept already, where there is room."""
        data = pack({**self.load(whose), **topics}, whose)
        if len(data) > MOST_FILE_BYTES:
            data = pack(topics, whose)
        if len(data) > MOST_FILE_BYTES or not is_private_and_writable(self._folder):
            return
        try:
            handle, name = tempfile.mkstemp(_SUFFIX, dir=self._folder)  # readable by the user alone
            try:
                with open(handle, "wb") as file:
                    file.write(data)
                os.replace(name, self._path(whose))
            except BaseException:
                os.unlink(name)
                raise
        except OSError as error:
            log.warning("what the metadata topic told is not kept in %s: %s", self._folder, error)
        self._tidy()

    def _tidy(self) -> None:
        """Delete the files that were not written for longest, until the others have `MOST_FOLDER_BYTES` together."""
        room = MOST_FOLDER_BYTES
        with suppress(OSError):  # another process may be at it
            ours = [Path(entry.path) for entry in os.scandir(self._folder) if entry.name.endswith(_SUFFIX)]
            for path in sorted(ours, key=lambda path: path.stat().st_mtime, reverse=True):
                room -= path.stat().st_size
                if room < 0:
                    path.unlink()

    def _path(self, whose: Whose) -> Path:
        return self._folder / (whose.digest(b"")[:16].hex() + _SUFFIX)


def open_snapshots(folder: str) -> MetadataSnapshots | None:
    """Those of the option `remote.log.metadata.snapshot.dir`, empty for the user's cache; None: none are kept."""
    if folder == NOWHERE:
        return None
    try:
        return MetadataSnapshots(Path(folder).expanduser() if folder else user_cache_folder() / "metadata")
    except RuntimeError:  # a user without a home folder
        return None


def pack(topics: Mapping[UUID, KeptTopic], whose: Whose) -> bytes:
    """A file's bytes."""
    entries = [
        _ENTRY.pack(topic_id.bytes, kept.position, *kept.last_batch, len(kept.packed), whose.digest(kept.packed))
        for topic_id, kept in topics.items()
    ]
    contents = b"".join(entries)
    head = _MAGIC + whose.digest(contents) + _COUNT.pack(len(entries)) + contents
    return b"".join((head, *(kept.packed for kept in topics.values())))


def read_snapshot(file: BinaryIO, whose: Whose, topic_ids: Collection[UUID] | None = None) -> dict[UUID, KeptTopic]:
    """What a file keeps of the topics (None: of all). Raises CorruptDataError: it is not the file that it should be."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    head = file.read(len(_MAGIC) + _DIGEST_BYTES + _COUNT.size)
    if size > MOST_FILE_BYTES or len(head) < len(_MAGIC) + _DIGEST_BYTES + _COUNT.size or not head.startswith(_MAGIC):
        raise CorruptDataError("it is no snapshot of this version")
    (count,) = _COUNT.unpack_from(head, len(head) - _COUNT.size)
    contents = file.read(min(count * _ENTRY.size, size))
    if len(contents) != count * _ENTRY.size or head[len(_MAGIC) : -_COUNT.size] != whose.digest(contents):
        raise CorruptDataError("its contents were altered, or are cut off")
    found, at = {}, len(head) + len(contents)
    for topic_id_bytes, position, base_offset, crc, section_size, digest in _ENTRY.iter_unpack(contents):
        topic_id = UUID(bytes=topic_id_bytes)
        if topic_ids is None or topic_id in topic_ids:
            file.seek(at)
            packed = file.read(min(section_size, size))
            if len(packed) != section_size or digest != whose.digest(packed):
                raise CorruptDataError("a section was altered, or is cut off")
            found[topic_id] = KeptTopic(position, LastBatch(base_offset, crc), packed)
        at += section_size
    return found
