"""Land a topic of JSON values as columns of a Delta table, and other values in a table of dead letters.

Tasks decode the values and write the table's files themselves. Run the program in a clone:

    spark-submit --properties-file conf/spark-defaults.conf examples/typed_table.py
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
COLUMNS = {
    "ingest.value.format": "json",
    "ingest.value.schema": "id BIGINT, item STRING, amount DECIMAL(12,2), at TIMESTAMP",
    # Keep topic, partition and offset: replay and verify find a record's row by them.
    "ingest.kafkaColumns": "topic as kafka_topic, partition as kafka_partition, offset as kafka_offset",
    "ingest.onDecodeError": "deadLetter",
}
LAKE = "/tmp/lake"


def main(spark: SparkSession, options: Mapping[str, str] = OPTIONS, lake: str = LAKE) -> None:
    query = tiered_stream.land(
        spark,
        options={**options, **COLUMNS, "ingest.deadLetterTable": f"{lake}/typed_orders_dead"},
        table=f"{lake}/typed_orders",
        checkpoint=f"{lake}/checkpoints/typed_orders",
    )
    query.awaitTermination()
    spark.read.format("delta").load(f"{lake}/typed_orders").show()
    spark.read.format("delta").load(f"{lake}/typed_orders_dead").select("topic", "offset", "reason").show()


if __name__ == "__main__":
    main(SparkSession.builder.getOrCreate())
