"""Data files of a task into S3, Azure's and Google's storage, as servers and emulators have them."""

from __future__ import annotations

import io
import os
import random
import re
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.delta import committing
from tests.delta.clouds import Cloud, azure, google, keys, stored
from tests.delta.committing import put, upload_error
from tests.delta.made_batches import ORDERS, plain
from tests.rigs.stack.s3_client import REGION
from tests.storage.scripted_http import ScriptedHttp, error
from tiered_stream.delta.settings.ingest_settings import TableSpec, TableStorage
from tiered_stream.delta.write.data_folder import MEMORY_BYTES, UploadThreads
from tiered_stream.delta.write.table_writer import TableWriter, open_data_folder
from tiered_stream.errors import TableError

SECRET = "c2VjcmV0LXRoYXQtbm9ib2R5LW1heS1zZWU="
SIGNATURE = "sv=2026-01-01&sig=that-nobody-may-see"


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.stack) for name in ("lake", "azurite", "fake_gcs")])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> TableSpec:
    """A table in each kind of object store in turn."""
    server = request.getfixturevalue(request.param)
    path = f"uploads/{tmp_path.name}"
    if request.param != "lake":
        return (azure if request.param == "azurite" else google)(server).files("contract", path)
    server.client().create_bucket(Bucket="contract")
    storage = TableStorage(server.endpoint, REGION, True, server.access_key, server.secret_key)
    return TableSpec(f"s3://contract/{path}", storage)


def test_written_files_are_in_the_store_when_all_are_waited_for(files: TableSpec) -> None:
    folder = open_data_folder(files, UploadThreads())
    sizes = {f"day=2026-01-0{number}/part-{number}": number * MEMORY_BYTES // 2 for number in range(5)}
    written = {path: bytes([7]) * size for path, size in sizes.items()}
    put(folder, written)
    folder.wait()
    folder.close()
    assert keys(files) == sorted(written)
    assert {path: stored(files, path) for path in written} == written


def test_a_tasks_files_are_whole_objects_that_arrow_reads(files: TableSpec) -> None:
    written = committing.written(replace(files, target_bytes=150_000, compression="none"), 40_000, parts=4)
    assert len(written) > 1 and [len(stored(files, file.path)) for file in written] == [file.size for file in written]
    assert sum(pq.read_metadata(io.BytesIO(stored(files, file.path))).num_rows for file in written) == 40_000


def test_a_large_file_waits_on_the_disk(files: TableSpec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place = tmp_path / "local"
    place.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{place},{tmp_path / 'gone'}")
    folder = open_data_folder(files, UploadThreads())
    content = random.Random(8).randbytes(3 * MEMORY_BYTES)
    file, most = folder.open("part-0"), 0
    for at in range(0, len(content), 1_000_003):
        file.write(content[at : at + 1_000_003])
        most = max(most, folder.waiting_bytes(file))
    assert 0 < most <= MEMORY_BYTES and folder.waiting_bytes(file) == 0
    assert os.readlink(f"/proc/self/fd/{file.fileno()}").startswith(str(place))
    assert list(place.iterdir()) == [], "nothing is left behind, however the task ends"
    folder.finish("part-0", file)
    folder.wait()
    folder.close()
    assert stored(files, "part-0") == content


def test_a_file_that_is_not_finished_is_never_seen(files: TableSpec) -> None:
    folder = open_data_folder(files, UploadThreads())
    folder.open("part-0").write(b"half of")
    folder.close()
    assert keys(files) == []


def test_a_missing_container_fails_the_task_with_the_name_of_the_setting(cloud: Cloud) -> None:
    writer = TableWriter(cloud.files("no-such-place", "t"), 0, UploadThreads())
    writer.add(ORDERS, plain(10))
    with pytest.raises(TableError, match=r"no-such-place \(setting ingest\.table\) "):
        writer.finish()
    writer.close()


def refused_by(answers: list[bytes], **access: str) -> str:
    """The error of an upload to Azure, where the service gives these answers."""
    with ScriptedHttp(answers) as server:
        endpoint = f"{server.url}/mine"
        storage = TableStorage(azure_account_name="mine", azure_endpoint_url=endpoint, **access)  # type: ignore[arg-type]
        return upload_error(TableSpec("az://lake/t", storage))


@pytest.mark.parametrize("access", [{"azure_account_key": SECRET}, {"azure_sas_token": SIGNATURE}])
def test_a_refused_upload_names_settings_and_role_but_no_secret(access: dict[str, str]) -> None:
    text = refused_by([error(403, "AuthorizationPermissionMismatch")], **access)
    assert re.search("az://lake/t/part-0.*403 AuthorizationPermissionMismatch.*ingest.storage.azure", text)
    assert "Storage Blob Data Contributor" in text
    assert SECRET not in text and "sig=" not in text


def test_an_upload_is_repeated_as_often_as_other_requests() -> None:
    answers = [*[error(500, "InternalError")] * 3, error(503, "Unavailable"), error(403, "NotAskedFor")]
    text = refused_by(answers, azure_account_key=SECRET)
    assert "503 Unavailable" in text and "az://lake/t/part-0" in text


def test_a_service_that_is_not_there_is_named() -> None:
    storage = TableStorage(
        azure_account_name="mine", azure_account_key=SECRET, azure_endpoint_url="http://127.0.0.1:1/mine"
    )
    error = upload_error(TableSpec("az://lake/t", storage))
    assert "127.0.0.1:1/mine (option ingest.storage.azure.endpoint.url) " in error


def test_credentials_that_cannot_be_read_fail_the_task_without_a_secret() -> None:
    error = upload_error(TableSpec("gs://lake/t", TableStorage(gcs_credentials_json=SECRET)))
    assert re.search(r"gs://lake.*ingest\.storage\.gcs\.credentials\.json", error)
    assert SECRET not in error
