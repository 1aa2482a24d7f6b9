"""What the commands `replay` and `verify` end with, and how they say why."""

from __future__ import annotations

from rich.console import Console

from tiered_stream.errors import BrokerAuthorizationError, ConfigurationError, DataLossError, UnknownTopicError

DONE, FAILED, REFUSED, DIFFERS, STOPPED = 0, 1, 2, 3, 130
WRONG_INPUT = (ConfigurationError, UnknownTopicError, BrokerAuthorizationError, DataLossError)
"""Errors that say, before anything runs, that it cannot be as it was asked for."""


def said(console: Console, error: Exception, code: int) -> int:
    """The code, after the error's words."""
    console.print(str(error), style="red", markup=False)
    return code
