"""Read a topic straight from tiered storage into polars, without Spark and without Java.

pip install polars
python examples/polars_without_spark.py
"""

from __future__ import annotations

from collections.abc import Mapping

import polars

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


def main(options: Mapping[str, str] = OPTIONS) -> polars.DataFrame:
    frame = polars.from_arrow(tiered_stream.scan(options, ordered=False).read_all())
    assert isinstance(frame, polars.DataFrame)
    summary = (
        frame.group_by("topic", "partition")
        .agg(
            polars.len().alias("records"),
            polars.col("value").bin.size().sum().alias("bytes"),
            polars.col("timestamp").max().alias("newest"),
        )
        .sort("topic", "partition")
    )
    print(summary)
    return summary


if __name__ == "__main__":
    main()
