"""What goes wrong around the stack, as opposed to inside the code under test."""

from __future__ import annotations


class StackError(RuntimeError):
    """The stack could not be built, started, or brought into the wanted state."""
