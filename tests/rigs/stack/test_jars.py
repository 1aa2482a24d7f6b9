"""The pinned list and its cache; no network."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.rigs.stack import jars
from tests.rigs.stack.errors import StackError
from tests.rigs.stack.jars import Jar, jar_paths, pinned_jars


def test_every_pinned_jar_has_a_checksum_and_a_version() -> None:
    groups = ["kafka", "s3", "delta", "spark-kafka", "spark-avro", "apicurio", "s3a", "connect", "debezium", "hadoop"]
    for jar in pinned_jars(groups):
        assert len(jar.sha256) == 64 and jar.version and jar.organisation, jar


def test_an_unknown_group_is_named_with_those_that_exist() -> None:
    with pytest.raises(StackError, match=r"no jar group \['flink'\]; there are \['abfs', 'apicurio', 'connect'"):
        pinned_jars(["kafka", "flink"])


def test_a_classifier_is_part_of_the_file_name() -> None:
    jar = Jar("kafka", "org.apache.kafka", "kafka-storage", "4.3.1", "test", sha256="")
    assert jar.file_name == "kafka-storage-4.3.1-test.jar"


def test_jars_in_the_cache_are_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERED_STREAM_CACHE", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "/no/java/here")
    for jar in pinned_jars(["delta"]):
        jar.path.parent.mkdir(parents=True)
        jar.path.touch()
    assert [path.name for path in jar_paths("delta")] == ["delta-spark_4.2_2.13-4.4.0.jar", "delta-storage-4.4.0.jar"]


def test_a_jar_with_another_checksum_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERED_STREAM_CACHE", str(tmp_path))
    fetched = tmp_path / "some.jar"
    fetched.write_bytes(b"other bytes")
    found = hashlib.sha256(b"other bytes").hexdigest()
    jar = Jar("kafka", "org", "some", "1", "", "0" * 64)
    with pytest.raises(StackError, match=f"org:some-1.jar has SHA-256 {found}; jars.tsv says 0000"):
        jars._keep(jar, fetched)
    assert not jar.path.exists()
