"""Stream reader for the version of Spark that is installed.

The abilities of Spark are looked up in its modules, not by its version: platforms add features to older versions.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

HAS_READ_LIMITS = find_spec("pyspark.sql.streaming.datasource") is not None
"""True if Spark passes the start and a limit of each micro-batch to a Python source, and ends runs of AvailableNow."""

if TYPE_CHECKING or HAS_READ_LIMITS:
    from tiered_stream.spark.spark_limits import StreamWithSparkLimits as _Base
else:
    from tiered_stream.spark.own_limits import StreamWithOwnLimits as _Base


class StreamReader(_Base):
    """Spark's stream reader of one streaming query: plans micro-batches, and reads one input partition in a task."""
