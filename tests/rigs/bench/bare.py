"""The least that has to be done: the bytes of a topic's objects read from S3, and ready rows written as Parquet."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow.parquet as pq

from tests.rigs.bench.ready_made import ready_batch
from tests.rigs.bench.rig import Rig
from tests.rigs.bench.shapes import Shape
from tests.rigs.stack.children import Child
from tests.rigs.stack.s3_client import s3_client

PROCESSES = 2
_IN_FLIGHT, _REQUEST_BYTES = 4, 16 << 20
_GROUP_BYTES = 16 << 20


def read_and_write(rig: Rig, shape: Shape) -> float:
    """Seconds, from the first request on; as many processes as Spark has cores."""
    keys = list(map(rig.key, rig.tier_files(shape)))
    server = rig.stack.s3_endpoint, rig.stack.access_key, rig.stack.secret_key
    with ExitStack() as ending:
        children = []
        for number in range(PROCESSES):
            part = shape.rows // PROCESSES, shape.record_bytes, rig.folder / f"bare-{number}.parquet"
            objects = rig.stack.bucket, keys[number::PROCESSES]
            child = Child(rig.folder / "bare.log", _read_and_write, server, *objects, *part)
            children.append(ending.enter_context(child))
        assert [child.receive() for child in children] == ["ready"] * PROCESSES
        begin = time.perf_counter()
        for child in children:
            child.connection.send("go")
        assert [child.receive() for child in children] == ["done"] * PROCESSES
        return time.perf_counter() - begin


def ranges(sizes: Mapping[str, int], request_bytes: int) -> list[tuple[str, int, int]]:
    """Return key, start and end of each request for objects of these sizes."""
    return [
        (key, start, min(start + request_bytes, size))
        for key, size in sizes.items()
        for start in range(0, size, request_bytes)
    ]


def _read_and_write(
    connection: Connection, server: tuple[str, str, str], bucket: str, keys: list[str], rows: int, value_bytes: int,
    file: Path,
) -> None:  # fmt: skip
    client = s3_client(*server)
    sizes = {key: client.head_object(Bucket=bucket, Key=key)["ContentLength"] for key in keys}
    wanted = ranges(sizes, _REQUEST_BYTES)
    group = ready_batch(max(1, _GROUP_BYTES // value_bytes), value_bytes)
    connection.send("ready")
    connection.recv()

    def fetched(each: tuple[str, int, int]) -> int:
        key, start, end = each
        return len(client.get_object(Bucket=bucket, Key=key, Range=f"bytes={start}-{end - 1}")["Body"].read())

    left = rows
    with ThreadPoolExecutor(_IN_FLIGHT) as pool, pq.ParquetWriter(file, group.schema, compression="none") as writer:
        reading = [pool.submit(fetched, each) for each in wanted]
        while left > 0:
            some = group.slice(0, min(left, group.num_rows))
            writer.write_batch(some)
            left -= some.num_rows
        assert sum(each.result() for each in reading) == sum(end - start for _, start, end in wanted)
    connection.send("done")
