from __future__ import annotations

import logging

import pytest

from tiered_stream.process.logs import LogRateLimit


def test_one_line_of_a_kind_passes_and_the_next_one_counts_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    log = logging.getLogger("tests.sparse")
    sparse = LogRateLimit(lambda: now)
    log.addFilter(sparse)
    try:
        for number in range(1000):
            log.warning("closed: %s", number)
        log.warning("refused")
        now = 11.0
        log.warning("closed: %s", "by the client")
        log.warning("refused")
    finally:
        log.removeFilter(sparse)
    assert [record.getMessage() for record in caplog.records] == [
        "closed: 0",
        "refused",
        "closed: by the client (and 999 more since the last line like it)",
        "refused",
    ]
