"""Read a topic with Spark straight from tiered storage, and write its rows with Spark's own Delta sink.

A query that reads with Spark's `kafka` source needs one changed word and the last three options.
Run the program in a clone:

    spark-submit --properties-file conf/spark-defaults.conf examples/one_changed_word.py
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

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
    orders = spark.readStream.format("tiered_stream").options(**options).load()  # was: format("kafka")
    query = (
        orders.select("key", "value", "partition", "offset", "timestamp")
        .writeStream.format("delta")
        .option("checkpointLocation", f"{lake}/checkpoints/orders")
        .trigger(availableNow=True)
        .start(f"{lake}/orders")
    )
    query.awaitTermination()
    spark.read.format("delta").load(f"{lake}/orders").groupBy("partition").count().show()


if __name__ == "__main__":
    main(SparkSession.builder.getOrCreate())
