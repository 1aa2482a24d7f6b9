"""Loggers that one thread mutes, lines that are limited, and a process whose reader has seen its last line."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.process.late_reader import late_reader
from tiered_stream.process.logs import LogRateLimit, await_reader, muted


def test_a_library_is_muted_in_one_thread_and_heard_in_others(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    log, other = logging.getLogger("a_library.a_module"), logging.getLogger("a_library_of_the_user")
    with muted("a_library"), ThreadPoolExecutor(1) as pool:
        log.error("muted")
        other.error("of the user's library")
        pool.submit(log.error, "of the user's thread").result()
        with muted("another"):
            log.error("muted")
        log.error("muted")
    log.error("afterwards")
    # py4j, where another test of this process had a session, says at any time which of its objects are gone.
    said = [record.getMessage() for record in caplog.records if record.name in (log.name, other.name)]
    assert said == ["of the user's library", "of the user's thread", "afterwards"]


def test_a_process_waits_until_its_reader_has_read_what_it_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    with late_reader(monkeypatch) as (standard_error, read):
        print("the last line", file=standard_error)
        await_reader(seconds=600)
        assert read == [b"the last line\n"]
        print("a line that nobody reads", file=standard_error)
        await_reader(seconds=0)
        assert len(read) == 1


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
