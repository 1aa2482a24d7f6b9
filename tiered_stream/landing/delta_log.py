"""A Delta table's log as Spark reads it, wherever the table is (Delta: `DeltaLog`, `Snapshot`)."""

from __future__ import annotations

from typing import Any

import orjson
from pyspark.sql import SparkSession

from tiered_stream.landing.lane import TableDescription

_NO_VERSION = -1


class TableSnapshot:
    """The newest version of the table at a location, as Hadoop's file systems have it; there may be none."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        jvm: Any = spark._jvm
        path = jvm.org.apache.hadoop.fs.Path(location)
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)
        # Scala's default arguments.
        defaults = [getattr(log, f"update$default${number}")() for number in (1, 2, 3)]
        self._snapshot = log.update(*defaults)

    @property
    def exists(self) -> bool:
        """Whether there is a table."""
        return bool(self._snapshot.version() != _NO_VERSION)

    def describe(self) -> TableDescription:
        """What the lanes ask of it."""
        metadata = self._snapshot.metadata()
        columns, properties = metadata.partitionColumns(), metadata.configuration().iterator()
        configuration = {}
        while properties.hasNext():
            entry = properties.next()
            configuration[entry._1()] = entry._2()
        return TableDescription(
            fields=tuple(orjson.loads(metadata.schemaString())["fields"]),
            partition_columns=tuple(columns.apply(at) for at in range(columns.size())),
            configuration=configuration,
        )

    def transaction_version(self, transaction_id: str) -> int | None:
        """The version of the last application transaction by that name; None: there was none."""
        found = self._snapshot.transactions().get(transaction_id)
        return int(found.get()) if found.isDefined() else None
