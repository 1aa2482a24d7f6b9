"""`tiered-stream cat` over golden archives, with no broker."""

from __future__ import annotations

import orjson

from tests.archives import COMMITTED, PLAIN, archive_options, consumed
from tests.cli.running import run
from tests.rigs.stack.rows import Row
from tiered_stream.model import TopicPartition


def expected() -> list[tuple[TopicPartition, Row]]:
    return [(partition, row) for partition, rows in sorted(consumed(PLAIN, COMMITTED).items()) for row in rows]


def test_every_record_is_printed_as_the_format_says() -> None:
    ended = run("cat", archive_options(PLAIN), "--format", r"%t %p %o %T %S|")
    lines = (
        f"{at.topic} {at.partition} {row.offset} {row.timestamp_ms} {-1 if row.value is None else len(row.value)}"
        for at, row in expected()
    )
    assert (ended.exit_code, ended.stdout) == (0, "".join(f"{line}|" for line in lines))


def test_json_has_a_line_for_each_record_up_to_the_count() -> None:
    ended = run("cat", archive_options(PLAIN), "--json", "--count", "5")
    found = [orjson.loads(line) for line in ended.stdout_bytes.splitlines()]
    wanted = [(partition.topic, partition.partition, row.offset) for partition, row in expected()[:5]]
    assert [(record["topic"], record["partition"], record["offset"]) for record in found] == wanted


def test_a_settings_file_may_choose_columns_in_any_case() -> None:
    ended = run("cat", archive_options(PLAIN, {"Columns": "offset"}), "--json", "--count", "1")
    assert ended.exit_code == 0, ended.output
    assert {"topic", "value", "timestamp"} <= orjson.loads(ended.stdout_bytes).keys()
