"""How fast one Python process without Spark reads a tiered topic: our `scan`, kafka-python and confluent-kafka."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tests.rigs.bench.figures import Row
from tests.rigs.bench.plain_clients import CONFLUENT, KAFKA_PYTHON, SOME_RECORDS, confluent_reads, kafka_python_reads
from tests.rigs.bench.rig import Rig
from tests.rigs.bench.shapes import Shape
from tests.rigs.bench.turns import Claim, Contender, rows_of, timed
from tiered_stream import scan

OURS, ORDERED = "tiered_stream.scan", "the same, in order"
CLAIMS = (
    Claim("scan A", OURS, CONFLUENT),
    Claim("scan A", OURS, KAFKA_PYTHON),
    Claim("scan A", OURS, ORDERED),
)


def measure(rig: Rig, runs: int) -> Iterator[Row]:
    """Per record, from the first request on."""
    shape = rig.topic("A")
    some = min(SOME_RECORDS, shape.records)
    servers = rig.stack.bootstrap_servers
    contenders = {
        OURS: Contender(timed(partial(_scan, rig, shape, ordered=False)), shape.rows),
        ORDERED: Contender(timed(partial(_scan, rig, shape, ordered=True)), shape.rows),
        CONFLUENT: Contender(timed(partial(confluent_reads, servers, shape, some)), some),
        KAFKA_PYTHON: Contender(timed(partial(kafka_python_reads, servers, shape, some)), some),
    }
    yield from rows_of(CLAIMS, contenders, runs)


def _scan(rig: Rig, shape: Shape, *, ordered: bool) -> None:
    found = sum(batch.num_rows for batch in scan(rig.options(shape), ordered=ordered))
    assert found == shape.rows, f"{found} records, not {shape.rows}"
