"""Spark reads Kafka topics straight from tiered storage."""

__version__ = "0.1.0"
