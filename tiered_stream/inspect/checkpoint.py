"""How far a streaming query has come: the last micro-batch that its checkpoint says is committed.

Spark writes a batch's end offsets as `offsets/N` before it runs, and `commits/N` when it is done (`OffsetSeqLog`,
`CommitLog`). A file of the former has a line with its version, one with metadata, and one for each source: its
offset as JSON, or `-`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import orjson
from pyarrow import fs

from tiered_stream.delta.file_systems import open_folder, uri_of
from tiered_stream.delta.ingest_settings import TableStorage
from tiered_stream.errors import ConfigurationError, CorruptDataError, StorageError, UnsupportedDataError, naming
from tiered_stream.model import TopicPartition
from tiered_stream.options.offset_json import offsets_from_dict

_MOST_BYTES = 64 << 20
_VERSION = "v1"
_FIRST_SOURCE = 2


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A query's last committed micro-batch, and the next offset to read of each partition."""

    batch_id: int
    offsets: dict[TopicPartition, int]


def committed_batch(checkpoint: str, storage: TableStorage) -> CommittedBatch:
    """What the checkpoint says; `checkpoint` is a folder's path, `file:///folder` or `s3a://bucket/prefix`.

    Raises:
        ConfigurationError: there is no such checkpoint, nothing is committed, or the query reads no topic.
        StorageError: the folder cannot be read.
        CorruptDataError, UnsupportedDataError: a file is not what Spark writes, or of another version.
    """
    uri = uri_of(checkpoint) or Path(checkpoint).absolute().as_uri()
    if urlsplit(uri).scheme not in ("file", "s3"):
        raise ConfigurationError(f"the checkpoint {checkpoint}: it must be in a local folder, or in S3 (s3a://…)")
    with _errors(checkpoint):
        folder = open_folder(uri, storage)
        listed = folder.get_file_info(fs.FileSelector("commits", allow_not_found=True))
        batches = [int(each.base_name) for each in listed if each.base_name.isdecimal()]
        if not batches:
            raise ConfigurationError(
                f"the checkpoint {checkpoint}: no micro-batch is committed there; is it a query's checkpointLocation?"
            )
        text = _read(folder, f"offsets/{max(batches)}")
    with naming(f"the checkpoint {checkpoint}, offsets/{max(batches)}"):
        offsets = _offsets(text)
    if not offsets:
        raise ConfigurationError(f"the checkpoint {checkpoint} is of a query that reads no Kafka topic")
    return CommittedBatch(max(batches), offsets)


def _read(folder: fs.FileSystem, name: str) -> bytes:
    info = folder.get_file_info(name)
    if info.type is not fs.FileType.File or info.size > _MOST_BYTES:
        raise CorruptDataError(f"{name} is missing, or has more than {_MOST_BYTES} bytes")
    with folder.open_input_stream(name) as stream:
        return bytes(stream.read(_MOST_BYTES))


def _offsets(text: bytes) -> dict[TopicPartition, int]:
    """Those of all sources that read topics; where two read one partition, of the one that is behind."""
    lines = text.decode(errors="replace").splitlines()
    if not lines or lines[0] != _VERSION:
        raise UnsupportedDataError(f"its version is {lines[0] if lines else ''!r:.20}; known here is {_VERSION}")
    found: dict[TopicPartition, int] = {}
    for line in lines[_FIRST_SOURCE:]:
        for partition, offset in _of_source(line).items():
            found[partition] = min(offset, found.get(partition, offset))
    return found


def _of_source(line: str) -> dict[TopicPartition, int]:
    """What a source has read up to; nothing where it does not read topics."""
    try:
        return offsets_from_dict(orjson.loads(line))
    except (orjson.JSONDecodeError, ConfigurationError):
        return {}


@contextmanager
def _errors(checkpoint: str) -> Iterator[None]:
    try:
        yield
    except CorruptDataError as error:
        raise CorruptDataError(f"the checkpoint {checkpoint}: {error}") from error
    except OSError as error:
        mend = (
            ""
            if "://" not in checkpoint
            else (". How to reach it: ingest.storage.*, or --properties-file with Spark's own settings")
        )
        raise StorageError(f"the checkpoint {checkpoint} cannot be read: {error}{mend}") from error
