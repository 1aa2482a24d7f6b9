from __future__ import annotations

import orjson

from tiered_stream.delta.redrive.redrive_run import RedriveReport


def test_a_report_is_json_with_names_in_snake_case() -> None:
    report = RedriveReport(dry_run=True, appended={"t": 2}, left={("topic", "why"): 1}, pending={"topic": 3})

    assert orjson.loads(report.to_json()) == {
        "dry_run": True,
        "redriven": {"t": 2},
        "left": [{"topic": "topic", "reason": "why", "letters": 1}],
        "pending": {"topic": 3},
    }
