"""Check of the managed Spark platform on which the doctor runs."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version

from tiered_stream.delta.catalog.platforms import find_platform
from tiered_stream.doctor.finding import Examination, Result
from tiered_stream.doctor.spark_conf import SparkConf


def check_platform(examination: Examination, spark: SparkConf) -> None:
    """Report a managed platform as a warning, because jobs were never tried on any; report nothing elsewhere."""
    platform = find_platform(os.environ, spark.values.get, _pyspark_version(), lambda _: False)
    if platform is not None:
        fix = "start with a copy of a table, and compare it by `tiered-stream verify`"
        examination.check("platform", lambda: Result(True, str(platform), fix))


def _pyspark_version() -> str:
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return ""
