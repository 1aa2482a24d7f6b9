"""What `load()` says, as far as Spark lets a Python source say it there: it asks for the schema, and no more."""

from __future__ import annotations

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from tiered_stream.errors import ConfigurationError
from tiered_stream.spark.source import TieredStreamDataSource


def source(**given: str) -> TieredStreamDataSource:
    return TieredStreamDataSource(CaseInsensitiveDict({"kafka.bootstrap.servers": "b:9092", "subscribe": "t", **given}))


@pytest.mark.contract("1.1 errors at load")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("includeHeaders", "yes"),
        ("minPartitions", "1.0"),
        ("startingOffsets", "{'t':{'0':1}}"),
        ("assign", '{"t":[0]}'),
    ],
)
def test_what_no_query_takes_is_refused_at_load(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        source(**{name: value}).schema()


@pytest.mark.contract("1.1 errors at load")
def test_what_one_kind_of_query_refuses_is_refused_when_it_runs() -> None:
    latest = source(startingOffsets="latest")
    schema = latest.schema()
    with pytest.raises(ConfigurationError, match="startingOffsets .*latest .*batch"):
        latest.reader(schema)
    stuck = source(maxOffsetsPerTrigger="0")
    with pytest.raises(ConfigurationError, match="maxOffsetsPerTrigger: 0 "):
        stuck.streamReader(stuck.schema()).initialOffset()
