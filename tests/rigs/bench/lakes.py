"""Where the bench makes its tables: a folder, and a bucket of an S3 server that does conditional puts, as AWS does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.rigs.stack.s3_client import REGION, s3a_settings
from tests.rigs.stack.versitygw import VersityGateway
from tiered_stream.delta.settings.ingest_settings import TableStorage
from tiered_stream.delta.write.file_systems import delta_storage_options

BUCKET = "lake"


@dataclass(frozen=True)
class Lake:
    """`folder` on this machine is what Spark knows as `uri`, with the settings `session`."""

    where: str
    folder: Path
    uri: str
    storage_options: Mapping[str, str] = field(default_factory=dict)
    session: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def serving(folder: Path) -> Iterator[tuple[Lake, Lake]]:
    """Both, while the server runs."""
    tables = folder / "tables"
    tables.mkdir()
    with VersityGateway(folder / "versitygw", folder / "buckets") as server:
        server.client().create_bucket(Bucket=BUCKET)
        yield Lake("in a folder", tables, str(tables)), _in_s3(server)


def _in_s3(server: VersityGateway) -> Lake:
    keys = server.access_key, server.secret_key
    storage = TableStorage(server.endpoint, REGION, True, *keys)
    session = {f"spark.hadoop.{name}": value for name, value in s3a_settings(server.endpoint, *keys, BUCKET).items()}
    return Lake("in S3", server.base_dir / BUCKET, f"s3a://{BUCKET}", delta_storage_options(storage, BUCKET), session)
