"""Golden tiered data: what brokers wrote through the Aiven plugin, and what consumers then returned.

The archives next to this file hold, each under a folder of the archive's name: `bucket/` (the objects under their
keys), `remote_log_metadata.jsonl` (every record of `__remote_log_metadata`, five partitions),
`expected/TOPIC-PARTITION.ISOLATION.jsonl.gz` (rows `[offset, timestamp ms, timestamp type, key, value, headers]`, bytes
as base64, headers as `[[name, value]]`) and `manifest.json`.

Kafka 4.1.1 and plugin 1.0.0 wrote `aiven-plain`, which is neither compressed nor encrypted, and `aiven-zstd-aesgcm`,
which is both. Kafka 4.3.1 and plugin 1.2.0-SNAPSHOT wrote the two `NEWER` sets, each in three `phases` with other
settings of the plugin. `aiven-key-rotation` has two key pairs. `aiven-masked-custom` has a key prefix without a slash
at its end, chunks of three sizes, and custom metadata that says in two phases alone where objects are. `deleted_below`
says where DeleteRecords moved the log start: an archive still has the records of that segment that are below it.
"""

from __future__ import annotations

import base64
import gzip
import json
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

NAMES = ("aiven-plain", "aiven-zstd-aesgcm")
ROTATION, MASKED = NEWER = ("aiven-key-rotation", "aiven-masked-custom")

_FOLDER = Path(__file__).parent
STORES = _FOLDER / "stores"
"""Java's key and trust stores; its README says how they were made."""


@dataclass(frozen=True)
class GoldenSet:
    """One archive, unpacked into `folder`."""

    name: str
    folder: Path

    @property
    def bucket(self) -> Path:
        return self.folder / "bucket"

    def objects(self) -> Iterator[tuple[str, bytes]]:
        """Return the key and the content of each object in the bucket."""
        for path in sorted(self.bucket.rglob("*")):
            if path.is_file():
                yield path.relative_to(self.bucket).as_posix(), path.read_bytes()

    @property
    def topic_prefix(self) -> str:
        """What the names of the topics in the bucket begin with, as `s32-`."""
        return {ROTATION: "kr-", MASKED: "mc-"}.get(self.name) or f"s{self.manifest['seed']}-"

    @property
    def plugin(self) -> dict[str, str]:
        """The plugin's properties in the last phase of a newer set, without its storage; key files are absolute."""
        last = {name: value for name, value in self.manifest["phases"][-1].items() if not name.startswith("storage.")}
        return {name: str(self.folder / value) if name.endswith(".key.file") else value for name, value in last.items()}

    @property
    def manifest(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.folder / "manifest.json").read_text())
        return loaded

    def remote_log_metadata(self) -> list[tuple[int, int, bytes]]:
        """(metadata partition, offset, value) of every record."""
        lines = (self.folder / "remote_log_metadata.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        return [(record["partition"], record["offset"], base64.b64decode(record["value"])) for record in records]

    def expected(self, topic_partition: object, isolation: str) -> list[list[Any]]:
        """The rows that a consumer returned of a whole partition; `topic_partition` as `s32-txn-0`."""
        with gzip.open(self.folder / "expected" / f"{topic_partition}.{isolation}.jsonl.gz", "rt") as lines:
            return [json.loads(line) for line in lines]


@lru_cache
def golden(name: str) -> GoldenSet:
    """The set `name`, unpacked once for the whole test run."""
    folder = tempfile.TemporaryDirectory(prefix="golden-")
    _unpacked.append(folder)
    with tarfile.open(_FOLDER / f"{name}.tar.gz") as archive:
        # As `filter="data"`, which 3.11.2, Debian 12's, does not know yet.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder.name)
    return GoldenSet(name, Path(folder.name) / name)


_unpacked: list[tempfile.TemporaryDirectory[str]] = []  # removed when the interpreter ends
