"""The managed platform on which a session's driver runs; `platforms.py` finds it, also without Spark's package."""

from __future__ import annotations

import logging
import os
from functools import lru_cache
from typing import Any

from py4j.java_gateway import JavaPackage
from pyspark.sql import SparkSession

from tiered_stream.delta.catalog.platforms import Platform, find_platform
from tiered_stream.spark.session import is_connect

log = logging.getLogger(__name__)


@lru_cache(maxsize=1)
def platform_of(spark: SparkSession) -> Platform | None:
    """Return the managed platform on which the session's driver runs, or None if there is no sign of a known platform.

    With Spark Connect, only the environment variables of this process count, because a client cannot see the server's.
    """
    if is_connect(spark):
        return find_platform(os.environ, lambda _: None, "", lambda _: False)
    jvm: Any = spark._jvm
    return find_platform(
        os.environ,
        lambda name: spark.conf.get(name, None),
        spark.version,
        lambda name: not isinstance(getattr(jvm, name), JavaPackage),
    )


def log_platform(spark: SparkSession) -> None:
    """Log the platform on which the session's driver runs, and what follows; log nothing if it is not known."""
    if (platform := platform_of(spark)) is not None:
        log.info("the platform is %s", platform)
