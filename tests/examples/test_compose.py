"""The Compose file itself is not run by any test; its settings are those of conf/, and the job takes them."""

from __future__ import annotations

import re
from textwrap import dedent

from tests.jobs.test_conf import CONF, spark_properties
from tests.rigs.stack.build import ROOT
from tiered_stream.delta.settings.query_settings import check_settings
from tiered_stream.ingest.ingest_plan import plan_ingests
from tiered_stream.options.settings_files import parse_assignments, read_settings

COMPOSE = (ROOT / "examples" / "compose.yaml").read_text("utf-8")


def config(name: str) -> list[str]:
    """Return the lines of a file that the Compose file holds."""
    block = re.search(rf"^  {re.escape(name)}:\n    content: \|\n((?:      .*\n)+)", COMPOSE, re.MULTILINE)
    assert block
    return dedent(block[1]).splitlines()


def test_the_job_takes_its_settings() -> None:
    settings = parse_assignments(config("orders.properties"), "--option")
    (ingest,) = plan_ingests(settings)
    check_settings(ingest.options, ingest.lane)
    assert read_settings(CONF / "ingest-s3-other.properties").keys() - settings.keys() == {"includeHeaders"}


def test_the_broker_has_the_storage_that_the_job_reads() -> None:
    broker = dict(re.findall(r"^      KAFKA_(RSM_CONFIG_\w+): \"?([^\"\n]+)\"?$", COMPOSE, re.MULTILINE))
    for name, value in parse_assignments(config("orders.properties"), "--option").items():
        if name.startswith("rsm.config."):
            assert broker[name.upper().replace(".", "_")] == value, name


def test_spark_has_the_settings_of_conf() -> None:
    ours = dict(line.split(None, 1) for line in config("spark.conf"))
    assert ours.keys() == spark_properties(CONF / "spark-s3-other.conf").keys()
    assert ours["spark.jars.packages"] == spark_properties(CONF / "spark-s3-other.conf")["spark.jars.packages"]
