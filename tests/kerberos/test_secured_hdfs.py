"""Logins at an HDFS that asks for Kerberos, and the protection of its data."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kerberos.kdc import REALM
from tests.kerberos.secured_hdfs import SecuredHdfs
from tiered_stream.model import ByteRange
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.open_store import open_store

DATA = bytes(range(256)) * 10_000
SOME = ByteRange(5, 2_000_000)


@pytest.fixture
def here(secured_hdfs: SecuredHdfs, monkeypatch: pytest.MonkeyPatch) -> SecuredHdfs:
    """The file system, with nobody logged in."""
    secured_hdfs.use(monkeypatch)
    return secured_hdfs


def check(uri: str, **options: str) -> None:
    """Write a file as the user that is logged in, and read it."""
    store = open_store(StorageOptions(uri=uri, **options))  # type: ignore[arg-type]
    store.put("key", DATA)
    assert store.get("key", SOME) == DATA[SOME.start : SOME.end]
    assert list(store.list("")) == ["key"]


def owner(here: SecuredHdfs, folder: str) -> str:
    path = here.hdfs.java.jvm.org.apache.hadoop.fs.Path(f"{folder}/key")
    return str(here.hdfs.cluster.getFileSystem().getFileStatus(path).getOwner())


@pytest.mark.parametrize("name", ["reader", f"reader@{REALM}"])
def test_the_ticket_cache_logs_in(
    here: SecuredHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    here.kdc.kinit("reader", here.keytab, tmp_path / "tickets")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/tickets")
    check(f"{here.uri}{tmp_path}/default")
    check(f"{here.uri}{tmp_path}/named", hdfs_principal=name)
    assert {owner(here, f"{tmp_path}/{folder}") for folder in ("default", "named")} == {"reader"}


def test_a_key_table_logs_in_where_another_user_has_the_ticket(
    here: SecuredHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.kdc.kinit("writer", here.kdc.add("writer"), tmp_path / "tickets")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/tickets")
    check(f"{here.uri}{tmp_path}/by-keytab", **here.by_keytab())
    check(f"{here.uri}{tmp_path}/by-ticket")
    assert [owner(here, f"{tmp_path}/{folder}") for folder in ("by-keytab", "by-ticket")] == ["reader", "writer"]
