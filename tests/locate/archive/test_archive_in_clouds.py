"""The golden archives in Azure's and Google's storage, read by the properties that the plugin's broker would have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import obstore
import pytest

from tests.archives import COMMITTED, PLAIN, TRANSFORMED, archive_options, consumed, planned, read_all
from tests.golden import golden
from tests.stack.azurite import ACCOUNT, KEY, Azurite, why_no_azurite
from tests.stack.fake_gcs import FakeGcs, why_no_fake_gcs
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.azure import AzureContainer

_BACKENDS = "io.aiven.kafka.tieredstorage.storage"

Put = Callable[[str, bytes], object]


def pasted(**properties: str) -> dict[str, str]:
    return {f"rsm.config.storage.{name.replace('__', '.')}": value for name, value in properties.items()}


@pytest.fixture
def azure(tmp_path: Path) -> Iterator[tuple[dict[str, str], Put]]:
    if missing := why_no_azurite():
        pytest.skip(missing)
    server = Azurite(tmp_path / "azurite")
    server.start()
    try:
        server.create_container("tier")
        client = AzureContainer(StorageOptions(**server.options(), uri="az://tier")).connect(60)  # type: ignore[arg-type]
        yield (
            pasted(
                backend__class=f"{_BACKENDS}.azure.AzureBlobStorage", azure__container__name="tier",
                azure__account__name=ACCOUNT, azure__account__key=KEY, azure__endpoint__url=server.endpoint,
            ),
            lambda key, data: obstore.put(client, key, data),
        )  # fmt: skip
    finally:
        server.stop()


@pytest.fixture
def google(tmp_path: Path) -> Iterator[tuple[dict[str, str], Put]]:
    if missing := why_no_fake_gcs():
        pytest.skip(missing)
    server = FakeGcs(tmp_path / "gcs")
    server.start()
    try:
        server.create_bucket("tier")
        yield (
            pasted(
                backend__class=f"{_BACKENDS}.gcs.GcsStorage", gcs__bucket__name="tier",
                gcs__credentials__json=server.credentials, gcs__endpoint__url=server.endpoint,
            ),
            lambda key, data: server.upload("tier", key, data),
        )  # fmt: skip
    finally:
        server.stop()


@pytest.mark.stack
@pytest.mark.parametrize("name", [PLAIN, TRANSFORMED])
@pytest.mark.parametrize("cloud", ["azure", "google"])
def test_a_golden_archive_gives_the_rows_that_consumers_had(
    request: pytest.FixtureRequest, cloud: str, name: str
) -> None:
    storage, put = request.getfixturevalue(cloud)
    bucket = golden(name).bucket
    for path in sorted(bucket.rglob("*")):
        if path.is_file():
            put(path.relative_to(bucket).as_posix(), path.read_bytes())
    options = archive_options(name, storage=storage)
    assert read_all(planned(options), options) == consumed(name, COMMITTED)
