from __future__ import annotations

from tests.cli.test_watch_command import batch
from tiered_stream.observe.query_metrics import PREFIX, QueryMetrics


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
