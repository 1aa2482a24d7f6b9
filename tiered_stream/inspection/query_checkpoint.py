"""Reader of a streaming query's progress: the last committed micro-batch in the query's checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from tiered_stream.delta.checkpoint.spark_checkpoint import SparkCheckpoint
from tiered_stream.delta.checkpoint.stored_folder import StoredFolder
from tiered_stream.delta.settings.ingest_settings import BUCKET_SCHEMES, TableStorage
from tiered_stream.delta.write.file_systems import path_uri
from tiered_stream.errors import ConfigurationError, StorageError
from tiered_stream.model import TopicPartition


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """Last committed micro-batch of a streaming query; `offsets` has the next offset to read of each partition."""

    batch_id: int
    offsets: dict[TopicPartition, int]


def committed_batch(checkpoint: str, storage: TableStorage) -> CommittedBatch:
    """Return the last committed micro-batch of the streaming query with this checkpoint.

    `checkpoint` is the path of a folder, locally or in an object store, such as `s3a://bucket/prefix`. A path without a
    scheme is in the default file system of HADOOP_CONF_DIR.

    Raises:
        ConfigurationError: the folder does not exist, or is not in a local folder or S3. Or no micro-batch is committed
            in it. Or the query reads no topic.
        StorageError: the folder cannot be read.
        CorruptDataError: a file of the checkpoint is missing or malformed.
        UnsupportedDataError: a file has a version that is not supported.
    """
    uri = path_uri(checkpoint)
    if urlsplit(uri).scheme not in ("file", *BUCKET_SCHEMES):
        raise ConfigurationError(
            f"the checkpoint {checkpoint}: it must be in a local folder, in S3 (s3a://…), in Azure Blob Storage "
            "(abfss://…), in Google Cloud Storage (gs://…) or in HDFS (hdfs://…)"
        )
    try:
        committed = SparkCheckpoint(StoredFolder(checkpoint, uri, storage)).committed()
    except OSError as error:
        fix = ". How to reach it: ingest.storage.*, or --properties-file with Spark's own settings"
        raise StorageError(
            f"the checkpoint {checkpoint} cannot be read: {error}{fix if '://' in checkpoint else ''}"
        ) from error
    if committed is None:
        raise ConfigurationError(
            f"the checkpoint {checkpoint}: no micro-batch is committed there; is it a query's checkpointLocation?"
        )
    batch, ends = committed
    if not ends.positions:
        raise ConfigurationError(f"the checkpoint {checkpoint} is of a query that reads no Kafka topic")
    return CommittedBatch(batch, ends.positions)
