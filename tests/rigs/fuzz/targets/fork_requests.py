"""What a fork server is asked for by a program of the same user."""

from __future__ import annotations

from random import Random

from tests.rigs.fuzz.mutation import number, spoiled
from tests.rigs.fuzz.target import Target
from tiered_stream.pythons.fork_server import parse_request

_FIELDS = (b"3", b"/work", b"-m", b"pyspark.daemon", b"pyspark.worker", b"PYTHONPATH=/a:/b", b"LANG=C", b"EMPTY=")


def fields(random: Random) -> bytes:
    count = b"%d" % number(random) if random.random() < 0.3 else _FIELDS[0]
    return spoiled(random, b"\0".join((count, *_FIELDS[1:])))


TARGETS = (Target("fork-requests", fields, parse_request, (ValueError,)),)
