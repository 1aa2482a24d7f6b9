"""HDFS that asks for a Kerberos login: its settings, and a KDC with its principals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.golden import golden
from tests.kerberos.kdc import REALM, Kdc, running
from tests.rigs.stack.hdfs import Hdfs
from tests.rigs.stack.java import SHORT_LIVED_JVM
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.hdfs_store import HdfsStore
from tiered_stream.storage.open_store import open_store

if TYPE_CHECKING:
    import pytest

NODES = "hdfs/localhost"
"""Principal of the name node and the data nodes, whose user `hdfs` is the superuser."""
_WEB = "HTTP/localhost"
_LOGINS = ("KRB5CCNAME", "KRB5_CLIENT_KTNAME", "HADOOP_TOKEN_FILE_LOCATION", "HADOOP_USER_NAME", "HADOOP_HOME")


@dataclass(frozen=True)
class SecuredHdfs:
    """HDFS with a root that everyone can write to. The KDC has the principal `user`, with a key table."""

    kdc: Kdc
    hdfs: Hdfs
    keytab: Path
    user: str = "reader"

    @property
    def uri(self) -> str:
        return self.hdfs.uri

    @property
    def environment(self) -> dict[str, str]:
        """Variables of programs that use this file system. They have no ticket."""
        return {**self.kdc.environment, "HADOOP_CONF_DIR": str(self.hdfs.conf_dir)}

    def use(self, patch: pytest.MonkeyPatch) -> None:
        """Let this process use this file system. It has no ticket."""
        for name in _LOGINS:
            patch.setenv(name, "")  # so that a value which comes later is gone after the test
            patch.delenv(name)
        for name, value in self.environment.items():
            patch.setenv(name, value)

    def by_keytab(self, principal: str | None = None, keytab: Path | None = None) -> dict[str, str]:
        """Return the storage options for a login by a key table."""
        return {"hdfs_principal": f"{principal or self.user}@{REALM}", "hdfs_keytab": str(keytab or self.keytab)}

    @property
    def login(self) -> dict[str, str]:
        """Properties for a login by the key table, without their prefix `storage.hdfs.`."""
        return {"auth.kerberos.principal": f"{self.user}@{REALM}", "auth.kerberos.keytab": str(self.keytab)}

    def archive(self, name: str, topic: str, folder: str) -> dict[str, str]:
        """Put a topic of a golden archive into a folder, and return the plugin's properties for its storage."""
        store = open_store(StorageOptions(uri=f"{self.uri}{folder}", **self.by_keytab()))  # type: ignore[arg-type]
        assert isinstance(store, HdfsStore)
        bucket = golden(name).bucket
        for path in bucket.glob(f"*/{topic}-*/**/*"):
            if path.is_file():
                store.put(path.relative_to(bucket).as_posix(), path.read_bytes())
        files = {f"{each}.path": f"{self.hdfs.conf_dir}/{each}.xml" for each in ("core-site", "hdfs-site")}
        properties = {**self.login, **files, "root": folder, "auth.enabled": "true"}
        backend = "io.aiven.kafka.tieredstorage.storage.hdfs.HdfsStorage"
        own = {f"rsm.config.storage.hdfs.{each}": value for each, value in properties.items()}
        return {"rsm.config.storage.backend.class": backend, **own}

    def write_token(self, file: Path, *, cancelled: bool = False) -> None:
        """Write a delegation token of `reader` into `file`, for `HADOOP_TOKEN_FILE_LOCATION`."""
        hadoop = self.hdfs.java.jvm.org.apache.hadoop
        cache = file.with_name(f"{file.name}.tickets")
        self.kdc.kinit("reader", self.keytab, cache)
        conf = hadoop.conf.Configuration(self.hdfs.cluster.getConfiguration(0))
        conf.set("hadoop.security.kerberos.ticket.cache.path", str(cache))
        files = hadoop.fs.FileSystem.newInstance(self.hdfs.cluster.getURI(), conf, "reader")
        try:
            credentials = hadoop.security.Credentials()
            token = files.getDelegationToken("reader")
            credentials.addToken(token.getService(), token)
            credentials.writeTokenStorageFile(hadoop.fs.Path(f"file:{file}"), conf)
            if cancelled:
                files.getClient().getNamenode().cancelDelegationToken(token)
        finally:
            files.close()


def settings(nodes: Path, web: Path) -> dict[str, str]:
    """Return Hadoop's settings for nodes whose principals have the key tables `nodes` and `web`."""
    principal, spnego = f"{NODES}@{REALM}", f"{_WEB}@{REALM}"
    return {
        "hadoop.security.authentication": "kerberos",
        "hadoop.security.authorization": "true",
        "dfs.block.access.token.enable": "true",
        "dfs.namenode.kerberos.principal": principal,
        "dfs.namenode.keytab.file": str(nodes),
        "dfs.datanode.kerberos.principal": principal,
        "dfs.datanode.keytab.file": str(nodes),
        "dfs.web.authentication.kerberos.principal": spnego,
        "dfs.web.authentication.kerberos.keytab": str(web),
        "dfs.data.transfer.protection": "integrity",
        # Hadoop accepts data nodes at ports above 1024 only with HTTPS, whose key stores no test needs.
        "ignore.secure.ports.for.testing": "true",
    }


@contextmanager
def started(folder: Path, more: Mapping[str, str] | None = None, data_nodes: int = 1) -> Iterator[SecuredHdfs]:
    """Start a KDC and HDFS. `more` are more of Hadoop's settings."""
    with running(folder / "kdc") as kdc, hdfs_of(kdc, kdc.add("reader"), folder, more, data_nodes) as here:
        yield here


@contextmanager
def hdfs_of(
    kdc: Kdc, keytab: Path, folder: Path, more: Mapping[str, str] | None = None, data_nodes: int = 1
) -> Iterator[SecuredHdfs]:
    """Start HDFS in the realm of a KDC that has none yet. `keytab` is the key table of the principal `reader`."""
    own = settings(kdc.add(NODES), kdc.add(_WEB))
    hdfs = Hdfs(
        folder / "hdfs",
        {**own, **(more or {})},
        data_nodes,
        [*SHORT_LIVED_JVM, f"-Djava.security.krb5.conf={kdc.config}"],
    )
    with hdfs:
        java = hdfs.java.jvm.org.apache.hadoop.fs
        hdfs.cluster.getFileSystem().setPermission(java.Path("/"), java.permission.FsPermission("777"))
        yield SecuredHdfs(kdc, hdfs, keytab)
