"""The progress line, from the JSON that Spark 4.2 gives for a micro-batch of a Python source."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql.streaming.listener import StreamingQueryProgress

from tests.spark.abilities import REPORTED_LAG
from tiered_stream.model import TopicPartition
from tiered_stream.observe.progress import describe_batch, finished_batch, source_offsets
from tiered_stream.observe.read_metrics import ReadMetrics

MIB = 1 << 20


def source(end: Any = None, latest: Any = None) -> dict[str, Any]:
    return {
        "description": "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream",
        "startOffset": None,
        "endOffset": end,
        "latestOffset": latest,
        "numInputRows": 1234567,
        "inputRowsPerSecond": 0.0,
        "processedRowsPerSecond": 250000.4,
    }


def progress(*sources: dict[str, Any]) -> StreamingQueryProgress:
    return StreamingQueryProgress.fromJson(
        {
            "id": "11111111-1111-1111-1111-111111111111",
            "runId": "22222222-2222-2222-2222-222222222222",
            "name": "ingest orders",
            "timestamp": "2026-01-01T00:00:00.000Z",
            "batchId": 7,
            "batchDuration": 4938,
            "numInputRows": 1234567,
            "inputRowsPerSecond": 0.0,
            "processedRowsPerSecond": 250000.4,
            "durationMs": {"triggerExecution": 4938},
            "stateOperators": [],
            "sources": list(sources),
            "sink": {"description": "DeltaSink[/table]", "numOutputRows": -1},
        }
    )


@REPORTED_LAG.needed
def test_a_line_tells_rows_rate_bytes_by_origin_and_lag() -> None:
    metrics = ReadMetrics(remote_fetch_bytes=1536 * MIB, broker_fetch_bytes=MIB // 2)
    batch = finished_batch(
        progress(source({"orders": {"0": 100, "1": 40}}, {"orders": {"0": 1100, "1": 40, "2": 5}})), metrics
    )
    assert describe_batch(batch) == (
        "batch 7: 1,234,567 rows, 250,000 rows/s, 1,536.0 MiB from storage, 0.5 MiB from brokers, lag 1,005 offsets "
        "(1,000 in orders-0)"
    )


@REPORTED_LAG.needed
def test_offsets_may_also_be_json_in_a_string() -> None:
    offsets = json.dumps({"t": {"0": 3}}), json.dumps({"t": {"0": 5}})
    assert describe_batch(finished_batch(progress(source(*offsets)), ReadMetrics())).endswith("lag 2 offsets")


def test_offsets_may_also_be_the_text_of_a_dictionary_as_older_versions_of_pyspark_give_them() -> None:
    assert source_offsets("{'t': {'0': 71}}") == source_offsets('{"t":{"0":71}}') == {TopicPartition("t", 0): 71}
    assert source_offsets("None") is source_offsets("null") is source_offsets(None) is None


@REPORTED_LAG.needed
@pytest.mark.parametrize(
    ("description", "end"),
    [
        ("RateStreamV2[rowsPerSecond=1, rampUpTimeSeconds=0, numPartitions=2]", 5),
        ("FileStreamSource[file:/folder]", {"logOffset": 0}),
        ("KafkaV2[Subscribe[u]]", {"u": {"0": 3}}),
        (source()["description"], {"offset": 5}),
    ],
    ids=["rate", "file", "Spark's kafka", "another source in Python"],
)
def test_the_offsets_of_another_source_are_no_lag(description: str, end: Any) -> None:
    other = {**source(end, end), "description": description}
    ours = source({"t": {"0": 3}}, {"t": {"0": 5}})
    assert finished_batch(progress(other, ours), ReadMetrics()).lag == {TopicPartition("t", 0): 2}
    assert finished_batch(progress(other), ReadMetrics()).lag is None


@REPORTED_LAG.needed
def test_the_lags_of_several_sources_are_added_up() -> None:
    sources = source({"t": {"0": 3}}, {"t": {"0": 5}}), source({"u": {"0": 0}}, {"u": {"0": 1}}), source({"v": {}})
    assert describe_batch(finished_batch(progress(*sources), ReadMetrics())).endswith("lag 3 offsets (2 in t-0)")


def test_a_server_that_repeats_the_end_as_the_latest_offset_has_no_lag() -> None:
    end = {"t": {"0": 3}}
    assert finished_batch(progress(source(end, end)), ReadMetrics(), reports_lag=False).lag is None


@pytest.mark.parametrize("offsets", [(None, None), ({"t": {"0": 3}}, None), (None, {"t": {"0": 3}})])
def test_a_lag_that_nobody_knows_is_left_out(offsets: tuple[Any, Any]) -> None:
    assert describe_batch(finished_batch(progress(source(*offsets)), ReadMetrics())).endswith("from brokers")
