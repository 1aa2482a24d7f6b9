"""Hadoop's settings for the client of HDFS."""

from __future__ import annotations

from pathlib import Path

import hdfs_native
import pytest

from tests.rigs.stack.hdfs import write_site
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.cloud_endpoints import SEGMENTS
from tiered_stream.storage.hadoop.client_settings import (
    NewFiles,
    asks_for_kerberos,
    conf_dir_advice,
    default_file_system,
    hadoop_settings_of,
    name_node_url,
    new_files,
)
from tiered_stream.storage.hdfs_store import HdfsStore


@pytest.fixture(autouse=True)
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder HADOOP_CONF_DIR."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    return tmp_path


def test_a_setting_comes_from_the_options_or_from_the_files(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not asks_for_kerberos(hadoop_settings_of(StorageOptions()))
    write_site(conf / "core-site.xml", {"fs.defaultFS": "hdfs://one", "hadoop.security.authentication": "kerberos"})
    write_site(conf / "hdfs-site.xml", {"dfs.replication": "2"})
    given = StorageOptions(hdfs_settings='{"fs.defaultFS": "hdfs://mine", "hadoop.security.authentication": "simple"}')
    own, found = hadoop_settings_of(given), hadoop_settings_of(StorageOptions())
    assert (found["dfs.replication"], found["fs.defaultFS"], own["fs.defaultFS"]) == ("2", "hdfs://one", "hdfs://mine")
    assert asks_for_kerberos(found) and not asks_for_kerberos(own)
    write_site(conf / "home" / "etc" / "hadoop" / "core-site.xml", {"fs.defaultFS": "hdfs://home"})
    monkeypatch.delenv("HADOOP_CONF_DIR")
    monkeypatch.setenv("HADOOP_HOME", str(conf / "home"))
    assert hadoop_settings_of(StorageOptions())["fs.defaultFS"] == "hdfs://home"


SITE = """<configuration xmlns:xi="http://www.w3.org/2001/XInclude">{}</configuration>"""


def one(name: str, value: str) -> str:
    return f"<property><name>{name}</name><value>{value}</value></property>"


def test_files_may_include_others_and_have_variables(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER", "lake")
    (conf / "more files").mkdir()
    (conf / "more files" / "nodes.xml").write_text(
        SITE.format(one("dfs.nameservices", "${service}") + one("dfs.ha.namenodes.lake", "nn1, ${second}"))
    )
    (conf / "hdfs-site.xml").write_text(SITE.format(
        one("dfs.replication", "1") + '<xi:include href="more%20files/nodes.xml"/>'
        '<xi:include href="none.xml"><xi:fallback>' + one("dfs.replication", "2") + "</xi:fallback></xi:include>"
    ))  # fmt: skip
    write_site(conf / "core-site.xml", {
        "fs.defaultFS": "hdfs://${dfs.nameservices}", "service": "${env.CLUSTER}", "second": "${env.NONE:-nn2}",
        "a": "${env.NONE}", "b": "${env.CLUSTER-x}", "c": "${c}", "d": "${nothing}", "e": "${user.home}",
    })  # fmt: skip
    found = hadoop_settings_of(StorageOptions())
    assert {name: found[name] for name in ("fs.defaultFS", "dfs.ha.namenodes.lake", "dfs.replication")} == {
        "fs.defaultFS": "hdfs://lake", "dfs.ha.namenodes.lake": "nn1,nn2", "dfs.replication": "2"
    }  # fmt: skip
    assert [found[name] for name in "abcde"] == ["${env.NONE}", "lake", "${c}", "${nothing}", str(Path.home())]
    assert default_file_system() == "hdfs://lake"


def test_a_variable_that_the_system_cannot_give_stays_as_it_is(conf: Path, nameless_user: None) -> None:
    values = {"hadoop.tmp.dir": "/tmp/hadoop-${user.name}", "a": "${user.home}/a", "fs.defaultFS": "hdfs://lake"}
    write_site(conf / "core-site.xml", values)
    found = hadoop_settings_of(StorageOptions())
    assert {name: found[name] for name in values} == values


@pytest.mark.parametrize("href", ["core-site.xml", "none.xml", "http://host/a.xml", ""])
def test_an_include_that_leads_nowhere_is_refused_by_its_file(conf: Path, href: str) -> None:
    (conf / "core-site.xml").write_text(SITE.format(f'<xi:include href="{href}"/>'))
    with pytest.raises(ConfigurationError, match=r"core-site\.xml"):
        hadoop_settings_of(StorageOptions())


def test_the_advice_for_an_unknown_name_service_says_what_is_in_the_folder(
    conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"HADOOP_CONF_DIR is {conf}, which has neither core-site.xml nor" in conf_dir_advice()
    write_site(conf / "core-site.xml", {"a": "b"})
    assert f"HADOOP_CONF_DIR is {conf}, which has core-site.xml: add" in conf_dir_advice()
    monkeypatch.delenv("HADOOP_CONF_DIR")
    assert conf_dir_advice().startswith("Set HADOOP_CONF_DIR")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, NewFiles(None, None, 0o644)),
        ({"dfs.replication": "2", "dfs.blocksize": "134217728"}, NewFiles(2, 128 << 20, 0o644)),
        ({"dfs.blocksize": "64M", "fs.permissions.umask-mode": "027"}, NewFiles(None, 64 << 20, 0o640)),
        ({"dfs.blocksize": "1g", "fs.permissions.umask-mode": "0077"}, NewFiles(None, 1 << 30, 0o600)),
    ],
)
def test_new_files_have_the_properties_that_hadoops_client_would_give_them(
    given: dict[str, str], wanted: NewFiles
) -> None:
    assert new_files(given) == wanted


@pytest.mark.parametrize(
    ("name", "value"),
    [("dfs.replication", "two"), ("dfs.blocksize", "64 MB"), ("fs.permissions.umask-mode", "u=rwx,g=rx,o=")],
)
def test_a_setting_of_new_files_in_another_form_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name} = '{value}' "):
        new_files({name: value})


@pytest.mark.parametrize(
    ("service", "tokens", "wanted"),
    [
        ("hdfs://localhost:8020", b"x127.0.0.1:8020y", "hdfs://127.0.0.1:8020"),
        ("hdfs://", b"x127.0.0.1:9000y", "hdfs://127.0.0.1:9000"),
        ("hdfs://localhost:8020", b"xlocalhost:8020y127.0.0.1:8020", "hdfs://localhost:8020"),
        ("hdfs://localhost:8020", b"x127.0.0.1:9000y", "hdfs://localhost:8020"),
        ("hdfs://localhost:8020", None, "hdfs://localhost:8020"),
        ("hdfs://service", b"xha-hdfs:servicey", "hdfs://service"),
        ("hdfs://no-such-host.invalid:8020", b"x127.0.0.1:8020y", "hdfs://no-such-host.invalid:8020"),
        ("hdfs://localhost:port", b"x127.0.0.1:8020y", "hdfs://localhost:port"),
    ],
)
def test_the_url_has_the_address_that_the_token_has(
    conf: Path, monkeypatch: pytest.MonkeyPatch, service: str, tokens: bytes | None, wanted: str
) -> None:
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(conf / "tokens"))
    if tokens is not None:
        (conf / "tokens").write_bytes(tokens)
    settings = {"fs.defaultFS": "hdfs://localhost:9000", "dfs.ha.namenodes.service": "nn1,nn2"}
    assert name_node_url(service, settings) == wanted
    monkeypatch.delenv("HADOOP_TOKEN_FILE_LOCATION")
    assert name_node_url(service, settings) == service


def test_blanks_between_name_nodes_are_no_part_of_their_names(conf: Path) -> None:
    write_site(conf / "hdfs-site.xml", {"dfs.ha.namenodes.One": "nn1, nn2", "dfs.ha.namenodes.Two": "a, b"})
    options = StorageOptions(hdfs_settings='{"dfs.ha.namenodes.Two": "nn3,\\n nn4", "dfs.ha.namenodes.Three": " nn5"}')
    settings = hadoop_settings_of(options)
    found = [settings[f"dfs.ha.namenodes.{service}"] for service in ("One", "Two", "Three")]
    assert found == ["nn1,nn2", "nn3,nn4", "nn5"]


@pytest.mark.parametrize(
    ("service", "default", "wanted"),
    [
        ("hdfs://localhost", "hdfs://other:9000", "hdfs://localhost:8020"),
        ("hdfs://", "hdfs://localhost/", "hdfs://localhost:8020"),
        ("hdfs://", "hdfs://localhost:9000", "hdfs://"),
        ("hdfs://", "viewfs://localhost", "hdfs://"),
        ("hdfs://localhost:9000", "", "hdfs://localhost:9000"),
        ("hdfs://Both", "", "hdfs://Both"),
        ("hdfs://no-such-host.invalid", "", "hdfs://no-such-host.invalid"),
        ("viewfs://localhost", "", "viewfs://localhost"),
    ],
)
def test_a_name_node_without_a_port_has_hadoops_default(service: str, default: str, wanted: str) -> None:
    assert name_node_url(service, {"fs.defaultFS": default, "dfs.ha.namenodes.Both": "nn1,nn2"}) == wanted


def test_a_name_node_without_a_port_is_asked_at_hadoops_default_port() -> None:
    store = HdfsStore(StorageOptions(uri="hdfs://localhost/tier"), SEGMENTS)
    assert isinstance(store._client, hdfs_native.Client)
