"""The planner of a streaming query, without Spark: calls as Spark makes them."""

from __future__ import annotations

import logging

import pytest

from tests.delta.archive import LONG, options
from tiered_stream.observe.read_metrics import ReadMetrics, send
from tiered_stream.options.parsing import parse_options
from tiered_stream.spark.stream_reader import StreamReader


def test_a_line_that_lacks_a_report_comes_when_spark_looks_for_new_records(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tiered_stream.observe")
    reader = StreamReader(parse_options(options(LONG, {"minPartitions": "2"}), streaming=True))
    start = reader.initialOffset()
    end = reader.next_end(start, limited=True)
    assert len(reader.partitions(start, end)) == 2
    send(ReadMetrics(records=7), reader.batch_log)
    caplog.clear()  # the log of another part may be on, too
    assert reader.next_end(end, limited=True) == end
    (line,) = (record.getMessage() for record in caplog.records if record.module == "driver_log")
    assert line.startswith("a micro-batch: 7 rows read, ") and line.endswith(", 1 of 2 tasks sent no report")
    reader.stop()
