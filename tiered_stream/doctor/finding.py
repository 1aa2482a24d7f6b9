"""What a check found, and how checks are run: one after the other, each whatever became of those it does not need."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from tiered_stream.errors import TieredStreamError

T = TypeVar("T")

Mends = Mapping[type[TieredStreamError], str]
"""What mends an error, by its class; the first class that fits counts."""

_PACKAGE = "tiered_stream"
_MOST_CHARACTERS = 2_000


class Status(StrEnum):
    """How a check ended. A warning does not keep a job from its work; what is skipped was not looked at."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; without a secret or a signed URL. `mend` is empty where nothing is to be done."""

    check: str
    status: Status
    found: str
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    """What a check saw, with the `value` that other checks need; with a `mend` it is a warning."""

    value: T
    found: str
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Known(Generic[T]):
    """The value that a check gave, None where it failed or was skipped."""

    check: str
    value: T | None


class FaultError(Exception):
    """What a check looked for is wrong."""

    def __init__(self, found: str, mend: str) -> None:
        super().__init__(found)
        self.mend = mend


class NotNeededError(Exception):
    """There is nothing to look at; the message says why."""


class Examination:
    """Runs checks, and tells each one's finding at once."""

    def __init__(self, tell: Callable[[Finding], None]) -> None:
        self._tell = tell
        self.findings: list[Finding] = []

    def check(
        self, name: str, look: Callable[..., Seen[T]], *needs: Known[Any], mends: Mends | None = None
    ) -> Known[T]:
        """Run `look` with the values of `needs`, unless one of them is not known.

        `look` raises FaultError, NotNeededError, or an error of the package's tree, which `mends` says how to mend.
        """
        lacking = next((need.check for need in needs if need.value is None), None)
        if lacking is not None:
            return self._ended(Finding(name, Status.SKIPPED, f"because of: {lacking}"))
        try:
            seen = look(*(need.value for need in needs))
        except NotNeededError as reason:
            return self._ended(Finding(name, Status.SKIPPED, str(reason)))
        except FaultError as fault:
            return self._ended(Finding(name, Status.FAILED, str(fault), fault.mend))
        except TieredStreamError as error:
            fitting = (mend for kind, mend in (mends or {}).items() if isinstance(error, kind))
            return self._ended(Finding(name, Status.FAILED, str(error), next(fitting, "do as the message says")))
        except Exception as error:  # noqa: BLE001 - whatever one check meets, the others go on; its text may hold a secret
            mend = "report it: a fault of the check itself, not of what it looked at"
            return self._ended(Finding(name, Status.FAILED, f"unexpected {type(error).__name__}", mend))
        self._ended(Finding(name, Status.WARNING if seen.mend else Status.OK, seen.found, seen.mend))
        return Known(name, seen.value)

    def _ended(self, finding: Finding) -> Known[Any]:
        finding = Finding(_line(finding.check), finding.status, _line(finding.found), _line(finding.mend))
        self.findings.append(finding)
        self._tell(finding)
        return Known(finding.check, None)


def _line(text: str) -> str:
    """Names come from brokers and services too: nothing in them may steer a terminal, or fill it."""
    shown = " ".join(text[:_MOST_CHARACTERS].split())
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in shown)


@contextmanager
def warnings_of_ours() -> Iterator[list[str]]:
    """What the package's own modules warn of meanwhile: to be part of a finding, and not printed beside it."""
    heard: list[str] = []
    logger = logging.getLogger(_PACKAGE)
    handler = _Listening(heard)
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield heard
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated


class _Listening(logging.Handler):
    def __init__(self, heard: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        self._heard.append(record.getMessage())
