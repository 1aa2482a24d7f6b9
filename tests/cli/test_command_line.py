"""What commands have in common: how they show what they found, and how they refuse and end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import typer
from rich.table import Table

from tests.archives import PLAIN, archive_options
from tests.cli.running import nobody, run
from tests.inspection.test_query_checkpoint import write_checkpoint
from tiered_stream.cli.command_line import WRONG_SETUP, exit_codes, show
from tiered_stream.errors import (
    BrokerError,
    ConfigurationError,
    StorageAccessError,
    StorageBucketNotFoundError,
    StorageError,
    UnknownTopicError,
)


def test_a_name_with_brackets_is_shown_as_it_is_and_nothing_is_torn_to_fit_a_width(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table, name = Table("[red]name"), "[bold]t" * 100
    table.add_row(name)
    show(table)
    assert name in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "refused", "code"),
    [
        (ConfigurationError("wrong"), (), 2),
        (BrokerError("down"), (), 1),
        (UnknownTopicError("none"), (), 1),
        (UnknownTopicError("none"), WRONG_SETUP, 2),
        (StorageAccessError("refused"), WRONG_SETUP, 2),
        (StorageBucketNotFoundError("none"), WRONG_SETUP, 2),
        (StorageError("down"), WRONG_SETUP, 1),
        (UnknownTopicError("none"), (UnknownTopicError,), 2),
        (KeyboardInterrupt(), (), 130),
    ],
)
def test_errors_are_exit_codes(error: BaseException, refused: tuple[type[BrokerError], ...], code: int) -> None:
    with pytest.raises(typer.Exit) as ended, exit_codes(*refused):
        raise error
    assert ended.value.exit_code == code


ARCHIVE = archive_options(PLAIN)
BROKER = {"kafka.bootstrap.servers": "b:1"}
TOPIC = {**BROKER, "subscribe": "t"}


@pytest.mark.parametrize(
    ("command", "options", "reason"),
    [
        ("cat --format %x", ARCHIVE, "the format says '%x'"),
        ("cat", {**ARCHIVE, "startingOffsets": "soon"}, "startingOffsets"),
        ("cat", {**ARCHIVE, "rsm.config.storage.root": "/nothing"}, "/nothing"),
        ("doctor --settings /nowhere.properties", {}, "/nowhere.properties"),
        ("plan", {**ARCHIVE, "startingOffsets": "soon"}, "startingOffsets"),
        ("plan", {**ARCHIVE, "startingOffsets": "latest"}, "startingOffsets must not be latest"),
        ("plan", {**ARCHIVE, "ingest.tragetFileSize": "1m"}, "ingest.targetFileSize"),
        ("plan --subscribe-pattern x --assign {}", ARCHIVE, "exactly one"),
        ("segments", {**ARCHIVE, "remote.log.locater": "archive"}, "remote.log.locator"),
        ("segments --subscribe t", {**BROKER, "remote.log.locator": "none"}, "remote.log.locator"),
        ("segments", BROKER, "subscribe, subscribePattern, assign"),
        ("lag", ARCHIVE, "--checkpoint"),
        ("lag", {**ARCHIVE, "ingest.checkpointLocation": "/c/{topic}"}, "one for each topic"),
        ("lag --checkpoint /nowhere/at/all", ARCHIVE, "no micro-batch is committed"),
        ("lag --checkpoint /c", {**ARCHIVE, "ingest.storage.s3.regoin": "x"}, "ingest.storage.s3.regoin"),
        ("verify --storage", ARCHIVE, "an archive has no brokers"),
        ("verify --storage", {**TOPIC, "remote.log.locator": "none"}, "what is tiered"),
        ("verify --storage --table /t", TOPIC, "remove --table or --storage"),
        ("verify --storage", {**TOPIC, "startingOffsets": "soon"}, "startingOffsets"),
        ("verify --subscribe orders", {}, "--table"),
    ],
)
def test_wrong_input_is_refused_in_one_line(command: str, options: Mapping[str, str], reason: str) -> None:
    name, *arguments = command.split()
    ended = run(name, options, *arguments)
    assert ended.exit_code == 2
    assert reason in ended.output and ended.output.count("\n") == 1


@pytest.mark.parametrize("command", ["plan", "segments", "lag --checkpoint {}", "verify --storage"])
def test_brokers_that_are_not_there_fail_it_in_one_line(command: str, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "c", 0, '{"t":{"0":1}}')
    name, *arguments = (word.format(checkpoint) for word in command.split())
    ended = run(name, nobody(), *arguments)
    assert ended.exit_code == 1
    assert "no broker" in ended.output and ended.output.count("\n") == 1
