"""The golden archives in Azure's and Google's storage and in HDFS, read by the properties of the plugin's broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import obstore
import pytest

from tests.archives import COMMITTED, PLAIN, TRANSFORMED, archive_options, consumed, planned, read_all
from tests.golden import golden
from tests.rigs.stack.azurite import ACCOUNT, KEY, Azurite, why_no_azurite
from tests.rigs.stack.fake_gcs import FakeGcs, why_no_fake_gcs
from tests.rigs.stack.hdfs import Hdfs
from tests.storage.golden_aiven import KEY_PREFIX, big_segment, segments
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.aiven.aiven_fetcher import main_path
from tiered_stream.storage.azure import AzureContainer

_BACKENDS = "io.aiven.kafka.tieredstorage.storage"

Put = Callable[[str, bytes], object]


def pasted(**properties: str) -> dict[str, str]:
    return {f"rsm.config.storage.{name.replace('__', '.')}": value for name, value in properties.items()}


@pytest.fixture
def azure(tmp_path: Path) -> Iterator[tuple[dict[str, str], Put]]:
    if missing := why_no_azurite():
        pytest.skip(missing)
    with Azurite(tmp_path / "azurite") as server:
        server.create_container("tier")
        client = AzureContainer(StorageOptions(**server.options(), uri="az://tier")).connect(60)  # type: ignore[arg-type]
        yield (
            pasted(
                backend__class=f"{_BACKENDS}.azure.AzureBlobStorage", azure__container__name="tier",
                azure__account__name=ACCOUNT, azure__account__key=KEY, azure__endpoint__url=server.endpoint,
            ),
            lambda key, data: obstore.put(client, key, data),
        )  # fmt: skip


@pytest.fixture
def google(tmp_path: Path) -> Iterator[tuple[dict[str, str], Put]]:
    if missing := why_no_fake_gcs():
        pytest.skip(missing)
    with FakeGcs(tmp_path / "gcs") as server:
        server.create_bucket("tier")
        yield (
            pasted(
                backend__class=f"{_BACKENDS}.gcs.GcsStorage", gcs__bucket__name="tier",
                gcs__credentials__json=server.credentials, gcs__endpoint__url=server.endpoint,
            ),
            lambda key, data: server.upload("tier", key, data),
        )  # fmt: skip


@pytest.fixture
def hadoop(hdfs: Hdfs, tmp_path: Path) -> tuple[dict[str, str], Put]:
    properties = pasted(
        backend__class=f"{_BACKENDS}.hdfs.HdfsStorage", hdfs__root=str(tmp_path), hdfs__auth__enabled="false"
    )
    files = {
        f"rsm.config.storage.hdfs.{name}.path": f"{hdfs.conf_dir}/{name}.xml" for name in ("core-site", "hdfs-site")
    }
    return properties | files, put_into(hdfs, tmp_path)


def put_into(hdfs: Hdfs, root: Path) -> Put:
    """Return a function that writes files by Hadoop's client, because ours waits half a second at the end of a file."""
    files, path_of = hdfs.cluster.getFileSystem(), hdfs.java.jvm.org.apache.hadoop.fs.Path

    def put(key: str, data: bytes) -> None:
        file = files.create(path_of(f"{root}/{key}"))
        file.write(data)
        file.close()

    return put


@pytest.mark.stack
@pytest.mark.parametrize(
    ("cloud", "name"),
    [
        *((cloud, name) for cloud in ("azure", "google") for name in (PLAIN, TRANSFORMED)),
        ("hadoop", TRANSFORMED),
        pytest.param("hadoop", PLAIN, marks=pytest.mark.slow),
    ],
)
def test_a_golden_archive_gives_the_rows_that_consumers_had(
    request: pytest.FixtureRequest, cloud: str, name: str
) -> None:
    storage, put = request.getfixturevalue(cloud)
    for key, data in golden(name).objects():
        put(key, data)
    options = archive_options(name, storage=storage)
    assert read_all(planned(options), options) == consumed(name, COMMITTED)


@pytest.mark.parametrize("unfinished", [".log", ".indexes", ".rsm-manifest"])
def test_a_segment_that_a_broker_is_writing_into_hdfs_is_none_before_its_manifest_is_finished(
    hdfs: Hdfs, hadoop: tuple[dict[str, str], Put], tmp_path: Path, unfinished: str
) -> None:
    storage, put = hadoop
    bucket = golden(PLAIN).bucket
    segment = big_segment(PLAIN)
    path, suffixes = KEY_PREFIX[PLAIN] + main_path(segment), (".log", ".indexes", ".rsm-manifest")
    (finished,) = {each for each in segments(PLAIN) if each.topic_partition == segment.topic_partition} - {segment}
    for suffix in suffixes:
        key = KEY_PREFIX[PLAIN] + main_path(finished) + suffix
        put(key, (bucket / key).read_bytes())
    given = {"assign": json.dumps({segment.topic_partition.topic: [segment.topic_partition.partition]})}
    options = archive_options(PLAIN, given, storage)
    before = read_all(planned(options), options)
    assert sum(map(len, before.values())) > 0
    for suffix in suffixes[: suffixes.index(unfinished)]:
        put(path + suffix, (bucket / (path + suffix)).read_bytes())
    files = hdfs.cluster.getFileSystem()
    half = hdfs.java.jvm.org.apache.hadoop.fs.Path(f"{tmp_path}/{path}{unfinished}")
    data = (bucket / (path + unfinished)).read_bytes()
    with closing(files.create(half)) as writer:
        writer.write(data[: len(data) // 2])
        assert read_all(planned(options), options) == before
        writer.write(data[len(data) // 2 :])
    assert (read_all(planned(options), options) == before) == (unfinished != ".rsm-manifest")
