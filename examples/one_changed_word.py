"""Read a topic with Spark straight from tiered storage, and write its rows with Spark's own Delta sink.

A query that reads with Spark's `kafka` source needs one changed word and the options from `remote.` on. Run
the program in a clone, with `OPTIONS` as they stand here, or with the options in a job's settings file. The last
argument is the folder that gets the table `orders` and its checkpoint:

    spark-submit --properties-file conf/spark-defaults.conf examples/one_changed_word.py
    spark-submit --properties-file spark.conf examples/one_changed_word.py orders.properties s3a://lake/own
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from tiered_stream import read_options

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
    spark = SparkSession.builder.getOrCreate()
    if len(sys.argv) > 1:
        settings_file, lake = sys.argv[1:]
        main(spark, read_options(settings_file), lake)
    else:
        main(spark)
