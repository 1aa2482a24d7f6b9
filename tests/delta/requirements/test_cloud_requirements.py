"""The lists of `fs.s3a.*`, `fs.azure.*` and `fs.gs.*`, compared with the names in Hadoop's and Google's own classes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree
from zipfile import ZipFile

import pyspark
import pytest

from tests.delta.requirements.made_hadoop import REVIEWED, is_known, made_hadoop
from tests.rigs.stack.jars import jar_paths
from tiered_stream.delta.requirements.hadoop_settings import may_concern_writers
from tiered_stream.delta.requirements.s3a import S3A_PREFIX, S3aStore
from tiered_stream.delta.requirements.store_access import ABFS_PREFIX, GS_PREFIX, AbfsStore, GsStore
from tiered_stream.delta.requirements.writer_requirements import HADOOPS_CONNECTOR, WRITER_REQUIREMENTS, Handling

_NO_SETTING = re.compile(
    r"capability\..*|getfilestatus\..*|storage\.http\.headers|(.*\.)?[A-Z][A-Za-z0-9.]*|audit|auth|auth\.delegation|bucket"
    r"|client|commit|commit\.(files|magic)|committer|s3guard|select|throttled"
)
"""Constants that are no settings: abilities of a file system, names of classes and packages, and prefixes."""
_DYNAMIC = ("client.s3.custom.headers", "client.s3.custom.headers.x", "client.sts.custom.headers")
"""Settings of S3A whose names Hadoop joins from parts."""


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


@pytest.mark.stack
@pytest.mark.parametrize(
    ("prefix", "jars", "least"),
    [
        (S3A_PREFIX, [("hadoop-aws", "s3a", "org/apache/hadoop/fs/s3a/")], 150),
        (ABFS_PREFIX, [("hadoop-azure", "abfs", "org/apache/hadoop/fs/azurebfs/")], 130),
        (
            GS_PREFIX,
            [
                ("gcs-connector", "gcs", "com/google/cloud/hadoop/fs/gcs/"),
                ("hadoop-gcp", "hadoop-gcp", "org/apache/hadoop/fs/gs/"),
            ],
            60,
        ),
    ],
)
def test_each_setting_of_a_connector_is_known(prefix: str, jars: list[tuple[str, str, str]], least: int) -> None:
    names = {name for jar in jars for name in _names(*jar, prefix)}
    names |= {name.removeprefix(prefix) for name in _defaults(prefix)} | set(_DYNAMIC if prefix == S3A_PREFIX else ())
    settings = [name for name in names if not _NO_SETTING.fullmatch(name)]
    assert len(settings) > least
    assert [name for name in settings if not is_known(prefix + name)] == []


@pytest.mark.stack
def test_hadoops_own_defaults_ask_for_nothing() -> None:
    s3a = S3aStore(made_hadoop(_defaults(S3A_PREFIX)), "s3a://lake/t")
    s3a.check_supported()
    assert set(s3a.object_settings().values()) == {None}
    AbfsStore(made_hadoop(_defaults(ABFS_PREFIX)), "abfss://lake@mine.dfs.core.windows.net/t").check_supported()
    google = GsStore(made_hadoop(_defaults(GS_PREFIX), classes=[HADOOPS_CONNECTOR]), "gs://lake/t")
    google.check_supported()
    assert google.credentials() == {"gcs_machine": True}


def test_no_prefix_without_effect_speaks_of_writing() -> None:
    """A new setting under such a prefix would pass in silence."""
    listed = [each for each in WRITER_REQUIREMENTS if each.name.startswith("fs.")]
    prefixes = {each.name for each in listed if each.handling is Handling.NOTHING and each.name.endswith("*")}
    assert not [name for name in REVIEWED if may_concern_writers(name.split(".", 2)[2])]
    assert {name for name in prefixes if may_concern_writers(name)} == {
        "fs.s3a.client.sts.custom.headers*", "fs.s3a.encryption.*", "fs.s3a.metadatastore.*",
        "fs.gs.outputstream.upload.*", "fs.gs.write.parallel.composite.upload.*",
    }  # fmt: skip


def test_a_buckets_own_settings_count_and_other_buckets_do_not() -> None:
    given = ["acl.default", "bucket.lake.acl.default", "bucket.lake.retry.limit", "bucket.other.proxy.host"]
    assert own_names(S3A_PREFIX, given) == ["acl.default", "retry.limit"]
    assert own_names(S3A_PREFIX, ["bucket.probe"]) == ["bucket.probe"]


def own_names(prefix: str, given: list[str]) -> list[str]:
    """The names of settings that apply to one bucket or container."""
    hadoop = made_hadoop({prefix + name: "x" for name in given})
    if prefix == S3A_PREFIX:
        return list(S3aStore(hadoop, "s3a://lake/t").own_names())
    return list(AbfsStore(hadoop, "abfss://lake@mine.dfs.core.windows.net/t").own_names())


def test_settings_of_an_account_and_of_its_container_count_and_others_do_not() -> None:
    host = "mine.dfs.core.windows.net"
    given = [
        f"account.key.{host}", f"sas.fixed.token.lake.{host}", "use.upn", "account.key.other.dfs.core.windows.net",
        "secure.mode.other.z1.dfs.storage.azure.net", "page.blob.dir.other.blob.core.chinacloudapi.cn",
    ]  # fmt: skip
    assert own_names(ABFS_PREFIX, given) == ["account.key", "sas.fixed.token", "use.upn"]
