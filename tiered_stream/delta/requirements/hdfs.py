"""Access of tasks to a table's folder in HDFS, from the session's Hadoop settings.

Tasks find Kerberos tickets and delegation tokens as Spark's executors do (`HADOOP_TOKEN_FILE_LOCATION`, `KRB5CCNAME`).
"""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import orjson

from tiered_stream.delta.requirements.hadoop_settings import NotForTasksError, SessionStore
from tiered_stream.delta.settings.ingest_settings import TableStorage
from tiered_stream.errors import ConfigurationError
from tiered_stream.storage.hadoop.client_settings import BLOCK_SIZE, REPLICATION, UMASK, hadoop_settings_of, new_files

_PREFIXES = (
    "dfs.ha.namenodes.", "dfs.namenode.rpc-address.", "dfs.client.failover.resolve", "dfs.client.failover.random.",
    "dfs.client.failover.proxy.", "dfs.client.block.write.replace-datanode-on-failure.",
)  # fmt: skip
_NAMES = (
    "fs.defaultFS", "dfs.data.transfer.protection", "dfs.client.use.datanode.hostname",
    "hadoop.security.authentication", "hadoop.security.key.provider.path", REPLICATION, BLOCK_SIZE, UMASK,
)  # fmt: skip
"""Settings that hdfs-native follows, as its README lists them, and settings that `new_files` reads for new files."""


class HdfsStore(SessionStore):
    """File system in HDFS."""

    connector = "org.apache.hadoop.hdfs.DistributedFileSystem"

    def access(self, own: TableStorage) -> TableStorage:
        if find_spec("hdfs_native") is None:
            raise NotForTasksError(
                "tasks write to HDFS by hdfs-native, which is not installed: pip install 'tiered-stream[hdfs]'"
            )
        names = (*_NAMES, *(prefix + name for prefix in _PREFIXES for name in self.hadoop.names_after(prefix)))
        values = {name: value for name in names if (value := self.hadoop.get(name))}
        storage = replace(own, hdfs_settings=own.hdfs_settings or orjson.dumps(values).decode())
        try:
            new_files(hadoop_settings_of(storage.at(self.uri)))
        except ConfigurationError as error:
            raise NotForTasksError(str(error)) from None
        return storage
