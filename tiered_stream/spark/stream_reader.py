"""Stream reader for the version of Spark that is installed.

The abilities of Spark are looked up in its modules, not by its version: platforms add features to older versions. Only
a client of Spark Connect asks for the version, because the server has other modules than the client.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HAS_READ_LIMITS = find_spec("pyspark.sql.streaming.datasource") is not None
"""True if Spark passes the start and a limit of each micro-batch to a Python source, and ends runs of AvailableNow."""

_FIRST_WITH_READ_LIMITS = 4, 2

if TYPE_CHECKING or HAS_READ_LIMITS:
    from tiered_stream.spark.spark_limits import StreamWithSparkLimits as _Base
else:
    from tiered_stream.spark.own_limits import StreamWithOwnLimits as _Base


def has_read_limits(spark: SparkSession) -> bool:
    """Return `HAS_READ_LIMITS` of the Spark that runs the session's queries."""
    from tiered_stream.spark.session import is_connect

    if not is_connect(spark):
        return HAS_READ_LIMITS
    version = re.match(r"(\d+)\.(\d+)", spark.version)
    return version is not None and tuple(map(int, version.groups())) >= _FIRST_WITH_READ_LIMITS


class StreamReader(_Base):
    """Spark's stream reader of one streaming query: plans micro-batches, and reads one input partition in a task."""
