from __future__ import annotations

import pytest

from tiered_stream.errors import StorageAccessError
from tiered_stream.model import ByteRange
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.open_store import open_store

SECRET = "the-secret-that-nobody-may-see"


@pytest.mark.parametrize("credentials", [{"gcs_credentials_json": SECRET}, {"gcs_credentials_path": "/nonexistent"}])
def test_credentials_that_cannot_be_read_name_the_options_and_show_no_secret(credentials: dict[str, str]) -> None:
    options = StorageOptions(uri="gs://bucket/p", gcs_endpoint_url="http://127.0.0.1:1", **credentials)  # type: ignore[arg-type]
    with pytest.raises(StorageAccessError, match="no credentials for gs://bucket.*gcs.credentials.json") as caught:
        open_store(options).get("key", ByteRange(0, 1))
    assert SECRET not in str(caught.value)
