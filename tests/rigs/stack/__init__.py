"""The local stack: a real Kafka broker that tiers into a folder, and S3Proxy serving that folder as an S3 bucket.

    with TieredStack() as stack:
        create_tiered_topic(stack.broker, "orders", partitions=2)
        produce_bulk(stack.broker, "orders", records=100_000)
        roll(stack.broker, "orders")
        wait_until_tiered(stack.broker, "orders")
        spark.read.format("tiered_stream").options(**stack.options()).option("subscribe", "orders").load()

No container and no installation: the jars come by pyspark's own Ivy, pinned in `conf/stack/jars.tsv`.
"""

from __future__ import annotations
