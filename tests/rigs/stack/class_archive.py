"""Spark's classes, parsed and verified once for all JVMs of a test run (JEP 350, dynamic archives of classes).

With the archive, a JVM takes half the CPU to start a session, and two thirds until it has written a first table. A JVM
whose Java or class path differs ignores the archive.
"""

from __future__ import annotations

import sys
import tempfile
from typing import Any

from tests.archives import archive_options
from tests.golden import NAMES
from tests.rigs.stack.build import SPARK_CLASSES
from tests.rigs.stack.spark import SHORT_LIVED_JAVA, spark_session


def main() -> None:
    """Write the archive: the classes of a session that reads a stream, and writes and merges a Delta table."""
    SPARK_CLASSES.parent.mkdir(exist_ok=True)
    dump = f'{SHORT_LIVED_JAVA} "-XX:ArchiveClassesAtExit={SPARK_CLASSES}" -Xlog:cds*=off'
    spark = spark_session("classes", ("delta", "spark-kafka", "s3a"), {"spark.driver.extraJavaOptions": dump})
    gateway: Any = spark.sparkContext._gateway
    with tempfile.TemporaryDirectory() as folder:
        table = f"{folder}/table"
        rows = spark.readStream.format("tiered_stream").options(**archive_options(NAMES[0])).load()
        writer = rows.writeStream.format("delta").option("checkpointLocation", f"{folder}/checkpoint")
        writer.trigger(availableNow=True).start(table).awaitTermination()
        spark.sql(
            f"MERGE INTO delta.`{table}` AS old USING (SELECT * FROM delta.`{table}` LIMIT 2) AS new "
            "ON old.offset = new.offset WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        spark.sql(f"SELECT topic, count(*) FROM delta.`{table}` GROUP BY topic").collect()
    spark.stop()
    gateway.proc.stdin.close()
    sys.exit(gateway.proc.wait())


if __name__ == "__main__":
    main()
