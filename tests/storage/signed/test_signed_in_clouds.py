"""URLs that are signed with the keys of Azure's and Google's storage, followed as a reader follows them."""

from __future__ import annotations

import json
from collections.abc import Callable

import obstore
import pytest
from Crypto.PublicKey import RSA

from tests.rigs.stack.azurite import Azurite
from tests.rigs.stack.fake_gcs import FakeGcs
from tests.storage.segment import segment
from tiered_stream.errors import StorageAccessError
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.azure import AzureContainer
from tiered_stream.storage.local_layout import LocalLayoutFetcher, object_key
from tiered_stream.storage.open_store import open_store
from tiered_stream.storage.signed.presigned import PresignedFetcher, signed_requests

SEGMENT = segment(1000)
KEY = object_key(SEGMENT, ".log")
DATA = bytes(range(250)) * 4

Filled = Callable[[], StorageOptions]

pytestmark = pytest.mark.stack


def by_azure(server: Azurite) -> StorageOptions:
    options = StorageOptions(**server.options(), uri="az://contract/signed")  # type: ignore[arg-type]
    obstore.put(AzureContainer(options).connect(60), f"signed/{KEY}", DATA)
    return options


def by_google(server: FakeGcs) -> StorageOptions:
    """The service account has a key, with which URLs are signed without a request."""
    server.upload("contract", f"signed/{KEY}", DATA)
    account = json.loads(server.credentials) | {
        "client_email": "gateway@project.example", "private_key_id": "1",
        "private_key": RSA.generate(2048).export_key("PEM", pkcs=8).decode(), "disable_oauth": False,
    }  # fmt: skip
    options = server.options() | {"gcs_credentials_json": json.dumps(account)}
    return StorageOptions(**options, uri="gs://contract/signed")  # type: ignore[arg-type]


@pytest.mark.parametrize(("server", "filled"), [("azurite", by_azure), ("fake_gcs", by_google)])
def test_a_signed_url_reaches_the_segment_without_a_credential(
    request: pytest.FixtureRequest, server: str, filled: Callable[[object], StorageOptions]
) -> None:
    options = filled(request.getfixturevalue(server))
    url = LocalLayoutFetcher(open_store(options)).signed_location(SEGMENT, 60)
    assert url is not None
    reader = PresignedFetcher({SEGMENT.segment_id: url}, lambda _: None, signed_requests(options))
    assert reader.fetch_log_segment(SEGMENT, 10, 30) == DATA[10:30]
    assert reader.fetch_log_segment(SEGMENT, 0) == DATA
    assert "?" not in reader.describe(SEGMENT) and KEY in reader.describe(SEGMENT)


def test_azure_refuses_a_url_with_another_signature(azurite: Azurite) -> None:
    options = by_azure(azurite)
    url = LocalLayoutFetcher(open_store(options)).signed_location(SEGMENT, 60)
    assert url is not None
    wrong = url.replace("sig=", "sig=x")
    reader = PresignedFetcher({SEGMENT.segment_id: wrong}, lambda _: wrong, signed_requests(options))
    with pytest.raises(StorageAccessError, match="is refused") as caught:
        reader.fetch_log_segment(SEGMENT, 0, 10)
    assert "sig=" not in str(caught.value)
