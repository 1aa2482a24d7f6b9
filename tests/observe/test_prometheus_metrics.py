from __future__ import annotations

from dataclasses import replace

import orjson

from tests.cli.test_watch_command import batch
from tiered_stream.observe.landed_rows import LandedRows
from tiered_stream.observe.progress import as_json
from tiered_stream.observe.prometheus_metrics import PREFIX, QueryMetrics


def test_a_scrape_under_way_sees_the_sums_of_one_moment() -> None:
    """A micro-batch that ends meanwhile changes neither a sum nor the number of reasons under it."""
    metrics = QueryMetrics()
    metrics.add(batch("orders", 1, lag=7))
    scrape = metrics.collect()
    first = next(scrape)
    metrics.add(batch("orders", 2, lag=8))
    later = {sample.name: sample.value for family in scrape for sample in family.samples if "le" not in sample.labels}
    assert first.samples[0].value == 1500
    assert later[f"{PREFIX}storage_bytes_total"] == 3 << 20
    assert later[f"{PREFIX}batch_id"] == 1
    assert later[f"{PREFIX}fallbacks_total"] == 2

    again = {sample.name: sample.value for family in metrics.collect() for sample in family.samples}
    assert again[f"{PREFIX}rows_total"] == 3000
    assert again[f"{PREFIX}fallbacks_total"] == 4


def test_rows_and_dead_letters_are_counted_by_table() -> None:
    metrics = QueryMetrics()
    tables = LandedRows("a", 5, 2, "dead"), LandedRows("b", 7)
    for number in (1, 2):
        metrics.add(replace(batch("orders", number, lag=0), tables=tables))
    counted = {
        (sample.name.removeprefix(PREFIX), *list(sample.labels.values())[1:]): sample.value
        for family in metrics.collect()
        for sample in family.samples
    }
    assert counted["landed_rows_total", "a"] == 10 and counted["landed_rows_total", "b"] == 14
    assert {key: value for key, value in counted.items() if key[0] == "dead_letters_total"} == {
        ("dead_letters_total", "a", "dead"): 4
    }


def test_json_lines_have_rows_and_dead_letters_by_table() -> None:
    line = orjson.loads(as_json(replace(batch("orders", 1, lag=0), tables=(LandedRows("a", 5, 2, "dead"),))))
    assert (line["landed_rows"], line["dead_letters"]) == (5, 2)
    assert line["tables"] == [{"table": "a", "rows": 5, "dead_letters": 2, "dead_letter_table": "dead", "keys": None}]
    unknown = orjson.loads(as_json(batch("orders", 1, lag=0)))
    assert (unknown["landed_rows"], unknown["dead_letters"], unknown["tables"]) == (None, None, None)
