"""What one Python process without Spark makes of a topic: decoding, scans, exports, and reads from each store."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import confluent_kafka
import obstore
from kafka import KafkaConsumer, TopicPartition
from kafka.record.memory_records import MemoryRecords

from tests.rigs.bench.bare import ranges
from tests.rigs.bench.figures import Row
from tests.rigs.bench.rig import Rig
from tests.rigs.bench.shapes import Shape
from tests.rigs.bench.turns import Claim, Contender, rows_of, timed
from tests.rigs.stack import native_crc  # noqa: F401 - it is enough that it is imported
from tests.rigs.stack.azurite import ACCOUNT, Azurite, why_no_azurite
from tests.rigs.stack.batches import record_batch
from tests.rigs.stack.build import ROOT
from tests.rigs.stack.fake_gcs import FakeGcs, key_without_token, why_no_fake_gcs
from tests.rigs.stack.rows import Record
from tests.rigs.stack.tools import CONSOLE_CONSUMER, run_tool
from tiered_stream import scan
from tiered_stream.options.parsing import StorageOptions, parse_options
from tiered_stream.records.decoder import RecordBatchDecoder
from tiered_stream.storage.open_store import open_service

if TYPE_CHECKING:
    from tiered_stream.storage.cloud_store import Client

SOME_RECORDS = 500_000
"""Of a topic's records they read so many: all of them would take minutes."""
KAFKA_PYTHON, CONFLUENT = "kafka-python", "confluent-kafka"
_FETCH_BYTES = 16 << 20
_AT_ONCE = 10_000


def kafka_python_reads(bootstrap_servers: str, shape: Shape, records: int) -> None:
    """At least so many records."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=_FETCH_BYTES,
        max_poll_records=_AT_ONCE,
    )
    consumer.assign([TopicPartition(shape.topic, number) for number in range(shape.partitions)])
    found = 0
    while found < records:
        found += sum(map(len, consumer.poll(10_000).values()))
    consumer.close()


def confluent_reads(bootstrap_servers: str, shape: Shape, records: int) -> None:
    """At least so many records."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "max.partition.fetch.bytes": _FETCH_BYTES,
            "fetch.max.bytes": 4 * _FETCH_BYTES,
        }
    )
    consumer.assign(
        [
            confluent_kafka.TopicPartition(shape.topic, number, confluent_kafka.OFFSET_BEGINNING)
            for number in range(shape.partitions)
        ]
    )
    found = 0
    while found < records:
        for message in consumer.consume(_AT_ONCE, 10):
            assert message.error() is None, message.error()
            found += bool(message.value())
    consumer.close()


RECORDS_IN_BATCH = 140
BATCHES = 8_000
REQUEST_BYTES = 8 << 20
KAFKA_PYTHONS_SHARE = 20
"""It reads one of so many batches: all of them would take minutes."""
DECODER, WITHOUT_CRC = "our decoder", "the same, no CRC"
DECODE_CLAIMS = (
    Claim("decode, one core", DECODER, KAFKA_PYTHON, 50, 60),
    Claim("decode, one core", DECODER, CONFLUENT, 5, 10),
    Claim("decode, one core", DECODER, WITHOUT_CRC),
)


def build_log(batches: int) -> bytes:
    """A log of uncompressed batches with consecutive offsets."""
    template = record_batch([Record(None, bytes(100))] * RECORDS_IN_BATCH, "none")
    return b"".join((index * RECORDS_IN_BATCH).to_bytes(8, "big") + template[8:] for index in range(batches))


def measure_decode(rig: Rig, runs: int) -> Iterator[Row]:
    """confluent-kafka reads a topic that is in its broker's own log."""
    log = build_log(BATCHES)
    pieces = [log[start : start + REQUEST_BYTES] for start in range(0, len(log), REQUEST_BYTES)]
    some = build_log(BATCHES // KAFKA_PYTHONS_SHARE)
    records = BATCHES * RECORDS_IN_BATCH
    untiered = rig.topic("G")
    fetched = min(SOME_RECORDS, untiered.records)
    confluent = partial(confluent_reads, rig.stack.bootstrap_servers, untiered, fetched)
    contenders = {
        DECODER: _decoding(lambda: _decode(pieces, check_crcs=True), records),
        WITHOUT_CRC: _decoding(lambda: _decode(pieces, check_crcs=False), records),
        KAFKA_PYTHON: _decoding(lambda: _read_log(some), records // KAFKA_PYTHONS_SHARE),
        CONFLUENT: Contender(timed(confluent, time.process_time), fetched, partial(rig.settle, untiered)),
    }
    yield from rows_of(DECODE_CLAIMS, contenders, runs)


def _decoding(work: Callable[[], int], records: int) -> Contender:
    def decode() -> None:
        assert work() == records

    return Contender(timed(decode, time.process_time), records)


def _decode(pieces: list[bytes], *, check_crcs: bool) -> int:
    decoder = RecordBatchDecoder("topic", 0, 0, 1 << 60, check_crcs=check_crcs)
    return sum(batch.num_rows for piece in pieces for batch in decoder.feed(piece))


def _read_log(log: bytes) -> int:
    records, count = MemoryRecords(log), 0
    while (batch := records.next_batch()) is not None:
        batch.validate_crc()
        count += sum(1 for _ in batch)
    return count


SCAN, ORDERED = "tiered_stream.scan", "the same, in order"
SCAN_CLAIMS = (
    Claim("scan A", SCAN, CONFLUENT),
    Claim("scan A", SCAN, KAFKA_PYTHON),
    Claim("scan A", SCAN, ORDERED),
)


def measure_scan(rig: Rig, runs: int) -> Iterator[Row]:
    """Per record, from the first request on."""
    shape = rig.topic("A")
    some = min(SOME_RECORDS, shape.records)
    servers = rig.stack.bootstrap_servers
    contenders = {
        SCAN: Contender(timed(partial(_scan, rig.options(shape), shape.rows, ordered=False)), shape.rows),
        ORDERED: Contender(timed(partial(_scan, rig.options(shape), shape.rows)), shape.rows),
        CONFLUENT: Contender(timed(partial(confluent_reads, servers, shape, some)), some),
        KAFKA_PYTHON: Contender(timed(partial(kafka_python_reads, servers, shape, some)), some),
    }
    yield from rows_of(SCAN_CLAIMS, contenders, runs)


def _scan(options: Mapping[str, str], rows: int, *, ordered: bool = True) -> None:
    found = sum(batch.num_rows for batch in scan(dict(options), ordered=ordered))
    assert found == rows, f"{found} records, not {rows}"


PARQUET, FOLDER, LINES = "export, Parquet", "a folder", "JSON lines"
SCAN_IN_ORDER, CONSOLE = "scan, in order", "console consumer"
CONSOLE_RECORDS = 1_000_000
"""The console consumer reads only this many records of a topic."""
_MEASURED = """
import atexit, re, runpy
atexit.register(lambda: print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]))
runpy.run_module("tiered_stream", run_name="__main__")
"""
"""Program that runs the command in its arguments, and prints the KiB of memory that it took at the most.

`ru_maxrss` would have the memory of the bench, from which the process is forked.
"""
EXPORT_CLAIMS = (
    Claim("export A", PARQUET, SCAN_IN_ORDER),
    Claim("export A", PARQUET, FOLDER),
    Claim("export A", PARQUET, LINES),
    Claim("export A", PARQUET, CONSOLE),
)


def measure_export(rig: Rig, runs: int) -> Iterator[Row]:
    """Per record, with the start of the process, except for `scan`."""
    shape = rig.topic("A")
    some = min(CONSOLE_RECORDS, shape.records)
    with TemporaryDirectory(dir=ROOT / "build") as folder:
        contenders = {SCAN_IN_ORDER: Contender(timed(partial(_scan, rig.options(shape), shape.rows)), shape.rows)}
        for name, target in ((PARQUET, "all.parquet"), (FOLDER, "all/"), (LINES, "all.jsonl")):
            contender = Contender(lambda: 0.0, shape.rows)
            contender.run = partial(_export, rig.options(shape), f"{folder}/{target}", contender)
            contenders[name] = contender
        contenders[CONSOLE] = Contender(timed(partial(_console, rig.stack.bootstrap_servers, shape, some)), some)
        yield from rows_of(EXPORT_CLAIMS, contenders, runs)


def _export(options: Mapping[str, str], into: str, contender: Contender) -> float:
    words = [word for name, value in options.items() for word in ("--option", f"{name}={value}")]
    command = [sys.executable, "-c", _MEASURED, "export", *words, "--into", into, "--overwrite"]
    begin = time.perf_counter()
    printed = subprocess.check_output(command, stderr=subprocess.DEVNULL, text=True)
    seconds = time.perf_counter() - begin
    contender.tell(**{"process MiB": int(printed.split()[-1]) / 1024})
    return seconds


def _console(bootstrap_servers: str, shape: Shape, records: int) -> None:
    arguments = ["--bootstrap-server", bootstrap_servers, "--topic", shape.topic, "--from-beginning"]
    arguments += ["--max-messages", str(records)]
    run_tool(CONSOLE_CONSUMER, arguments, stdout=subprocess.DEVNULL, jvm_options=())


BARE = "bare GETs"
_BUCKET = "tier"
_REQUESTS_AT_ONCE = 8


def measure_stores(rig: Rig, runs: int) -> Iterator[Row]:
    """A row for each store; one whose program is missing has none."""
    shape = rig.topic("A")
    with ExitStack() as ending:
        stores: dict[str, Mapping[str, str]] = {"S3Proxy": {}, "versitygw": rig.lighter_options(shape)}
        if not why_no_azurite():
            stores["Azurite"] = _in_azurite(rig, shape, ending)
        if not why_no_fake_gcs():
            stores["fake-gcs-server"] = _in_fake_gcs(rig, shape, ending)
        for name, options in stores.items():
            yield from _rows_of_store(rig, shape, name, {**rig.options(shape), **options}, runs)


def _rows_of_store(rig: Rig, shape: Shape, name: str, options: Mapping[str, str], runs: int) -> list[Row]:
    sizes = {rig.key(file): file.stat().st_size for file in rig.tier_files(shape)}
    storage = parse_options(dict(options), streaming=False).storage
    contenders = {
        SCAN: Contender(timed(partial(_scan, options, shape.rows, ordered=False)), 1, partial(rig.settle, shape)),
        BARE: Contender(timed(partial(_receive, _client(storage), storage, sizes)), 1, partial(rig.settle, shape)),
    }
    return rows_of([Claim(f"store {name}", SCAN, BARE)], contenders, runs)


def _receive(client: Any, storage: StorageOptions, sizes: Mapping[str, int]) -> None:
    prefix = urlsplit(storage.uri or "").path.strip("/")

    def received(part: tuple[str, int, int]) -> int:
        key, start, end = part
        return len(obstore.get_range(client, f"{prefix}/{key}".lstrip("/"), start=start, end=end))

    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
        assert sum(pool.map(received, ranges(sizes, REQUEST_BYTES))) == sum(sizes.values())


def _client(storage: StorageOptions) -> Client:
    return open_service(storage).connect(60)


def _in_azurite(rig: Rig, shape: Shape, ending: ExitStack) -> Mapping[str, str]:
    server = ending.enter_context(Azurite(rig.folder / "azurite"))
    server.create_container(_BUCKET)
    options = {
        "remote.storage.uri": f"az://{_BUCKET}",
        "remote.storage.azure.account.name": ACCOUNT,
        "remote.storage.azure.account.key": server.key,
        "remote.storage.azure.endpoint.url": server.own_endpoint,
    }
    client = _client(StorageOptions(uri=options["remote.storage.uri"], **server.options()))  # type: ignore[arg-type]
    rig.copy_tier(shape, lambda key, data: obstore.put(client, key, data))
    return options


def _in_fake_gcs(rig: Rig, shape: Shape, ending: ExitStack) -> Mapping[str, str]:
    server = ending.enter_context(FakeGcs(rig.folder / "fake-gcs"))
    server.create_bucket(_BUCKET)
    rig.copy_tier(shape, partial(server.upload, _BUCKET))
    return {
        "remote.storage.uri": f"gs://{_BUCKET}",
        "remote.storage.gcs.credentials.json": key_without_token(server.own_endpoint),
        "remote.storage.gcs.endpoint.url": server.own_endpoint,
    }
