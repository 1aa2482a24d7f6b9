"""Data files of a task into a real S3 server, where they differ from other stores."""

from __future__ import annotations

import errno
import io
import re
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.delta import committing
from tests.delta.clouds import in_s3, keys, stored
from tests.delta.committing import put, upload_error
from tests.delta.made_batches import ORDERS, plain
from tests.rigs.stack.customer_keys import KEY, CustomerKeyHandler
from tests.rigs.stack.http_front import HttpFront
from tests.rigs.stack.older_s3 import older
from tests.rigs.stack.processes import free_ports
from tests.rigs.stack.versitygw import VersityGateway
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.delta.write import data_folder, s3_upload
from tiered_stream.delta.write.data_folder import MEMORY_BYTES, UploadThreads
from tiered_stream.delta.write.file_systems import deltalake_arguments, open_folder
from tiered_stream.delta.write.s3_upload import S3Uploads
from tiered_stream.delta.write.table_writer import TableWriter, open_data_folder
from tiered_stream.errors import StorageError, TableError
from tiered_stream.model import ByteRange
from tiered_stream.storage.open_store import open_store

pytestmark = pytest.mark.stack
BUCKET = "lake"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersityGateway]:
    folder = tmp_path_factory.mktemp("lake")
    with VersityGateway(folder / "versitygw", folder / "buckets") as gateway:
        gateway.client().create_bucket(Bucket=BUCKET)
        yield gateway


@pytest.fixture
def files(lake: VersityGateway, request: pytest.FixtureRequest) -> TableSpec:
    return in_s3(lake, f"s3://{BUCKET}/{request.node.name}")


def rows(files: TableSpec, paths: list[str]) -> int:
    return sum(pq.read_metadata(io.BytesIO(stored(files, path))).num_rows for path in paths)


def test_a_file_gets_no_larger_than_one_put_may_be(files: TableSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(S3Uploads, "max_bytes", 150_000)
    monkeypatch.setattr("tiered_stream.delta.write.table_writer.ROW_GROUP_BYTES", 100_000)
    written = committing.written(replace(files, target_bytes=8 << 30, compression="none"), 40_000, parts=4)
    assert len(written) > 1
    assert rows(files, [file.path for file in written]) == 40_000


def test_a_store_that_refuses_is_named_and_the_task_fails(files: TableSpec) -> None:
    refused = replace(files, storage=replace(files.storage, secret_access_key="a wrong secret"))
    writer = TableWriter(refused, 0, UploadThreads())
    writer.add(ORDERS, plain(10))
    with pytest.raises(TableError, match=rf"{files.uri} .*SignatureDoesNotMatch"):
        writer.finish()
    writer.close()


class Flipped(s3_upload.ChecksummedFile):
    """File whose first bit is not read as it was written."""

    def read(self, size: int = -1) -> bytes:
        at_first = self.tell() == 0
        read = super().read(size)
        return b"A" + read[1:] if at_first else read


@pytest.mark.parametrize("content", [b"all of it", bytes(2 * MEMORY_BYTES)], ids=["small", "large"])
def test_a_bit_that_flips_on_the_disk_or_on_the_way_is_noticed(
    files: TableSpec, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr(s3_upload, "ChecksummedFile", Flipped)
    assert re.search("part-0 .*(BadDigest|checksum)", upload_error(files, content))
    assert keys(files) == []


def test_a_full_disk_fails_the_task_by_name(files: TableSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(data_folder, "MEMORY_BYTES", 1000)
    monkeypatch.setattr("tempfile.SpooledTemporaryFile.rollover", full)
    writer = TableWriter(files, 0, UploadThreads())
    writer.add(ORDERS, plain(10_000))
    with pytest.raises(TableError, match=rf"{files.uri} .*No space left on device"):
        writer.finish()
    writer.close()


def test_days_are_files_in_their_folders(files: TableSpec) -> None:
    writer = TableWriter(replace(files, day_column="day"), 0, UploadThreads())
    writer.add(ORDERS, plain(10))
    written = writer.finish()
    writer.close()
    assert [file.path.partition("/")[0] for file in written] == [f"day={file.day}" for file in written]
    assert rows(files, [file.path for file in written]) == 10


@pytest.mark.parametrize("flips", [False, True])
def test_a_service_without_checksums_of_the_newer_kind_gets_the_md5_digest(
    files: TableSpec, lake: VersityGateway, monkeypatch: pytest.MonkeyPatch, flips: bool
) -> None:
    if flips:
        monkeypatch.setattr(s3_upload, "ChecksummedFile", Flipped)
    front = HttpFront(free_ports(1)[0], lake.port, older(lake))
    storage = replace(files.storage, s3_endpoint_url=front.endpoint)
    folder = open_data_folder(replace(files, storage=storage), UploadThreads())
    written = {f"part-{number}": bytes([number]) * (number * MEMORY_BYTES) for number in range(1, 3)}
    with front:
        put(folder, written)
        if flips:
            with pytest.raises(OSError, match="part-1 .*BadDigest"):
                folder.wait()
        else:
            folder.wait()
            assert {path: stored(files, path) for path in written} == written
        folder.close()


@pytest.fixture
def locked(lake: VersityGateway, files: TableSpec) -> Iterator[TableSpec]:
    """A table's files behind a front that demands the key of each object."""
    with HttpFront(free_ports(1)[0], lake.port, CustomerKeyHandler) as front:
        storage = replace(files.storage, s3_endpoint_url=front.endpoint, s3_customer_key=KEY)
        yield replace(files, storage=storage)


def test_files_log_and_segments_are_written_and_read_with_the_key_of_ones_own(locked: TableSpec) -> None:
    folder = open_data_folder(locked, UploadThreads())
    put(folder, {"a": b"content"})
    folder.wait()
    uri, options = deltalake_arguments(locked)
    write_deltalake(uri, pa.table({"number": [1, 2, 3]}), storage_options=options)
    assert DeltaTable(uri, storage_options=options).to_pyarrow_table().num_rows == 3
    read = open_folder(locked.uri, locked.storage)
    assert read.open_input_stream("a").read() == b"content"
    assert read.open_input_stream(f"_delta_log/{0:020d}.json").read()
    assert open_store(locked.storage.at(locked.uri)).get("a", ByteRange(0, 7)) == b"content"


def test_no_object_is_given_without_the_key_of_ones_own(locked: TableSpec) -> None:
    without = replace(locked, storage=replace(locked.storage, s3_customer_key=None))
    assert "The key is missing" in upload_error(without)
    with pytest.raises(StorageError, match="400 InvalidRequest"):
        open_store(without.storage.at(without.uri)).get("a", ByteRange(0, 7))


def test_objects_get_the_acl_the_class_and_the_encryption_that_the_session_asks_for(
    files: TableSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = replace(files.storage, acl="private", storage_class="STANDARD_IA", encryption="AES256")
    seen: list[dict[str, object]] = []
    for storage in (asked, files.storage):
        folder = S3Uploads(replace(files, storage=storage), UploadThreads())
        monkeypatch.setattr(folder._client, "put_object", lambda **given: seen.append(given))
        put(folder, {"a": b"a"})
        folder.wait()
    extra = [{name: each[name] for name in each.keys() - {"Bucket", "Key", "Body", "ChecksumCRC32C"}} for each in seen]
    assert extra == [{"ACL": "private", "StorageClass": "STANDARD_IA", "ServerSideEncryption": "AES256"}, {}]


def test_an_upload_waits_as_long_as_a_service_may_take_to_store_it(files: TableSpec) -> None:
    waits = S3Uploads(files, UploadThreads())._client.meta.config
    assert (waits.connect_timeout, waits.read_timeout) == (60, 60)
