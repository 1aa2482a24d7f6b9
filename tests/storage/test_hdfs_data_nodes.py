"""Data nodes of HDFS that die while a file is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rigs.stack.hdfs import BLOCK_BYTES, Hdfs
from tiered_stream.errors import StorageUnavailableError
from tiered_stream.model import ByteRange
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.hdfs_store import HdfsStore
from tiered_stream.storage.open_store import open_store

pytestmark = [pytest.mark.stack, pytest.mark.slow]

DATA = bytes(range(251)) * (4 * BLOCK_BYTES // 251)
STEP = BLOCK_BYTES // 3


def test_data_nodes_that_die_between_ranges_cost_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "HADOOP_HOME", "HADOOP_USER_NAME"):
        monkeypatch.delenv(name, raising=False)
    with Hdfs(tmp_path / "hdfs", {"dfs.replication": "2"}, data_nodes=2) as hdfs:
        store = open_store(StorageOptions(uri=f"{hdfs.uri}/folder"))
        assert isinstance(store, HdfsStore)
        store.put("key", DATA)
        for node in range(2):  # one of them is the node that a client asks first
            stopped, read = None, b""
            while len(read) < len(DATA):
                read += store.get("key", ByteRange(len(read), min(len(read) + STEP, len(DATA))))
                if stopped is None and len(read) > BLOCK_BYTES:
                    stopped = hdfs.cluster.stopDataNode(node)
            assert read == DATA
            assert hdfs.cluster.restartDataNode(stopped, True)
            hdfs.cluster.waitActive()
        for _ in range(2):
            hdfs.cluster.stopDataNode(0)
        with pytest.raises(StorageUnavailableError, match=r"data nodes .*127\.0\.0\.1:\d+, 127\.0\.0\.1:\d+"):
            store.get("key", ByteRange(0, len(DATA)))
