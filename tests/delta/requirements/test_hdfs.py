"""Access of tasks to HDFS by the session's settings."""

from __future__ import annotations

import json

from tests.delta.requirements.made_hadoop import made_hadoop
from tests.without_packages import run_without
from tiered_stream.delta.requirements.store_access import HdfsStore
from tiered_stream.delta.settings.ingest_settings import TableStorage, table_storage

GIVEN = {
    "fs.defaultFS": "hdfs://Both",
    "dfs.ha.namenodes.Both": "nn1,nn2",
    "dfs.namenode.rpc-address.Both.nn1": "one:8020",
    "dfs.namenode.rpc-address.Both.nn2": "two:8020",
    "dfs.client.failover.proxy.provider.Both": "ConfiguredFailoverProxyProvider",
    "dfs.client.failover.random.order": "true",
    "dfs.client.failover.resolve-needed.Both": "true",
    "dfs.client.block.write.replace-datanode-on-failure.policy": "NEVER",
    "dfs.client.use.datanode.hostname": "true",
    "dfs.data.transfer.protection": "privacy",
    "hadoop.security.authentication": "kerberos",
    "hadoop.security.key.provider.path": "kms://https@keys:9600/kms",
    "dfs.replication": "2",
    "dfs.blocksize": "64m",
    "fs.permissions.umask-mode": "027",
}
OTHERS = {"dfs.client.failover.max.attempts": "15", "fs.s3a.secret.key": "not-for-hdfs"}


def session(given: dict[str, str]) -> HdfsStore:
    return HdfsStore(made_hadoop(given), "hdfs://Both/t")


def test_tasks_get_the_settings_that_the_client_follows_and_no_others() -> None:
    storage, why_not = session(GIVEN | OTHERS).find(TableStorage())
    assert why_not is None
    assert json.loads(storage.hdfs_settings or "") == GIVEN


def test_a_umask_that_tasks_cannot_follow_leaves_the_table_to_the_spark_lane() -> None:
    assert session(GIVEN | {"fs.permissions.umask-mode": "u=rwx,g=,o="}).find(TableStorage())[1] == (
        "fs.permissions.umask-mode = 'u=rwx,g=,o=' cannot be followed: write an octal number such as 027"
    )


def test_the_jobs_own_files_and_login_stay() -> None:
    own = {"core-site.path": "/c.xml", "auth.kerberos.principal": "me@R", "auth.kerberos.keytab": "/k"}
    storage, _ = session(GIVEN).find(
        table_storage({f"ingest.storage.hdfs.{name}": value for name, value in own.items()})
    )
    assert (storage.hdfs_core_site, storage.hdfs_principal, storage.hdfs_keytab) == ("/c.xml", "me@R", "/k")


def test_without_the_client_the_table_is_left_to_the_spark_lane() -> None:
    program = """
from tests.delta.requirements.test_hdfs import TableStorage, session
print(session({}).find(TableStorage())[1])
"""
    done = run_without(("hdfs_native",), program)
    assert done.stdout == (
        "tasks write to HDFS by hdfs-native, which is not installed: pip install 'tiered-stream[hdfs]'\n"
    ), done.stderr
