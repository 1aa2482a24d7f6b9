"""The store over HDFS, where it differs from the contract of all stores."""

from __future__ import annotations

import json
import mmap
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.rigs.stack.hdfs import Hdfs, write_site
from tests.rigs.stack.processes import free_ports
from tests.without_packages import run_without
from tiered_stream.data_limits import Limit
from tiered_stream.errors import (
    ConfigurationError,
    StorageAccessError,
    StorageBucketNotFoundError,
    StorageError,
    StorageObjectNotFoundError,
    StorageReadTimeoutError,
    StorageUnavailableError,
)
from tiered_stream.model import ByteRange
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage import hdfs_store
from tiered_stream.storage.hdfs_store import HdfsStore
from tiered_stream.storage.open_store import open_store

FIRST = ByteRange(0, 1)
DATA = bytes(range(256)) * 10_000
NO_SETTINGS = ("HADOOP_CONF_DIR", "HADOOP_HOME", "HADOOP_USER_NAME")


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NO_SETTINGS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port at which connections are made and nothing is said."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def store_at(uri: str, **options: object) -> HdfsStore:
    store = open_store(StorageOptions(uri=uri, **options))  # type: ignore[arg-type]
    assert isinstance(store, HdfsStore)
    return store


def test_a_missing_root_names_the_option(hdfs: Hdfs) -> None:
    store = store_at(f"{hdfs.uri}/no/root")
    for call in (lambda: store.get("a/b", FIRST), lambda: store.size("a"), lambda: list(store.list("a/b"))):
        with pytest.raises(StorageBucketNotFoundError, match=r"/no/root/ \(option remote\.storage\.uri\) "):
            call()


def test_a_folder_is_no_object(hdfs: Hdfs, tmp_path: Path) -> None:
    store = store_at(f"{hdfs.uri}{tmp_path}")
    store.put("folder/file", b"x")
    for call in (lambda: store.get("folder", FIRST), lambda: store.size("folder")):
        with pytest.raises(StorageObjectNotFoundError, match="folder "):
            call()
    assert list(store.list("folder/file/")) == []
    with pytest.raises(StorageError, match="/folder .*folder"):
        store.put("folder", b"x")


@pytest.mark.parametrize("key", ["../secret", "a/../../secret", "/etc/passwd", "a/./b"])
def test_a_key_that_leads_out_of_the_folder_is_refused(key: str) -> None:
    store = store_at("hdfs://127.0.0.1:1/root")
    for call in (lambda: store.get(key, FIRST), lambda: store.size(key), lambda: list(store.list(key + "/"))):
        with pytest.raises(StorageAccessError, match="out of the folder"):
            call()


def test_another_users_file_is_refused_with_the_ways_to_log_in(
    hdfs: Hdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = store_at(f"{hdfs.uri}{tmp_path}")
    own.put("folder/secret", DATA)
    java = hdfs.java.jvm.org.apache.hadoop
    mode = java.fs.permission.FsPermission("700")
    hdfs.cluster.getFileSystem().setPermission(java.fs.Path(f"{tmp_path}/folder"), mode)
    assert own.get("folder/secret", ByteRange(0, len(DATA))) == DATA
    monkeypatch.setenv("HADOOP_USER_NAME", "stranger")
    strange = store_at(f"{hdfs.uri}{tmp_path}")
    for call in (
        lambda: strange.get("folder/secret", FIRST),
        lambda: strange.size("folder/secret"),
        lambda: list(strange.list("folder/")),
        lambda: strange.put("folder/new", b""),
    ):
        with pytest.raises(StorageAccessError, match=r"folder/.*user=stranger, access=.*HADOOP_USER_NAME.*kinit"):
            call()


def test_a_file_that_is_being_written_has_the_bytes_that_its_writer_has_confirmed(hdfs: Hdfs, tmp_path: Path) -> None:
    store = store_at(f"{hdfs.uri}{tmp_path}")
    store.put("whole", DATA)
    path = hdfs.java.jvm.org.apache.hadoop.fs.Path(f"{tmp_path}/half")
    with closing(hdfs.cluster.getFileSystem().create(path)) as half:
        half.write(DATA[:1000])
        assert store.get("half", Limit("x", 1000)) == b""
    assert store.get("half", Limit("x", 1000)) == DATA[:1000]


def test_a_file_on_the_local_disk_is_written_from_its_memory_map(hdfs: Hdfs, tmp_path: Path) -> None:
    data = DATA * 2  # in more than one write, and with a remainder
    (tmp_path / "local").write_bytes(data)
    store = store_at(f"{hdfs.uri}{tmp_path}")
    with open(tmp_path / "local", "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        store.put("key", mapped)
    assert store.get("key", Limit("x", len(data))) == data


def test_a_new_file_has_the_replication_block_size_and_permission_of_the_settings(hdfs: Hdfs, tmp_path: Path) -> None:
    given = {"dfs.replication": "2", "dfs.blocksize": "2m", "fs.permissions.umask-mode": "077"}
    store_at(f"{hdfs.uri}{tmp_path}", hdfs_settings=json.dumps(given)).put("key", b"content")
    status = hdfs.cluster.getFileSystem().getFileStatus(hdfs.java.jvm.org.apache.hadoop.fs.Path(f"{tmp_path}/key"))
    assert (status.getReplication(), status.getBlockSize()) == (2, 2 << 20)
    assert status.getPermission().toString() == "rw-------"


def test_the_other_name_node_is_asked_where_the_first_is_away(hdfs: Hdfs, tmp_path: Path) -> None:
    folder = "/mounted-folder"  # in the mount table a URI may have no blank
    store_at(f"{hdfs.uri}{folder}").put("key", DATA)
    (gone,) = free_ports(1)
    write_site(tmp_path / "core-site.xml", {"fs.defaultFS": "hdfs://Both"})
    service = {
        "dfs.nameservices": "Both",
        "dfs.ha.namenodes.Both": "nn1,nn2",
        "dfs.namenode.rpc-address.Both.nn1": f"localhost:{gone}",
        "dfs.namenode.rpc-address.Both.nn2": hdfs.uri.removeprefix("hdfs://"),
    }
    write_site(tmp_path / "hdfs-site.xml", service)
    files = {"hdfs_core_site": f"{tmp_path}/core-site.xml", "hdfs_hdfs_site": f"{tmp_path}/hdfs-site.xml"}
    for root in (f"hdfs://Both{folder}", f"hdfs://{folder}"):
        assert store_at(root, **files).get("key", ByteRange(5, 2_000_000)) == DATA[5:2_000_000]
    mounts = "fs.viewfs.mounttable.all"
    view = {f"{mounts}.link./mounted": f"hdfs://Both{folder}", f"{mounts}.linkFallback": "hdfs://Both/"}
    viewed = store_at("viewfs://all/mounted", **files, hdfs_settings=json.dumps(view))
    assert viewed.size("key") == len(DATA)


def test_the_settings_in_hadoop_conf_dir_are_followed(
    hdfs: Hdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(hdfs.conf_dir))
    store = store_at(f"hdfs://{tmp_path}")
    store.put("key", b"content")
    assert store_at(f"{hdfs.uri}{tmp_path}").get("key", ByteRange(3, 7)) == b"tent"
    store.delete("key")
    store.delete("key")
    assert list(store.list("")) == []


@pytest.mark.parametrize(
    ("uri", "why"), [("hdfs:///tier", "No fs.defaultFS setting found"), ("hdfs://unknown/tier", "No NameNode hosts")]
)
def test_an_unknown_name_service_names_the_settings(uri: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{why}.*HADOOP_CONF_DIR.*remote\.storage\.hdfs\.core-site\.path"):
        store_at(uri).get("key", FIRST)


def test_a_file_of_settings_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "core-site.xml").write_text("<configuration>")
    for file in ("missing.xml", "core-site.xml"):
        with pytest.raises(ConfigurationError, match=f"{tmp_path}/{file} .*Hadoop"):
            store_at("hdfs://localhost/", hdfs_core_site=f"{tmp_path}/{file}").get("key", FIRST)


def test_a_key_table_without_its_principal_names_the_option() -> None:
    with pytest.raises(
        ConfigurationError, match=r"kerberos\.keytab .*remote\.storage\.hdfs\.auth\.kerberos\.principal"
    ):
        store_at("hdfs://localhost:1/tier", hdfs_keytab="/reader.keytab").get("key", FIRST)


def test_a_refused_connection_names_the_name_node() -> None:
    (gone,) = free_ports(1)
    with pytest.raises(StorageUnavailableError, match=rf"hdfs://localhost:{gone}/ \(option remote\.storage\.uri\) "):
        store_at(f"hdfs://localhost:{gone}/tier").get("key", FIRST)


def test_a_silent_name_node_costs_the_timeouts_and_no_more(silent_port: int) -> None:
    times = {"connect_timeout_ms": 50, "read_timeout_ms": 100, "has_fallback": True}
    store = store_at(f"hdfs://127.0.0.1:{silent_port}/tier", **times)
    for call in (lambda: store.get("key", FIRST), lambda: store.size("key")):
        with pytest.raises(StorageReadTimeoutError, match=r"kafka\.fetch\.remote\.read\.timeout\.ms, in 2"):
            call()
    limited = store_at(f"hdfs://127.0.0.1:{silent_port}/tier", request_timeout_ms=100)
    with pytest.raises(StorageReadTimeoutError, match=r"remote\.fetch\.request\.timeout\.ms, 0\.1 s"):
        list(limited.list(""))


def test_few_threads_wait_for_a_silent_name_node(silent_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs_store, "_MAX_HUNG", 3)
    before = set(threading.enumerate())
    store = store_at(f"hdfs://127.0.0.1:{silent_port}/tier", connect_timeout_ms=10, read_timeout_ms=10)
    for _ in range(3):
        with pytest.raises(StorageReadTimeoutError):
            store.get("key", FIRST)
    assert sum(thread.name == "hdfs" for thread in set(threading.enumerate()) - before) == 3


def test_an_upload_has_the_time_of_uploads_and_not_that_of_a_fetch(
    silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hdfs_store, "UPLOAD_SECONDS", 0.1)
    store = store_at(f"hdfs://127.0.0.1:{silent_port}/tier")
    with pytest.raises(StorageUnavailableError, match="/tier/key with 1 bytes"):
        store.put("key", b"x")


def test_without_the_client_the_error_names_the_extra_and_other_stores_are_read(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"content")
    program = """
from tiered_stream.errors import ConfigurationError
from tiered_stream.data_limits import Limit
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.open_store import open_store
for uri in sys.argv[1:]:
    try:
        print(open_store(StorageOptions(uri=uri)).get("key", Limit("x", 100)))
    except ConfigurationError as error:
        print(error)
"""
    done = run_without(("hdfs_native",), program, tmp_path.as_uri(), "hdfs://namenode/tier")
    assert done.stdout.splitlines() == [
        "b'content'",
        "the storage hdfs://namenode needs the package hdfs-native, which is not installed: "
        "pip install 'tiered-stream[hdfs]'",
    ], done.stderr
