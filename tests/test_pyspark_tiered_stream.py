"""Spark finds the source by itself."""

from __future__ import annotations

import io
import struct

from pyspark.serializers import CPickleSerializer
from pyspark.sql.worker import lookup_data_sources

from tiered_stream.spark.source import TieredStreamDataSource


def test_sparks_own_look_up_finds_the_source() -> None:
    """What the lookup process writes: how many sources there are, and the name and the pickle of each."""
    answer = io.BytesIO()
    lookup_data_sources._main(io.BytesIO(), answer)
    answer.seek(0)
    found = {}
    for _ in range(struct.unpack("!i", answer.read(4))[0]):
        name, pickled = (answer.read(struct.unpack("!i", answer.read(4))[0]) for _ in range(2))
        found[name.decode()] = CPickleSerializer().loads(pickled)
    assert found == {"tiered_stream": TieredStreamDataSource}
