"""The settings files that users copy, and what a job says where Spark lacks what they bring."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark
import pytest

from tests.delta.archive import ODD, PLAIN, everything, in_order, options
from tests.golden import golden
from tests.jobs.submitted import SubmittedJob, jars
from tests.rigs.stack.processes import LONG
from tests.rigs.stack.s3_client import REGION
from tests.rigs.stack.spark import DELTA, ROOT, spark_environment
from tests.rigs.stack.versitygw import VersityGateway
from tests.spark.abilities import KAFKA_AND_DELTA
from tiered_stream.delta.catalog.session_checks import CATALOG, DELTA_PACKAGE, EXTENSION, HADOOP_AWS
from tiered_stream.delta.settings.ingest_settings import CHECKPOINT, LANE, TABLE
from tiered_stream.delta.settings.query_settings import check_settings
from tiered_stream.ingest.ingest_plan import plan_ingests
from tiered_stream.options.settings_files import read_settings

CONF = ROOT / "conf"
SPARK = sorted(CONF.glob("spark-*.conf"))
INGEST = sorted(CONF.glob("ingest*.properties"))


def spark_properties(file: Path) -> dict[str, str]:
    lines = (line.split(None, 1) for line in file.read_text().splitlines() if line and not line.startswith("#"))
    return dict(lines)


@pytest.mark.parametrize("file", INGEST, ids=lambda file: file.name)
def test_the_job_takes_each_settings_file(file: Path) -> None:
    (ingest,) = plan_ingests(read_settings(file))
    check_settings(ingest.options, ingest.lane)


@KAFKA_AND_DELTA.needed
@pytest.mark.parametrize("file", SPARK, ids=lambda file: file.name)
def test_each_spark_file_brings_what_its_tables_take_or_names_it_for_other_versions(file: Path) -> None:
    properties = spark_properties(file)
    (hadoop,) = Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")
    connector = f"{HADOOP_AWS}:{hadoop.stem.rpartition('-')[2]}"
    wanted = [DELTA_PACKAGE, connector] if "s3" in file.name else [DELTA_PACKAGE]
    (others,) = (line for line in file.read_text().splitlines() if line.startswith("# Spark 4.1:"))
    named = [" ".join(package.split(":")[1:]) for package in wanted[1:]] + [DELTA_PACKAGE.split(":")[1]]
    assert properties["spark.jars.packages"].split(",") == wanted or all(words in others for words in named)
    assert {name: properties[name] for name, _ in (EXTENSION, CATALOG)} == dict([EXTENSION, CATALOG])


def in_the_lake(file: Path, lake: VersityGateway) -> str:
    """The file's text with the test's own endpoint and keys."""
    text = file.read_text().replace("https://s3.example.com", lake.endpoint)
    return re.sub(r"\bKEY\b", lake.access_key, re.sub(r"\bSECRET\b", lake.secret_key, text))


@pytest.mark.slow
def test_table_checkpoint_and_tier_are_in_another_s3_service(lake: VersityGateway, tmp_path: Path) -> None:
    from tests.delta.clouds import in_s3
    from tests.delta.committing import table

    for bucket in ("lake", "my-tier"):
        lake.client().create_bucket(Bucket=bucket)
    for key, data in golden(PLAIN).objects():
        lake.client().put_object(Bucket="my-tier", Key=key, Body=data)
    for name in ("spark-s3-other.conf", "ingest-s3-other.properties"):
        (tmp_path / name).write_text(in_the_lake(CONF / name, lake))
    spark = spark_properties(tmp_path / "spark-s3-other.conf")
    del spark["spark.jars.packages"]
    # The topics are those of an archive, which needs no broker.
    archive = {**options(ODD), "remote.storage.uri": "s3://my-tier"}
    settings = {**read_settings(tmp_path / "ingest-s3-other.properties"), **archive}
    del settings["kafka.bootstrap.servers"]
    with SubmittedJob("ingest_to_delta.py", tmp_path / "job", settings, spark=spark | jars("delta", "s3a")) as job:
        assert job.wait() == 0, job.output()
    assert "direct lane" in job.output() and settings["rsm.config.storage.s3.region"] == REGION
    landed = table(in_s3(lake, "s3://lake/bronze/orders")).to_pyarrow_table()
    assert in_order(landed).equals(everything(ODD))
    checkpoint = lake.client().list_objects_v2(Bucket="lake", Prefix="checkpoints/orders/commits/")
    assert checkpoint["KeyCount"] > 0
    # The same two files are all that the commands need which start a Spark of their own.
    given = ["--settings", str(tmp_path / "job/job.properties"), "--properties-file", str(tmp_path / "job/spark.conf")]
    verified = subprocess.run(
        [sys.executable, "-c", "from tiered_stream.cli import app; app()", "verify", *given],
        cwd=ROOT, env=spark_environment(), capture_output=True, text=True, timeout=LONG, check=False,
    )  # fmt: skip
    assert verified.returncode == 0, verified.stdout + verified.stderr


NO_DELTA = "Spark's session has no Delta. Submit with --properties-file conf/spark-defaults.conf"
NO_EXTENSION = "Spark's session has Delta's jar, but not all of spark.sql.extensions=io.delta."
NO_S3 = "is out of Spark's reach: the session lacks hadoop-aws or the AWS SDK that comes with it. Submit with "
IN_S3 = "s3a://lake/table"
NONE_OF_TWO = f"none of the 2 queries was started: {NO_DELTA}"


@pytest.mark.starts_spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "arguments", "has", "table", "said"),
    [
        ("ingest_to_delta.py", ["--lane", "spark"], "nothing", "table", NO_DELTA),
        ("ingest_to_delta.py", ["--lane", "spark"], "jar", "table", NO_EXTENSION),
        ("ingest_to_delta.py", [], "delta", IN_S3, f"the checkpoint {IN_S3}-checkpoint {NO_S3}"),
        ("ingest_to_delta.py", ["--lane", "spark"], "nothing", "{topic}", NONE_OF_TWO),
        ("replay_from_timestamp.py", ["--from", "0"], "nothing", "table", NO_DELTA),
        ("replay_from_timestamp.py", ["--from", "0"], "delta", IN_S3, f"the folder {IN_S3}/_checkpoints/"),
    ],
)
def test_what_spark_lacks_is_said_in_one_line(
    job: str, arguments: list[str], has: str, table: str, said: str, tmp_path: Path
) -> None:
    spark: Mapping[str, str] = {"nothing": {}, "jar": jars("delta"), "delta": {**jars("delta"), **DELTA}}[has]
    table = table if table == IN_S3 else f"{tmp_path}/{table}"
    settings = {**options(ODD), TABLE: table, CHECKPOINT: f"{table}-checkpoint", LANE: "auto"}
    with SubmittedJob(job, tmp_path / "job", settings, arguments, spark) as submitted:
        assert submitted.wait() == 2, submitted.output()
    printed = submitted.output()
    assert printed.splitlines()[-1].startswith(said), printed
    assert "Traceback" not in printed and "\tat " not in printed
    assert [each.name for each in tmp_path.iterdir()] == ["job"]
