"""URLs that are signed with the key of Azure's storage, followed as a reader follows them."""

from __future__ import annotations

import obstore
import pytest

from tests.rigs.stack.azurite import Azurite
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


pytestmark = pytest.mark.stack


def signed_by_azure(server: Azurite) -> tuple[StorageOptions, str]:
    """The options that lead to the segment, and its signed URL."""
    options = StorageOptions(**server.options(), uri="az://contract/signed")  # type: ignore[arg-type]
    obstore.put(AzureContainer(options).connect(60), f"signed/{KEY}", DATA)
    url = LocalLayoutFetcher(open_store(options)).signed_location(SEGMENT, 60)
    assert url is not None
    return options, url


def test_a_signed_url_reaches_the_segment_without_a_credential(azurite: Azurite) -> None:
    options, url = signed_by_azure(azurite)
    reader = PresignedFetcher({SEGMENT.segment_id: url}, lambda _: None, signed_requests(options))
    assert reader.fetch_log_segment(SEGMENT, 10, 30) == DATA[10:30]
    assert reader.fetch_log_segment(SEGMENT, 0) == DATA
    assert "?" not in reader.describe(SEGMENT) and KEY in reader.describe(SEGMENT)


def test_azure_refuses_a_url_with_another_signature(azurite: Azurite) -> None:
    options, url = signed_by_azure(azurite)
    wrong = url.replace("sig=", "sig=x")
    reader = PresignedFetcher({SEGMENT.segment_id: wrong}, lambda _: wrong, signed_requests(options))
    with pytest.raises(StorageAccessError, match="is refused") as caught:
        reader.fetch_log_segment(SEGMENT, 0, 10)
    assert "sig=" not in str(caught.value)
