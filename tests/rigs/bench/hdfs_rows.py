"""How fast a topic gets out of HDFS into Spark's noop sink, and out of HDFS into a table there, beside a folder.

One name node and one data node in one JVM share the cores; their core seconds are told apart.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from uuid import uuid4

from tests.rigs.bench.batch_reads import noop
from tests.rigs.bench.figures import Row
from tests.rigs.bench.landing import DIRECT, lane_into
from tests.rigs.bench.rig import Rig
from tests.rigs.bench.shapes import Shape
from tests.rigs.bench.turns import Claim, Contender, rows_of
from tests.rigs.stack.hdfs import Hdfs
from tiered_stream.delta.commit.deltalake_commit import open_table
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.hdfs_store import HdfsStore
from tiered_stream.storage.open_store import open_store

IN_HDFS, IN_FOLDER = "HDFS", "a folder"


def measure(rig: Rig, runs: int) -> Iterator[Row]:
    """A row for each sink."""
    shape = rig.topic("A")
    with Hdfs(rig.folder / "hdfs", {"dfs.blocksize": str(128 << 20)}, jvm_options=()) as hdfs:
        store = open_store(StorageOptions(uri=f"{hdfs.uri}/tier"))
        assert isinstance(store, HdfsStore)
        rig.copy_tier(shape, store.put)
        sides = {IN_HDFS: (f"{hdfs.uri}/tier", hdfs.uri), IN_FOLDER: (rig.stack.tier_dir.as_uri(), str(rig.folder))}
        options = {side: {**rig.options(shape), "remote.storage.uri": tier} for side, (tier, _) in sides.items()}
        settle = partial(rig.settle, shape)
        reads = {side: noop(rig, shape, "tiered_stream", options[side]) for side in sides}
        yield from rows_of([Claim("A noop", IN_HDFS, IN_FOLDER, 0.9, 1)], reads, runs)
        landings = {
            side: Contender(partial(_landed, rig, shape, root, options[side]), shape.rows, settle)
            for side, (_, root) in sides.items()
        }
        yield from rows_of([Claim("H A", IN_HDFS, IN_FOLDER, 0.9, 1)], landings, runs)


def _landed(rig: Rig, shape: Shape, root: str, options: Mapping[str, str]) -> float:
    """Land the topic in a new table below `root`, and return the seconds; the checkpoint is in a folder."""
    name = f"hdfs-{uuid4()}"
    begin = time.perf_counter()
    lane_into(rig, shape, DIRECT, options)(f"{root}/{name}", rig.folder / f"checkpoint-{name}").awaitTermination()
    seconds = time.perf_counter() - begin
    uri = f"{root}/{name}" if "://" in root else Path(root, name).as_uri()
    table = open_table(TableSpec(uri))
    assert table is not None
    rows = sum(table.get_add_actions(flatten=True)["num_records"].to_pylist())
    assert rows == shape.rows, f"{rows} records in the table, not {shape.rows}"
    return seconds
