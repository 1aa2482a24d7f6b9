"""A session of Spark Connect without a server: it only knows the server's version."""

from __future__ import annotations

from typing import Any


class SparkSession:
    def __init__(self, version: str) -> None:
        self.version = version


SparkSession.__module__ = "pyspark.sql.connect.session"


def connect_session(version: str) -> Any:
    return SparkSession(version)
