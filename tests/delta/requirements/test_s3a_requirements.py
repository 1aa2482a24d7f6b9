"""The list of `fs.s3a.*`, beside what Hadoop itself knows."""

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
from tiered_stream.delta.requirements.hadoop_settings import may_concern_writers
from tiered_stream.delta.requirements.requirement import Handling, Kind
from tiered_stream.delta.requirements.s3a import S3A_PREFIX, S3A_REQUIREMENTS, S3aStore, names_of_bucket
from tiered_stream.delta.requirements.writer_requirements import find_requirement

_CONSTANT = re.compile(rb"fs\.s3a\.[a-z0-9.-]+[a-z0-9]")
_CLASSES = ("Constants", "auth/delegation/DelegationConstants", "commit/CommitConstants", "audit/S3AAuditConstants")
_NO_SETTING = re.compile(
    r"capability\..*|audit$|auth$|auth\.delegation|bucket|client|commit|commit\.(files|magic)|committer|s3guard"
)
"""What the constants have beside settings: what a file system answers that it can do, packages, prefixes."""
_DYNAMIC = ("client.s3.custom.headers", "client.s3.custom.headers.x", "client.sts.custom.headers")
"""Hadoop joins these from parts."""


def constants() -> Iterator[str]:
    (jar,) = (path for path in jar_paths("s3a") if path.name.startswith("hadoop-aws"))
    with ZipFile(jar) as classes:
        for name in _CLASSES:
            for found in _CONSTANT.findall(classes.read(f"org/apache/hadoop/fs/s3a/{name}.class")):
                yield found.decode().removeprefix(S3A_PREFIX)


def defaults() -> dict[str, str]:
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    with ZipFile(jar) as classes:
        properties = ElementTree.fromstring(classes.read("core-default.xml")).iter("property")
    found = {each.findtext("name", ""): each.findtext("value") or "" for each in properties}
    return {name: value for name, value in found.items() if name.startswith(S3A_PREFIX)}


@pytest.mark.stack
def test_each_setting_of_hadoops_is_in_the_list() -> None:
    names = {*constants(), *_DYNAMIC, *(name.removeprefix(S3A_PREFIX) for name in defaults())}
    assert len(names) > 150
    missing = sorted(
        name
        for name in names
        if find_requirement(Kind.SESSION, S3A_PREFIX + name) is None and not _NO_SETTING.fullmatch(name)
    )
    assert not missing


@pytest.mark.stack
def test_hadoops_own_defaults_ask_for_nothing() -> None:
    settings = S3aStore(made_hadoop(defaults()), "s3a://lake/t")
    settings.check_supported()
    assert (settings.acl(), settings.storage_class(), *settings.encryption()) == (None, None, None, None)


def test_no_setting_that_is_without_effect_has_a_name_that_speaks_of_writing() -> None:
    """What a new version adds under such a prefix would pass in silence."""
    prefixes = [each for each in S3A_REQUIREMENTS if each.handling is Handling.NOTHING and each.name.endswith("*")]
    spoken = {each.name for each in prefixes if may_concern_writers(each.name.removeprefix(S3A_PREFIX))}
    assert spoken == {"fs.s3a.client.sts.custom.headers*", "fs.s3a.encryption.*", "fs.s3a.metadatastore.*"}


def test_each_name_is_in_the_list_once() -> None:
    names = [each.name for each in S3A_REQUIREMENTS]
    assert len(names) == len(set(names))


def test_a_buckets_own_settings_count_and_other_buckets_do_not() -> None:
    given = ["acl.default", "bucket.lake.acl.default", "bucket.lake.retry.limit", "bucket.other.proxy.host"]
    assert names_of_bucket("lake", given) == ["acl.default", "retry.limit"]
    assert names_of_bucket("lake", ["bucket.probe"]) == ["bucket.probe"]
