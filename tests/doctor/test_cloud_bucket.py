from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.delta.clouds import Cloud, keys
from tiered_stream.doctor.cloud_bucket import list_folder, write_object
from tiered_stream.errors import StorageAccessError, StorageError


def test_a_folder_that_can_be_listed_and_written_is_found_good(cloud: Cloud, tmp_path: Path) -> None:
    files = cloud.files("contract", f"doctor/{tmp_path.name}")
    assert list_folder(files).description == f"{files.uri}/ exists and can be listed"
    assert write_object(files, ".tried")
    assert keys(files) == []


def test_a_missing_place_is_an_error_that_names_the_setting(cloud: Cloud) -> None:
    files = cloud.files("no-such-place", "t")
    says = r"no-such-place \(setting ingest.table\) does not exist"
    with pytest.raises(StorageError, match=says):
        write_object(files, ".tried")
    # fake-gcs-server lists a missing bucket with an internal error.
    with pytest.raises(StorageError, match=says if cloud.scheme == "az" else "500"):
        list_folder(files)


@pytest.mark.stack
def test_refused_credentials_are_an_error_that_names_settings_and_role(cloud: Cloud) -> None:
    if cloud.scheme == "gs":
        pytest.skip("fake-gcs-server asks nobody for credentials")
    wrong = "d3Jvbmcgc2VjcmV0"
    files = replace(cloud.files("contract", "t"), storage=replace(cloud.storage, azure_account_key=wrong))
    with pytest.raises(StorageAccessError) as raised:
        list_folder(files)
    assert "403" in str(raised.value) and wrong not in str(raised.value)
    assert "ingest.storage.azure" in str(raised.value) and "Storage Blob Data Contributor" in str(raised.value)
