"""Data files of a task into a real S3 server."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.delta.made_batches import ORDERS, plain
from tests.stack.s3_client import REGION
from tests.stack.versitygw import VersityGateway
from tiered_stream.delta import s3_upload
from tiered_stream.delta.file_systems import open_data_folder
from tiered_stream.delta.ingest_settings import TableFiles, TableStorage
from tiered_stream.delta.s3_upload import S3Uploads
from tiered_stream.delta.table_writer import TableWriter
from tiered_stream.delta.upload_threads import UploadThreads
from tiered_stream.errors import TableError

pytestmark = pytest.mark.stack
BUCKET = "lake"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersityGateway]:
    folder = tmp_path_factory.mktemp("lake")
    gateway = VersityGateway(folder / "versitygw", folder / "buckets")
    gateway.start()
    gateway.client().create_bucket(Bucket=BUCKET)
    yield gateway
    gateway.stop()


@pytest.fixture
def files(lake: VersityGateway, request: pytest.FixtureRequest) -> TableFiles:
    storage = TableStorage(lake.endpoint, REGION, True, lake.access_key, lake.secret_key)
    return TableFiles(f"s3://{BUCKET}/{request.node.name}", storage)


def stored(lake: VersityGateway, files: TableFiles, path: str) -> bytes:
    key = f"{files.uri.removeprefix(f's3://{BUCKET}/')}/{path}"
    return lake.client().get_object(Bucket=BUCKET, Key=key)["Body"].read()


def rows(files: TableFiles, lake: VersityGateway, paths: list[str]) -> int:
    return sum(pq.read_metadata(io.BytesIO(stored(lake, files, path))).num_rows for path in paths)


def test_what_was_written_is_in_the_bucket_when_all_files_are_waited_for(
    files: TableFiles, lake: VersityGateway
) -> None:
    folder = open_data_folder(files, UploadThreads())
    assert isinstance(folder, S3Uploads)
    written = {f"part-{number}": bytes([number]) * (number * 1_500_000) for number in range(5)}
    for path, content in written.items():
        file = folder.open(path)
        file.write(content)
        folder.finish(path, file)
    folder.wait()
    folder.close()
    assert {path: stored(lake, files, path) for path in written} == written


def test_a_tasks_files_are_whole_objects_that_arrow_reads(files: TableFiles, lake: VersityGateway) -> None:
    writer = TableWriter(replace(files, target_bytes=150_000, compression="none"), 0)
    for start in range(0, 40_000, 10_000):
        writer.add(ORDERS, plain(10_000, start))
    written = writer.finish()
    writer.close()
    assert len(written) > 1
    assert [len(stored(lake, files, file.path)) for file in written] == [file.size for file in written]
    assert rows(files, lake, [file.path for file in written]) == 40_000


def test_a_file_that_is_not_finished_is_never_seen(files: TableFiles, lake: VersityGateway) -> None:
    folder = open_data_folder(files, UploadThreads())
    folder.open("part-0").write(b"half of")
    folder.close()
    assert "Contents" not in lake.client().list_objects_v2(Bucket=BUCKET, Prefix=files.uri.rpartition("/")[2])


def test_a_store_that_refuses_is_named_and_the_task_fails(files: TableFiles) -> None:
    refused = replace(files, storage=replace(files.storage, secret_access_key="a wrong secret"))
    writer = TableWriter(refused, 0)
    writer.add(ORDERS, plain(10))
    with pytest.raises(TableError, match=rf"{files.uri} cannot be written to: .*SignatureDoesNotMatch"):
        writer.finish()
    writer.close()


def test_a_bit_that_flips_on_the_way_is_noticed_without_tls(files: TableFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    class Flipped(s3_upload._Body):
        reads = 0

        def read(self, size: int = -1) -> bytes:
            sent = bytearray(super().read(size))
            self.reads += 1
            if self.reads > 2:  # those before are the checksum's
                sent[:1] = b"A"
            return bytes(sent)

    monkeypatch.setattr(s3_upload, "_Body", Flipped)
    folder = open_data_folder(files, UploadThreads())
    file = folder.open("part-0")
    file.write(b"all of it")
    folder.finish("part-0", file)
    with pytest.raises(OSError, match="part-0 could not be uploaded: .*(BadDigest|checksum)"):
        folder.wait()
    folder.close()


@pytest.mark.parametrize("changed", [{"day_column": "day"}, {"target_bytes": s3_upload.MOST_BYTES + 1}])
def test_many_open_files_and_large_ones_do_not_wait_in_memory(files: TableFiles, changed: dict[str, object]) -> None:
    folder = open_data_folder(replace(files, **changed), UploadThreads())  # type: ignore[arg-type]
    assert not isinstance(folder, S3Uploads)
    with folder.open("day=2026-01-01/part-0") as file:
        assert isinstance(file, pa.NativeFile)
