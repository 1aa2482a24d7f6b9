"""Paths of a table's folder, as Hadoop and the libraries read them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.rigs.stack.hdfs import write_site
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.delta.write.file_systems import deltalake_arguments, normal_path, path_uri, uri_of
from tiered_stream.errors import ConfigurationError

HADOOPS = {
    "s3a://lake/a/./t": "s3a://lake/a/t",
    "s3a://lake/x/../t": "s3a://lake/t",
    "s3a://lake/a/x/y/../../t/": "s3a://lake/a/t",
    "s3a://lake/.": "s3a://lake/",
    "s3a://lake/./a//t": "s3a://lake/a/t",
    "hdfs://name:8020/a/./t": "hdfs://name:8020/a/t",
    "file:/x/../a b/t": "file:/a b/t",
    "/x/../a/./t": "/a/t",
    "/a/.../.t/t.": "/a/.../.t/t.",
    "/a/%2e%2e/t": "/a/%2e%2e/t",
}


@pytest.mark.parametrize(("path", "normal"), HADOOPS.items())
def test_a_path_has_no_dots_left_and_no_other_name_than_it_had(path: str, normal: str) -> None:
    assert normal_path(path) == normal
    assert normal_path(normal) == normal


def test_hadoop_takes_each_path_and_its_normal_form_for_one(spark: SparkSession) -> None:
    java: Any = spark._jvm
    for path, normal in HADOOPS.items():
        one, other = (java.org.apache.hadoop.fs.Path(each).toString() for each in (path, normal))
        assert one == other, path


@pytest.mark.parametrize("path", ["s3a://lake/a//t/", "s3://lake/a", "/a//t/", "a/../t", "../t", "lake.orders"])
def test_a_path_without_dots_or_a_relative_one_is_left_as_it_is(path: str) -> None:
    assert normal_path(path) == path


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("s3a://lake/../t", "it leads above its root"),
        ("/x/../../t", "root"),
    ],
)
def test_a_path_that_readers_would_take_differently_is_refused(path: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{re.escape(path)}: .*{re.escape(why)}"):
        normal_path(path)


def test_a_refusal_shows_no_password() -> None:
    with pytest.raises(ConfigurationError, match=r"s3a://lake/\.\./t:") as caught:
        uri_of("s3a://me:hunter2@lake/../t")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigurationError, match=r"s3a://lake/a%20b:") as caught:
        uri_of("s3a://me:hunter2@lake/a%20b")
    assert "hunter2" not in str(caught.value)


def local() -> str:
    """The default file system of a Hadoop that is not configured."""
    return "file:///"


def test_uris_are_of_the_normal_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert uri_of("s3a://lake/x/../t") == uri_of("s3://lake/./t/") == "s3://lake/t"
    assert uri_of(f"file://{tmp_path}/x/../t") == path_uri("x/.././t", local) == f"{tmp_path.as_uri()}/t"
    assert path_uri("/x/../t", lambda: "hdfs://name:8020/") == "hdfs://name:8020/t"


def test_uris_in_hadoops_default_file_system_are_those_of_the_whole_path() -> None:
    assert path_uri("/lake//t/", lambda: "hdfs://name:8020") == uri_of("hdfs://name:8020/lake/t")
    assert path_uri("/lake/t", lambda: "s3a://bucket") == uri_of("s3a://bucket/lake/t") == "s3://bucket/lake/t"
    assert path_uri("/lake/t", lambda: "/home") == "/home/lake/t"  # a default file system without a scheme
    with pytest.raises(ConfigurationError, match="hdfs://name:8020/lake/t#1: .*#"):
        path_uri("/lake/t#1", lambda: "hdfs://name:8020")


def test_a_relative_path_is_for_local_folders_only() -> None:
    with pytest.raises(ConfigurationError, match="relative.* hdfs://name:8020/user/NAME/lake/t"):
        path_uri("lake/t", lambda: "hdfs://name:8020/")


@pytest.mark.parametrize("path", ["file:lake/t", "file:", "hdfs:lake/t", "s3a:lake/t", "dbfs:lake/t"])
def test_a_relative_path_with_a_scheme_is_refused(path: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(path)):
        path_uri(path, local)


def test_the_default_file_system_is_that_of_hadoops_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    assert path_uri("/lake/t") == "file:///lake/t"
    write_site(tmp_path / "core-site.xml", {"fs.defaultFS": "hdfs://namenode:8020"})
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert path_uri("/lake/t") == "hdfs://namenode:8020/lake/t"
    assert path_uri("file:///lake/t") == "file:///lake/t"


@pytest.mark.parametrize("path", ["hdfs:/lake/t", "hdfs:///lake/t/", "hdfs:/lake/x/..//t"])
def test_a_path_in_hdfs_without_a_name_node_is_in_the_default_file_system(path: str) -> None:
    assert uri_of(path) == "hdfs:///lake/t"


def test_uris_in_object_stores_lose_slashes_as_in_hadoop() -> None:
    assert uri_of("s3a://lake//a//t//") == "s3://lake/a/t"
    assert uri_of("abfss://lake@mine.dfs.core.windows.net/x/../a//t/") == "abfss://lake@mine.dfs.core.windows.net/a/t"
    assert uri_of("gs://lake//a/./t//") == "gs://lake/a/t"
    assert uri_of("az://lake") == "az://lake"


@pytest.mark.parametrize(
    "path",
    [
        "gs://lake/a?b",
        "az://lake/a#b",
        "abfss://lake@mine.dfs.core.windows.net/a%20b",
        "s3a://lake/a#1",
        "s3://l/a%20b",
        "s3a://lake/a/%2E./t",
    ],
)
def test_letters_of_urls_are_refused_in_object_stores(path: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{re.escape(path)}: .* [?#%] "):
        uri_of(path)


@pytest.mark.parametrize("path", ["/lake/a#1", "/lake/a?b", "/lake/a%20b"])
def test_letters_of_urls_stand_for_themselves_in_local_folders(path: str) -> None:
    assert uri_of(f"file://{path}") == uri_of(f"file:{path}") == path_uri(path, local)


def test_parent_of_a_symbolic_link_is_by_its_name(tmp_path: Path) -> None:
    """As Spark has it, which does not ask the file system."""
    (tmp_path / "elsewhere" / "folder").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "folder")
    assert path_uri(f"{tmp_path}/link/../t", local) == f"{tmp_path.as_uri()}/t"


@pytest.mark.parametrize(
    "path", ["hdfs://nn:8020/a b", "hdfs://nn:8020/tübingen", "hdfs://nn:8020/a|b", "hdfs://nn/[a"]
)
def test_letters_that_deltalake_writes_otherwise_are_refused_in_tables_in_hdfs(path: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{re.escape(path)}: .*letter"):
        deltalake_arguments(TableSpec(path))
