"""Land a topic in a Delta table, write the last day again in one commit, and verify the table.

A replay repairs a table that lost rows or has wrong ones. Run the program in a clone:

    spark-submit --properties-file conf/spark-defaults.conf examples/replay_and_verify.py
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

import tiered_stream

OPTIONS = {
    "kafka.bootstrap.servers": "broker1:9092",
    "subscribe": "orders",
    "startingOffsets": "earliest",
    # As in the brokers' server.properties. Credentials come from AWS's default chain.
    "remote.log.storage.manager.class.name": "io.aiven.kafka.tieredstorage.RemoteStorageManager",
    "rsm.config.key.prefix": "kafka/",
    "rsm.config.storage.s3.bucket.name": "my-tier",
}
LAKE = "/tmp/lake"


def main(spark: SparkSession, options: Mapping[str, str] = OPTIONS, lake: str = LAKE) -> None:
    table, checkpoint = f"{lake}/raw_orders", f"{lake}/checkpoints/raw_orders"
    tiered_stream.land(spark, options=options, table=table, checkpoint=checkpoint).awaitTermination()

    # An accident: somebody deletes rows.
    spark.sql(f"DELETE FROM delta.`{table}` WHERE offset % 2 = 0")
    print(tiered_stream.verify(spark, options=options, table=table).summary())

    # The last day again. The same commit removes the rows that the table still has of these offsets.
    replayed = tiered_stream.replay(
        spark, options=options, from_time="-1d", into=table, replace=True, query_checkpoint=checkpoint
    )
    print(f"{replayed.records} records replayed")
    print(tiered_stream.verify(spark, options=options, table=table).summary())


if __name__ == "__main__":
    main(SparkSession.builder.getOrCreate())
