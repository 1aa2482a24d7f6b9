"""What commands have in common: how they show what they found, and how they end."""

from __future__ import annotations

import pytest
import typer
from rich.table import Table

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
