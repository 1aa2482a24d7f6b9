"""The golden archives, read by the options that the plugin's broker had, and what consumers had returned of them."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from contextlib import closing
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tests.golden import NEWER, golden
from tests.rigs.stack.rows import Row
from tests.storage.golden_aiven import KEY_PREFIX, segments
from tiered_stream.locate.log_source import open_log_source
from tiered_stream.model import OffsetRange, Split, TopicPartition
from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.plan.batch import plan_batch
from tiered_stream.plan.splits import splits_for
from tiered_stream.read.split_reader import read_split

PLAIN, TRANSFORMED = "aiven-plain", "aiven-zstd-aesgcm"
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"

Rows = dict[TopicPartition, list[Row]]


def plugin(name: str) -> dict[str, str]:
    """What the broker's properties said of the plugin, but for its storage."""
    manager = {"remote.log.storage.manager.class.name": "io.aiven.kafka.tieredstorage.RemoteStorageManager"}
    if name in NEWER:
        return manager | {f"rsm.config.{key}": value for key, value in golden(name).plugin.items()}
    given = {
        **manager,
        "rsm.config.chunk.size": str(1 << 20),
        "rsm.config.key.prefix": KEY_PREFIX[name],
    }
    keys = golden(name).folder / "keys"
    if name == TRANSFORMED:
        given |= {
            "rsm.config.compression.enabled": "true",
            "rsm.config.encryption.enabled": "true",
            "rsm.config.encryption.key.pair.id": "key1",
            "rsm.config.encryption.key.pairs": "key1",
            "rsm.config.encryption.key.pairs.key1.public.key.file": str(keys / "test-only-public.pem"),
            "rsm.config.encryption.key.pairs.key1.private.key.file": str(keys / "test-only-private.pem"),
        }
    return given


def in_folder(name: str, bucket: Path | None = None) -> dict[str, str]:
    """What they said of the storage: the set's bucket, or a copy of it."""
    return {
        "rsm.config.storage.backend.class": "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage",
        "rsm.config.storage.root": str(bucket or golden(name).bucket),
    }


def archive_options(
    name: str, given: Mapping[str, str] | None = None, storage: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Everything in a golden set, or of the topics that are given."""
    reading = {"remote.log.locator": "archive", "includeHeaders": "true", "startingOffsets": "earliest"}
    if not {"subscribe", "assign"} & (given or {}).keys():
        reading["subscribePattern"] = f"{golden(name).topic_prefix}.*"
    return {**plugin(name), **(storage or in_folder(name)), **reading, **(given or {})}


def planned(given: Mapping[str, str], ranges: Mapping[TopicPartition, OffsetRange] | None = None) -> list[Split]:
    """The splits of a batch query by the options, or of the offset ranges."""
    options = parse_options(given, streaming=False)
    with closing(open_log_source(options)) as tier:
        if ranges is None:
            return plan_batch(options, tier)
        return splits_for(ranges, options, tier.locator, {})


def read_all(splits: Iterable[Split], given: Mapping[str, str]) -> Rows:
    """What executors would give of the splits, by partition, in order."""
    options: Options = parse_options(given, streaming=False)
    read: Rows = {}
    for split in splits:
        for batch in read_split(split, options):
            read.setdefault(split.topic_partition, []).extend(arrow_rows(batch))
    return read


def arrow_rows(batch: pa.RecordBatch) -> list[Row]:
    """The rows of an Arrow batch with headers, a column at a time: a row as a `dict` takes much longer."""
    names = ("partition", "offset", "timestamp", "timestampType", "key", "value")
    columns = [batch[name].cast(pa.int64()) if name == "timestamp" else batch[name] for name in names]
    keys, values = batch["headers"].flatten().flatten()
    headers = zip(keys.to_pylist(), values.to_pylist(), strict=True)
    counts = pc.list_value_length(batch["headers"]).to_pylist()  # None: without headers
    return [
        Row(partition, offset, micros // 1000, kind, key, value, tuple(islice(headers, count or 0)))
        for partition, offset, micros, kind, key, value, count in zip(
            *(column.to_pylist() for column in columns), counts, strict=True
        )
    ]


@cache
def archive_ends(name: str, isolation: str) -> dict[TopicPartition, int]:
    """By partition, the first offset that is not tiered or, of the archive taken alone, not decided."""
    ends: dict[TopicPartition, int] = {}
    for segment in segments(name):
        partition = segment.topic_partition
        ends[partition] = max(ends.get(partition, 0), segment.end_offset + 1)
    undecided = golden(name).manifest.get("archive_lso", {}) if isolation == COMMITTED else {}
    return {partition: undecided.get(str(partition), end) for partition, end in ends.items()}


@cache
def consumed(name: str, isolation: str) -> Rows:
    """What a consumer had returned of the archive's offsets."""
    return {
        partition: [row for row in consumed_of_cluster(name, partition, isolation) if row.offset < end]
        for partition, end in archive_ends(name, isolation).items()
    }


@cache
def consumed_of_cluster(name: str, partition: TopicPartition, isolation: str) -> list[Row]:
    """What a consumer had returned of the whole partition, the part that was not tiered included."""
    return [_row(partition.partition, *fields) for fields in golden(name).expected(partition, isolation)]


def _row(partition: int, offset: int, timestamp: int, kind: int, key: str, value: str, headers: Any) -> Row:
    pairs = tuple((name, _bytes(text)) for name, text in headers)
    return Row(partition, offset, timestamp, kind, _bytes(key), _bytes(value), pairs)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
