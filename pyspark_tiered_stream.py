"""Spark imports each top-level module named `pyspark_*` and registers its `DefaultSource`: nobody else has to."""

from tiered_stream.spark.source import TieredStreamDataSource as DefaultSource

__all__ = ["DefaultSource"]
