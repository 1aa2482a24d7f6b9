"""What is seen without asking anybody."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.rigs.stack.hdfs import write_site
from tiered_stream.delta.requirements.hadoop_settings import NotForTasksError
from tiered_stream.delta.requirements.s3a import S3aStore
from tiered_stream.doctor.environment import Job, check_environment, check_platform
from tiered_stream.doctor.finding import Examination, Finding, Known, Status
from tiered_stream.doctor.spark_conf import SparkConf, read_spark_conf
from tiered_stream.records import compiled

SETTINGS = {"kafka.bootstrap.servers": "a:1", "subscribe": "x,y", "remote.storage.uri": "s3://b"}


def looked_at(settings: Mapping[str, str]) -> tuple[Known[Job], dict[str, Finding]]:
    examination = Examination(lambda _: None)
    job = check_environment(examination, settings)
    return job, {each.check: each for each in examination.findings}


def test_each_topic_has_its_table_and_checkpoint() -> None:
    job, _ = looked_at({**SETTINGS, "ingest.table": "/l/{topic}", "Ingest.checkpointLocation": "/c/{topic}"})
    assert job.value is not None
    assert job.value.tables == (("/l/x", "/c/x"), ("/l/y", "/c/y"))


@pytest.mark.parametrize("read", [{}, {"subscribe": "", "subscribePattern": "x.*"}])
def test_tables_of_one_checkpoint_are_one_query_however_many_topics_there_are(read: dict[str, str]) -> None:
    given = {name: value for name, value in {**SETTINGS, **read}.items() if value}
    job, _ = looked_at({**given, "ingest.table": "/l/{topic}", "ingest.checkpointLocation": "/c"})
    assert job.value is not None
    assert job.value.tables == (("/l/{topic}", "/c"),)


def test_of_sparks_settings_the_last_of_a_name_counts_as_it_does_for_spark(tmp_path: Path) -> None:
    file = tmp_path / "spark.conf"
    file.write_text("spark.hadoop.fs.defaultFS file:///one\nspark.hadoop.fs.defaultFS   s3a://two \n")
    assert read_spark_conf(file, None).default_fs() == "s3a://two"
    assert read_spark_conf(file, ["spark.hadoop.fs.defaultFS=s3a://three"]).default_fs() == "s3a://three"


def test_the_default_file_system_may_come_from_hadoops_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    assert SparkConf({}, None).default_fs() == "file:///"
    write_site(tmp_path / "core-site.xml", {"fs.defaultFS": "hdfs://namenode:8020"})
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert SparkConf({}, None).default_fs() == "hdfs://namenode:8020"
    assert SparkConf({"spark.hadoop.fs.defaultFS": "s3a://one"}, None).default_fs() == "s3a://one"


def test_credentials_in_a_path_are_refused_and_not_shown() -> None:
    job, findings = looked_at(
        {**SETTINGS, "ingest.table": "s3a://me:hunter2@lake/t", "ingest.checkpointLocation": "/c"}
    )
    assert job.value is None
    assert findings["settings"].status is Status.FAILED
    assert "hunter2" not in str(findings)


def test_a_java_that_is_too_old_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    _, findings = looked_at(SETTINGS)
    assert findings["Java"].status is Status.FAILED
    assert "1.8.0_402" in findings["Java"].found
    assert "install Java 17" in findings["Java"].fix


@pytest.mark.parametrize(("table", "status"), [({}, Status.WARNING), ({"ingest.table": "/t"}, Status.FAILED)])
def test_no_java_fails_a_job_that_lands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, table: dict[str, str], status: Status
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    _, findings = looked_at({**SETTINGS, **table})
    assert findings["Java"].status is status


def test_kernels_that_are_not_compiled_are_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiled, "packaged_folder", lambda: tmp_path / "of the package")
    _, findings = looked_at(SETTINGS)
    assert findings["compiled kernels"].status is Status.WARNING
    assert "tiered-stream warm" in findings["compiled kernels"].fix


@pytest.mark.parametrize(
    ("jar", "conf", "there"),
    [
        (None, [], False),
        ("hadoop-aws-3.4.1.jar", [], True),
        (None, ["spark.jars.packages=io.delta:d:1,org.apache.hadoop:hadoop-aws:3.4.1"], True),
        (None, ["spark.jars=/opt/hadoop-aws-3.4.1.jar"], True),
    ],
)
def test_hadoop_aws_is_looked_for_where_spark_takes_jars_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jar: str | None, conf: list[str], there: bool
) -> None:
    (tmp_path / "jars").mkdir()
    for each in filter(None, (jar, "hadoop-client-api-3.4.1.jar")):
        (tmp_path / "jars" / each).touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    found = read_spark_conf(None, conf)
    assert found.has_library("hadoop-aws") == there
    assert found.fetches("hadoop-aws") == any("packages" in text for text in conf)
    assert found.hadoop_package("hadoop-aws") == "org.apache.hadoop:hadoop-aws:3.4.1"


def test_a_container_before_the_account_is_no_password() -> None:
    table = "abfss://lake@mine.dfs.core.windows.net/t"
    job, _ = looked_at({**SETTINGS, "ingest.table": table, "ingest.checkpointLocation": "/c"})
    assert job.value is not None
    assert job.value.tables == ((table, "/c"),)


def test_sparks_own_file_is_read_unless_another_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text("spark.hadoop.fs.s3a.endpoint  http://a\nspark.x  1\n")
    (tmp_path / "other.conf").write_text("spark.x  2\n")
    assert read_spark_conf(None, ["spark.x=3"]).values == {"spark.hadoop.fs.s3a.endpoint": "http://a", "spark.x": "3"}
    assert read_spark_conf(tmp_path / "other.conf", None).values == {"spark.x": "2"}
    assert S3aStore(read_spark_conf(None, None).hadoop_settings(), "s3a://lake/t").endpoint_url() == "http://a"


def test_what_tasks_do_not_follow_is_looked_for_among_all_that_the_files_say(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("spark.hadoop.fs.s3a.bucket.lake.http.signer.enabled true\n")
    conf = read_spark_conf(tmp_path / "a.conf", None)
    S3aStore(conf.hadoop_settings(), "s3a://other/t").check_supported()
    with pytest.raises(NotForTasksError, match="http.signer"):
        S3aStore(conf.hadoop_settings(), "s3a://lake/t").check_supported()


def platform_in(**settings: str) -> list[Finding]:
    examination = Examination(lambda _: None)
    check_platform(examination, SparkConf(settings, None))
    return examination.findings


def test_a_managed_platform_is_a_warning_that_says_what_was_never_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    assert platform_in() == []
    (by_settings,) = platform_in(**{"spark.cluster.type": "trident"})
    assert by_settings.found.startswith("Microsoft Fabric")
    monkeypatch.setenv("GLUE_VERSION", "6.0")
    (by_environment,) = platform_in()
    assert (by_environment.check, by_environment.status) == ("platform", Status.WARNING)
    assert by_environment.found.startswith("AWS Glue (GLUE_VERSION=6.0): ")
    assert "tiered-stream verify" in by_environment.fix
