"""`tiered-stream cat` over golden archives, with no broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner, Result

from tests.archives import COMMITTED, PLAIN, archive_options, consumed
from tests.rigs.stack.rows import Row
from tiered_stream.cli import app
from tiered_stream.model import TopicPartition


def run(options: Mapping[str, str], *arguments: str) -> Result:
    given = (text for name, value in options.items() for text in ("--option", f"{name}={value}"))
    return CliRunner().invoke(app, ["cat", *given, *arguments])


def expected() -> list[tuple[TopicPartition, Row]]:
    return [(partition, row) for partition, rows in sorted(consumed(PLAIN, COMMITTED).items()) for row in rows]


def test_every_record_is_printed_as_the_format_says() -> None:
    ended = run(archive_options(PLAIN), "--format", r"%t %p %o %T %S|")
    lines = (
        f"{at.topic} {at.partition} {row.offset} {row.timestamp_ms} {-1 if row.value is None else len(row.value)}"
        for at, row in expected()
    )
    assert (ended.exit_code, ended.stdout) == (0, "".join(f"{line}|" for line in lines))


def test_json_has_a_line_for_each_record_up_to_the_count() -> None:
    ended = run(archive_options(PLAIN), "--json", "--count", "5")
    found = [orjson.loads(line) for line in ended.stdout_bytes.splitlines()]
    wanted = [(partition.topic, partition.partition, row.offset) for partition, row in expected()[:5]]
    assert [(record["topic"], record["partition"], record["offset"]) for record in found] == wanted


def test_a_jobs_settings_file_will_do(tmp_path: Path) -> None:
    settings = tmp_path / "job.properties"
    settings.write_text(
        "".join(f"{name}={value}\n" for name, value in archive_options(PLAIN).items()) + "ingest.table=t\n"
    )
    ended = CliRunner().invoke(app, ["cat", "--settings", str(settings), "--count", "1", "-f", "%o"])
    assert (ended.exit_code, ended.stdout) == (0, str(expected()[0][1].offset))


@pytest.mark.parametrize(
    ("options", "arguments", "said"),
    [
        (archive_options(PLAIN), ("-f", "%x"), "the format says '%x'"),
        ({**archive_options(PLAIN), "startingOffsets": "soon"}, (), "startingOffsets"),
        ({**archive_options(PLAIN), "remote.log.locater": "archive"}, (), "remote.log.locator"),
    ],
)
def test_wrong_input_is_refused_with_the_reason(
    options: Mapping[str, str], arguments: Sequence[str], said: str
) -> None:
    ended = run(options, *arguments)
    assert ended.exit_code == 2
    assert said in ended.output


def test_a_storage_that_is_not_there_fails_it(tmp_path: Path) -> None:
    ended = run({**archive_options(PLAIN), "rsm.config.storage.root": str(tmp_path / "nothing")})
    assert ended.exit_code in (1, 2)
    assert "nothing" in ended.output
