"""Errors of the stack, as opposed to errors of the code under test."""

from __future__ import annotations


class StackError(RuntimeError):
    """The stack could not be built, started, or brought into the wanted state."""
