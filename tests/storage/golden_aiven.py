"""Fetchers over the golden buckets, and the segments in them."""

from __future__ import annotations

import json
import shutil
from functools import lru_cache
from pathlib import Path

from tests.golden import MASKED, NEWER, ROTATION, golden
from tiered_stream.model import RemoteLogSegment
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.aiven.aiven_fetcher import AivenLayoutFetcher, main_path
from tiered_stream.storage.aiven.manifest import SegmentManifest, parse_manifest
from tiered_stream.storage.fetcher import RemoteStorageFetcher
from tiered_stream.storage.open_fetcher import open_fetcher

KEY_PREFIX = {
    "aiven-plain": "plain/", "aiven-zstd-aesgcm": "encz/", ROTATION: "enc/", MASKED: "masked.prefix/v1-"
}  # fmt: skip


def options(name: str, bucket: Path | None = None, **others: object) -> StorageOptions:
    """The options that lead to the golden set `name`, or to a copy of its bucket."""
    folder = golden(name).folder
    rsm_config = {
        "key.prefix": KEY_PREFIX[name],
        "encryption.key.pairs": "key1",
        "encryption.key.pairs.key1.private.key.file": str(folder / "keys" / "test-only-private.pem"),
    }
    if name == "aiven-plain":
        rsm_config = {"key.prefix": KEY_PREFIX[name]}
    if name in NEWER:
        rsm_config = {key.lower(): value for key, value in golden(name).plugin.items()}  # as options come
    fields = {"uri": (bucket or folder / "bucket").as_uri(), "layout": "aiven", "rsm_config": rsm_config}
    return StorageOptions(**(fields | others))  # type: ignore[arg-type]


def fetcher(name: str, bucket: Path | None = None) -> RemoteStorageFetcher:
    opened = open_fetcher(options(name, bucket))
    assert isinstance(opened, AivenLayoutFetcher)
    return opened


@lru_cache
def manifests(name: str) -> dict[str, SegmentManifest]:
    """By key without prefix and suffix, every manifest in the set's bucket."""
    bucket = golden(name).bucket
    paths = sorted(bucket.rglob("*.rsm-manifest"))
    return {
        path.relative_to(bucket).with_suffix("").as_posix().removeprefix(KEY_PREFIX[name]): parse_manifest(
            path.read_bytes(), path.name
        )
        for path in paths
    }


def segments(name: str) -> list[RemoteLogSegment]:
    return [manifest.segment for manifest in manifests(name).values() if manifest.segment is not None]


def big_segment(name: str) -> RemoteLogSegment:
    """The first of the two segments that have several chunks."""
    return next(segment for segment in segments(name) if segment.topic_partition.topic.endswith("-big"))


def copied(name: str, segment: RemoteLogSegment, folder: Path) -> Path:
    """`folder`, made a bucket that holds a copy of this one segment."""
    source = golden(name).bucket / KEY_PREFIX[name] / main_path(segment)
    target = folder / KEY_PREFIX[name] / main_path(segment)
    target.parent.mkdir(parents=True, exist_ok=True)
    for suffix in (".log", ".indexes", ".rsm-manifest"):
        shutil.copy(source.with_suffix(suffix), target.with_suffix(suffix))
    return folder


def rewritten(bucket: Path, change: dict[str, object]) -> None:
    """Change fields of the one manifest in `bucket`, a `chunkIndex` field by field."""
    (path,) = bucket.rglob("*.rsm-manifest")
    manifest = json.loads(path.read_text())
    chunk_index = manifest["chunkIndex"] | change.pop("chunkIndex", {})
    path.write_text(json.dumps(manifest | change | {"chunkIndex": chunk_index}))
