"""What the doctor says of a session's connector, without starting Spark."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tiered_stream.delta.catalog.session_checks import GCS_CONNECTOR, GS_SETTINGS
from tiered_stream.doctor.finding import Examination, Finding, Known, Status
from tiered_stream.doctor.spark_conf import SparkConf
from tiered_stream.doctor.table_checks import _check_connector


def found(names: Iterable[str]) -> Finding:
    settings = {f"spark.hadoop.{name}": GS_SETTINGS[name] for name in names}
    spark = SparkConf({"spark.jars.packages": GCS_CONNECTOR, **settings}, None)
    examination = Examination(lambda _: None)
    examination.check("connector", lambda _: _check_connector("gcs-connector", GCS_CONNECTOR, spark), Known("job", 1))
    return examination.findings[0]


def test_googles_connector_is_right_with_all_its_settings() -> None:
    assert found(GS_SETTINGS).status is Status.OK


@pytest.mark.parametrize("missing", GS_SETTINGS)
def test_each_setting_that_hadoop_has_for_its_own_connector_is_asked_for(missing: str) -> None:
    warning = found(set(GS_SETTINGS) - {missing})
    assert warning.status is Status.WARNING
    assert missing in warning.fix
