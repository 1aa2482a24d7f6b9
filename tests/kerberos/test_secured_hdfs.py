"""Logins at an HDFS that asks for Kerberos, and the protection of its data."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.archives import COMMITTED, PLAIN, archive_options, consumed, planned, read_all
from tests.delta.archive import LONG
from tests.kerberos.kdc import REALM
from tests.kerberos.secured_hdfs import SecuredHdfs
from tests.rigs.stack.spark import run_program
from tiered_stream.delta.commit.deltalake_commit import create_table
from tiered_stream.delta.requirements.lane import table_schema
from tiered_stream.delta.settings.ingest_settings import TableSpec, TableStorage
from tiered_stream.errors import ConfigurationError, StorageAccessError, StorageUnavailableError
from tiered_stream.model import ByteRange
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.open_store import open_store

DATA = bytes(range(256)) * 1_000
SOME = ByteRange(5, 200_000)


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


def owner(here: SecuredHdfs, folder: str, name: str = "key") -> str:
    path = here.hdfs.java.jvm.org.apache.hadoop.fs.Path(f"{folder}/{name}")
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


def test_deltalake_logs_in_by_the_tables_key_table_where_there_is_no_ticket(
    here: SecuredHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/nothing")
    folder, storage = f"/{tmp_path.name}/table", TableStorage(**here.by_keytab())
    create_table(TableSpec(f"{here.uri}{folder}", storage), table_schema(True, None), {})
    assert owner(here, folder, "_delta_log") == "reader"


@pytest.mark.parametrize("by", ["host", "address", "default file system"])
def test_a_delegation_token_logs_in_without_a_ticket(
    here: SecuredHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    here.write_token(tmp_path / "tokens")
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(tmp_path / "tokens"))
    service = {
        "host": here.uri,
        "address": here.uri.replace("localhost", "127.0.0.1"),
        "default file system": "hdfs://",
    }
    check(f"{service[by]}{tmp_path}/folder")
    assert owner(here, f"{tmp_path}/folder") == "reader"


Options = dict[str, str]


def with_tickets(here: SecuredHdfs, folder: Path, *kinit: str) -> None:
    here.kdc.kinit("reader", here.keytab, folder / "tickets", *kinit)


def garbage(_: SecuredHdfs, folder: Path) -> Options:
    (folder / "tickets").write_bytes(b"no tickets")
    return {}


def of_another(here: SecuredHdfs, folder: Path) -> Options:
    with_tickets(here, folder)
    return {"hdfs_principal": f"writer@{REALM}"}


def removed(here: SecuredHdfs, _: Path) -> Options:
    table = here.kdc.add("gone-from-hdfs")
    here.kdc.remove("gone-from-hdfs")
    return here.by_keytab("gone-from-hdfs", table)


def old(here: SecuredHdfs, _: Path) -> Options:
    table = here.kdc.add("old-in-hdfs")
    here.kdc.change_key("old-in-hdfs")
    return here.by_keytab("old-in-hdfs", table)


def expired(here: SecuredHdfs, folder: Path) -> Options:
    with_tickets(here, folder, "-l", "1s")
    time.sleep(2.5)  # the ticket ends
    return {}


def cancelled(here: SecuredHdfs, folder: Path) -> Options:
    here.write_token(folder / "tokens", cancelled=True)
    return {}


WRONG: dict[str, tuple[Callable[[SecuredHdfs, Path], Options], str]] = {
    "no ticket": (lambda *_: {}, "user of the default ticket cache: .*tickets.: get a ticket .kinit., and set KRB5CCN"),
    "a file that is no ticket cache": (garbage, "Unsupported credentials cache format .*tickets.: get a ticket .kinit"),
    "another user's ticket": (of_another, "principal 'writer@EXAMPLE.TEST': Can't find client .*get a ticket .kinit"),
    "a missing key table": (
        lambda here, folder: here.by_keytab(keytab=folder / "none"),
        "remote.storage.hdfs.auth.kerberos.keytab = '.*none' is not a file that this process can read.*--files",
    ),
    "a principal that the key table does not have": (
        lambda here, _: here.by_keytab("other"),
        "the key table .* has no key of this principal: correct remote.storage.hdfs.auth.kerberos.principal.*klist -k",
    ),
    "a principal that the KDC does not have": (
        removed,
        "principal 'gone-from-hdfs@.*the KDC knows no such user",
    ),
    "an old key": (old, "the key table has an old key: export it"),
    "an expired ticket": (expired, "could not be reached .*the ticket has expired: renew the ticket .kinit"),
    "a token that is cancelled": (
        cancelled,
        "get new delegation tokens, and put them into the file that HADOOP_TOKEN_F",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_login_says_what_to_do(
    here: SecuredHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    prepare, text = WRONG[what]
    options = prepare(here, tmp_path)
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/tickets")
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", f"{tmp_path}/tokens")
    store = open_store(StorageOptions(uri=f"{here.uri}{tmp_path}", **options))  # type: ignore[arg-type]
    for call in (lambda: store.get("key", SOME), lambda: store.put("key", DATA)):
        with pytest.raises((StorageAccessError, StorageUnavailableError, ConfigurationError), match=text):
            call()


def test_settings_without_kerberos_are_named(here: SecuredHdfs, tmp_path: Path) -> None:
    simple = json.dumps({"hadoop.security.authentication": "simple"})
    store = open_store(StorageOptions(uri=f"{here.uri}{tmp_path}", hdfs_settings=simple))
    fix = "if the name node asks for Kerberos, set hadoop.security.authentication=kerberos in core-site.xml"
    with pytest.raises(StorageUnavailableError, match=fix):
        store.size("key")


def test_a_realm_without_a_kdc_is_named(here: SecuredHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "krb5.conf").write_text("[libdefaults]\ndns_lookup_kdc = false\n")
    monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "krb5.conf"))
    store = open_store(StorageOptions(uri=f"{here.uri}{tmp_path}", **here.by_keytab()))  # type: ignore[arg-type]
    with pytest.raises(StorageAccessError, match="EXAMPLE.TEST.*: name the realm and its KDC in /etc/krb5.conf"):
        store.size("key")


READ = """
import sys
from tiered_stream.data_limits import Limit
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.open_store import open_store
try:
    print(open_store(StorageOptions(uri=sys.argv[1])).get("key", Limit("x", 10_000_000)) == bytes(range(256)) * 1_000)
except Exception as error:
    print(type(error).__name__, error)
"""


def read_in_process(uri: str, **variables: str) -> str:
    """Read the file in a process of its own, which has no connections yet. Return the line that it prints."""
    done = run_program(READ, uri, **variables)
    done.check_returncode()
    return done.stdout


def test_data_nodes_that_ask_for_sasl_are_named_with_the_setting(
    here: SecuredHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.kdc.kinit("reader", here.keytab, tmp_path / "tickets")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/tickets")
    check(f"{here.uri}{tmp_path}")
    shutil.copy(here.hdfs.conf_dir / "core-site.xml", tmp_path)

    found = read_in_process(f"{here.uri}{tmp_path}", HADOOP_CONF_DIR=str(tmp_path))

    fix = "if the data nodes ask for SASL, set dfs.data.transfer.protection as in the hdfs-site.xml of the cluster"
    assert re.match(rf"StorageUnavailableError .*all data nodes failed: 127.0.0.1:\d+; {fix}", found), found


def test_a_kdc_that_is_away_is_named_and_is_waited_for(
    here: SecuredHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(f"{here.uri}{tmp_path}", **here.by_keytab())
    kdc = here.kdc.copied(tmp_path / "kdc")
    for name, value in kdc.environment.items():
        monkeypatch.setenv(name, value)
    store = open_store(StorageOptions(uri=f"{here.uri}{tmp_path}", **here.by_keytab()))  # type: ignore[arg-type]
    with pytest.raises(StorageUnavailableError, match=r"Cannot contact any KDC.*correct krb5.conf"):
        store.get("key", SOME)
    with kdc:
        assert store.get("key", SOME) == DATA[SOME.start : SOME.end]


def test_a_golden_archive_is_read_by_the_pasted_login_of_the_plugin(here: SecuredHdfs, tmp_path: Path) -> None:
    storage = here.archive(PLAIN, LONG, str(tmp_path))
    options = archive_options(PLAIN, {"subscribe": LONG}, storage)
    wanted = {where: rows for where, rows in consumed(PLAIN, COMMITTED).items() if where.topic == LONG}
    assert read_all(planned(options), options) == wanted
