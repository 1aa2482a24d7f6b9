"""The least that has to be done: the bytes of a topic's objects read from S3, and ready rows written as Parquet.

python -m tests.rigs.bench.bare ENDPOINT ACCESS_KEY SECRET_KEY BUCKET ROWS VALUE_BYTES FILE KEY…
"""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow.parquet as pq

from tests.rigs.bench.ready_made import ready_batch
from tests.rigs.bench.rig import Rig
from tests.rigs.bench.shapes import Shape
from tests.rigs.stack.s3_client import s3_client
from tests.rigs.stack.spark import spark_environment

PROCESSES = 2
_IN_FLIGHT, _REQUEST_BYTES = 4, 16 << 20
_GROUP_BYTES = 16 << 20


def read_and_write(rig: Rig, shape: Shape) -> float:
    """Seconds, from the first request on; as many processes as Spark has cores."""
    keys = [str(file.relative_to(rig.stack.tier_dir)) for file in rig.tier_files(shape)]
    stack, processes = rig.stack, []
    for number in range(PROCESSES):
        given = [stack.s3_endpoint, stack.access_key, stack.secret_key, stack.bucket, shape.rows // PROCESSES]
        words = [*given, shape.record_bytes, rig.folder / f"bare-{number}.parquet", *keys[number::PROCESSES]]
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.rigs.bench.bare", *map(str, words)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=spark_environment(),
            )
        )
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    begin = time.perf_counter()
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    assert [process.wait() for process in processes] == [0] * PROCESSES
    return time.perf_counter() - begin


def main() -> None:
    endpoint, access_key, secret_key, bucket, rows, value_bytes, file, *keys = sys.argv[1:]
    client = s3_client(endpoint, access_key, secret_key)
    sizes = {key: client.head_object(Bucket=bucket, Key=key)["ContentLength"] for key in keys}
    wanted = [
        (key, start, min(start + _REQUEST_BYTES, size))
        for key, size in sizes.items()
        for start in range(0, size, _REQUEST_BYTES)
    ]
    group = ready_batch(max(1, _GROUP_BYTES // int(value_bytes)), int(value_bytes))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()

    def fetched(each: tuple[str, int, int]) -> int:
        key, start, end = each
        return len(client.get_object(Bucket=bucket, Key=key, Range=f"bytes={start}-{end - 1}")["Body"].read())

    left = int(rows)
    with ThreadPoolExecutor(_IN_FLIGHT) as pool, pq.ParquetWriter(file, group.schema, compression="none") as writer:
        reading = [pool.submit(fetched, each) for each in wanted]
        while left > 0:
            some = group.slice(0, min(left, group.num_rows))
            writer.write_batch(some)
            left -= some.num_rows
        assert sum(each.result() for each in reading) == sum(end - start for _, start, end in wanted)


if __name__ == "__main__":
    main()
