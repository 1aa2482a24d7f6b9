"""How fast a process without Spark reads a topic from each store, beside no more than receiving the same bytes from it.

The stores are the two S3 servers, and the emulators of Azure's and Google's storage, where their programs are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import obstore

from tests.rigs.bench.figures import Row
from tests.rigs.bench.rig import Rig
from tests.rigs.bench.shapes import Shape
from tests.rigs.bench.turns import Claim, Contender, rows_of, timed
from tests.rigs.stack.azurite import ACCOUNT, Azurite, why_no_azurite
from tests.rigs.stack.fake_gcs import FakeGcs, key_without_token, why_no_fake_gcs
from tiered_stream import scan
from tiered_stream.options.parsing import StorageOptions, parse_options
from tiered_stream.storage.open_store import open_service

if TYPE_CHECKING:
    from tiered_stream.storage.cloud_store import Client

OURS, BARE = "tiered_stream.scan", "bare GETs"
_BUCKET = "tier"
_REQUEST_BYTES, _AT_ONCE = 8 << 20, 8


def measure(rig: Rig, runs: int) -> Iterator[Row]:
    """A row for each store; one whose program is missing has none."""
    shape = rig.topic("A")
    with ExitStack() as ending:
        stores: dict[str, Mapping[str, str]] = {"S3Proxy": {}, "versitygw": rig.lighter_options(shape)}
        if not why_no_azurite():
            stores["Azurite"] = _in_azurite(rig, shape, ending)
        if not why_no_fake_gcs():
            stores["fake-gcs-server"] = _in_fake_gcs(rig, shape, ending)
        for name, options in stores.items():
            yield from _rows(rig, shape, name, {**rig.options(shape), **options}, runs)


def _rows(rig: Rig, shape: Shape, name: str, options: Mapping[str, str], runs: int) -> list[Row]:
    sizes = {_key(rig, file): file.stat().st_size for file in rig.tier_files(shape)}
    storage = parse_options(dict(options), streaming=False).storage
    contenders = {
        OURS: Contender(timed(partial(_scan, options, shape.rows)), 1, partial(rig.settle, shape)),
        BARE: Contender(timed(partial(_receive, _client(storage), storage, sizes)), 1, partial(rig.settle, shape)),
    }
    return rows_of([Claim(f"store {name}", OURS, BARE)], contenders, runs)


def _scan(options: Mapping[str, str], rows: int) -> None:
    found = sum(batch.num_rows for batch in scan(dict(options), ordered=False))
    assert found == rows, f"{found} records, not {rows}"


def _receive(client: Any, storage: StorageOptions, sizes: Mapping[str, int]) -> None:
    prefix = urlsplit(storage.uri or "").path.strip("/")
    wanted = [
        (f"{prefix}/{key}".lstrip("/"), start, min(start + _REQUEST_BYTES, size))
        for key, size in sizes.items()
        for start in range(0, size, _REQUEST_BYTES)
    ]

    def received(part: tuple[str, int, int]) -> int:
        key, start, end = part
        return len(obstore.get_range(client, key, start=start, end=end))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        assert sum(pool.map(received, wanted)) == sum(sizes.values())


def _client(storage: StorageOptions) -> Client:
    return open_service(storage).connect(60)


def _in_azurite(rig: Rig, shape: Shape, ending: ExitStack) -> Mapping[str, str]:
    server = Azurite(rig.folder / "azurite")
    ending.callback(server.stop)
    server.start()
    server.create_container(_BUCKET)
    options = {
        "remote.storage.uri": f"az://{_BUCKET}",
        "remote.storage.azure.account.name": ACCOUNT,
        "remote.storage.azure.account.key": server.key,
        "remote.storage.azure.endpoint.url": server.own_endpoint,
    }
    client = _client(StorageOptions(uri=options["remote.storage.uri"], **server.options()))  # type: ignore[arg-type]
    _copy(rig, shape, lambda key, data: obstore.put(client, key, data))
    return options


def _in_fake_gcs(rig: Rig, shape: Shape, ending: ExitStack) -> Mapping[str, str]:
    server = FakeGcs(rig.folder / "fake-gcs")
    ending.callback(server.stop)
    server.start()
    server.create_bucket(_BUCKET)
    _copy(rig, shape, partial(server.upload, _BUCKET))
    return {
        "remote.storage.uri": f"gs://{_BUCKET}",
        "remote.storage.gcs.credentials.json": key_without_token(server.own_endpoint),
        "remote.storage.gcs.endpoint.url": server.own_endpoint,
    }


def _copy(rig: Rig, shape: Shape, upload: Callable[[str, bytes], object]) -> None:
    """Upload the objects of the topic's segments, indexes included."""
    for folder in {file.parent for file in rig.tier_files(shape)}:
        for file in folder.iterdir():
            upload(_key(rig, file), file.read_bytes())


def _key(rig: Rig, file: Path) -> str:
    return str(file.relative_to(rig.stack.tier_dir))
