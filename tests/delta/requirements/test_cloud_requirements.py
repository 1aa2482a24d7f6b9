"""The lists of `fs.azure.*` and `fs.gs.*`, compared with the names in Hadoop's and Google's own classes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree
from zipfile import ZipFile

import pyspark
import pytest

from tests.delta.requirements.made_hadoop import made_hadoop
from tests.rigs.stack.jars import jar_paths
from tiered_stream.delta.requirements.abfs import ABFS_PREFIX, ABFS_REQUIREMENTS, AbfsStore, names_of_account
from tiered_stream.delta.requirements.gs import GS_PREFIX, GS_REQUIREMENTS, HADOOPS_CONNECTOR, GsStore
from tiered_stream.delta.requirements.hadoop_settings import may_concern_writers
from tiered_stream.delta.requirements.requirement import Handling, Kind
from tiered_stream.delta.requirements.writer_requirements import find_requirement

_NO_SETTING = re.compile(r"capability\..*|getfilestatus\..*|storage\.http\.headers")
"""Answers of a file system about its abilities, and a prefix, which are among the constants, too."""


def _names(jar: str, group: str, folder: str, prefix: str) -> Iterator[str]:
    """The names with `prefix` in the classes of one jar."""
    (path,) = (path for path in jar_paths(group) if path.name.startswith(jar))
    pattern = re.compile(re.escape(prefix).encode() + rb"[A-Za-z0-9.-]*[A-Za-z0-9]")
    with ZipFile(path) as classes:
        for name in classes.namelist():
            if name.startswith(folder) and name.endswith(".class"):
                yield from (found.decode().removeprefix(prefix) for found in pattern.findall(classes.read(name)))


def _defaults(prefix: str) -> dict[str, str]:
    """The settings in Hadoop's `core-default.xml`."""
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    with ZipFile(jar) as classes:
        properties = ElementTree.fromstring(classes.read("core-default.xml")).iter("property")
    found = {each.findtext("name", "").strip(): each.findtext("value") or "" for each in properties}
    return {name: value for name, value in found.items() if name.startswith(prefix)}


def _missing(names: set[str], prefix: str) -> list[str]:
    return sorted(
        name
        for name in names
        if find_requirement(Kind.SESSION, prefix + name) is None and not _NO_SETTING.fullmatch(name)
    )


@pytest.mark.stack
def test_each_setting_of_hadoops_abfs_is_in_the_list() -> None:
    names = set(_names("hadoop-azure", "abfs", "org/apache/hadoop/fs/azurebfs/", ABFS_PREFIX))
    names |= {name.removeprefix(ABFS_PREFIX) for name in _defaults(ABFS_PREFIX)}
    assert len(names) > 130
    assert _missing(names, ABFS_PREFIX) == []


@pytest.mark.stack
def test_each_setting_of_both_connectors_for_google_is_in_the_list() -> None:
    googles = "com/google/cloud/hadoop/fs/gcs/"
    names = set(_names("gcs-connector", "gcs", googles, GS_PREFIX))
    names |= set(_names("hadoop-gcp", "hadoop-gcp", "org/apache/hadoop/fs/gs/", GS_PREFIX))
    names |= {name.removeprefix(GS_PREFIX) for name in _defaults(GS_PREFIX)}
    assert len(names) > 60
    assert _missing(names, GS_PREFIX) == []


@pytest.mark.stack
def test_hadoops_own_defaults_ask_for_nothing() -> None:
    azure, google = _defaults(ABFS_PREFIX), _defaults(GS_PREFIX)
    AbfsStore(made_hadoop(azure), "abfss://lake@mine.dfs.core.windows.net/t").check_supported()
    settings = GsStore(made_hadoop(google, classes=[HADOOPS_CONNECTOR]), "gs://lake/t")
    settings.check_supported()
    assert settings.credentials() == {"gcs_machine": True}


def test_no_prefix_without_effect_speaks_of_writing() -> None:
    """A new setting under such a prefix would pass in silence."""
    prefixes = [
        each.name
        for each in (*ABFS_REQUIREMENTS, *GS_REQUIREMENTS)
        if each.handling is Handling.NOTHING and each.name.endswith("*")
    ]
    assert {name for name in prefixes if may_concern_writers(name)} == {
        "fs.gs.outputstream.upload.*", "fs.gs.write.parallel.composite.upload.*",
    }  # fmt: skip


def test_each_name_is_in_the_lists_once() -> None:
    names = [each.name for each in (*ABFS_REQUIREMENTS, *GS_REQUIREMENTS)]
    assert len(names) == len(set(names))


def test_settings_of_an_account_and_of_its_container_count_and_others_do_not() -> None:
    host = "mine.dfs.core.windows.net"
    given = [
        f"account.key.{host}", f"sas.fixed.token.lake.{host}", "use.upn", "account.key.other.dfs.core.windows.net",
        "secure.mode.other.z1.dfs.storage.azure.net", "page.blob.dir.other.blob.core.chinacloudapi.cn",
    ]  # fmt: skip
    assert names_of_account("lake", host, given) == ["account.key", "sas.fixed.token", "use.upn"]
