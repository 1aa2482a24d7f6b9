"""Findings of the doctor's checks, and the runner that runs the checks one after another.

If a check fails, the runner skips only the checks that need the failed check's value.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from tiered_stream.errors import ConfigurationError, StorageUnavailableError, TieredStreamError
from tiered_stream.options.remote_options import RSM_CONFIG_PREFIX
from tiered_stream.options.settings_files import with_origins

T = TypeVar("T")

Fixes = Mapping[type[TieredStreamError], str]
"""Advice on how to fix an error, by the error's class; the first class that matches is used."""

_COMMON_FIXES: Fixes = {
    ConfigurationError: "correct the setting that the message names",
    StorageUnavailableError: "if the message names an endpoint, correct it or open the network path to it; otherwise "
    "run doctor again later",
}
_PACKAGE = "tiered_stream"
_MAX_CHARACTERS = 2_000


class Status(StrEnum):
    """Status of a check. `warning`: a job can run in spite of the finding. `skipped`: the check was not run."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report, without secrets and signed URLs.

    The fields' names are the names in the JSON report. `check` is the name of the check, `found` describes the result,
    and `fix` is advice (empty: none).
    """

    check: str
    status: Status
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Result(Generic[T]):
    """Result of a check that did not fail: a description for the report, and the `value` that other checks need.

    `fix` is advice for the user. If `fix` is not empty, the check's status is a warning.
    """

    value: T
    description: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Known(Generic[T]):
    """Value that the check named `check` has returned; `value` is None if the check has failed or was skipped."""

    check: str
    value: T | None


class FaultError(Exception):
    """Error that a failed check raises, with a description for the report, and advice for the user (`fix`)."""

    def __init__(self, description: str, fix: str) -> None:
        super().__init__(description)
        self.fix = fix


class NotNeededError(Exception):
    """Error that a check raises if there is nothing to check. The check's status is then `skipped`.

    The message is the reason.
    """


class Examination:
    """Runner of the doctor's checks. It calls `report` with each finding at once, and collects them in `findings`."""

    def __init__(self, report: Callable[[Finding], None]) -> None:
        self._report = report
        self.findings: list[Finding] = []
        self.plugin_prefix = RSM_CONFIG_PREFIX.default
        """Prefix of the storage plugin's properties among the user's settings, which advice names."""

    def check(
        self,
        name: str,
        run: Callable[..., Result[T]],
        *needs: Known[Any],
        fixes: Fixes | None = None,
        most: int = _MAX_CHARACTERS,
    ) -> Known[T]:
        """Run a check, report its finding, and return its value; the value is None if the check failed or was skipped.

        If a value in `needs` is None, `run` is not called and the check is skipped.

        Args:
            name: the check's name in the report.
            run: function that does the check, called with the values of `needs`. Any exception that it raises becomes
                a finding.
            needs: values of earlier checks that `run` needs.
            fixes: advice for errors of this package that `run` raises, by error class.
            most: maximum number of characters of the result's description; the rest is cut off.
        """
        missing = next((need.check for need in needs if need.value is None), None)
        if missing is not None:
            return self._add(Finding(name, Status.SKIPPED, f"because of: {missing}"))
        try:
            result = run(*(need.value for need in needs))
        except NotNeededError as reason:
            return self._add(Finding(name, Status.SKIPPED, str(reason)))
        except FaultError as fault:
            return self._add(Finding(name, Status.FAILED, str(fault), fault.fix))
        except TieredStreamError as error:
            known = *(fixes or {}).items(), *_COMMON_FIXES.items()
            fitting = (fix for kind, fix in known if isinstance(error, kind))
            fix = next(fitting, "do as the message says")
            return self._add(Finding(name, Status.FAILED, with_origins(str(error)), fix))
        except Exception as error:  # noqa: BLE001 - other checks go on; the error's text may have a secret
            fix = "report it: this is a fault of the check itself"
            return self._add(Finding(name, Status.FAILED, f"unexpected {type(error).__name__}", fix))
        self._add(Finding(name, Status.WARNING if result.fix else Status.OK, result.description, result.fix), most)
        return Known(name, result.value)

    def skip(self, name: str, reason: str) -> None:
        """Report that the check `name` is skipped, with the reason."""
        self._add(Finding(name, Status.SKIPPED, reason))

    def _add(self, finding: Finding, most: int = _MAX_CHARACTERS) -> Known[Any]:
        advice = finding.fix.replace(RSM_CONFIG_PREFIX.default, self.plugin_prefix)
        finding = Finding(_line(finding.check), finding.status, _line(finding.found, most), _line(advice))
        self.findings.append(finding)
        self._report(finding)
        return Known(finding.check, None)


def _line(text: str, most: int = _MAX_CHARACTERS) -> str:
    """Return the text in one line of at most `most` characters, with control characters replaced by U+FFFD.

    The text may have names from brokers and services, which must neither control nor flood a terminal.
    """
    shown = " ".join(text[:most].split())
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in shown)


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect the warnings that this package logs during the block, so that a finding can show them.

    Yield the list to which the warnings' texts are appended. During the block, the root logger's handlers do not get
    this package's log lines.
    """
    logger, handler = logging.getLogger(_PACKAGE), _WarningCollector()
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield handler.texts
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated


class _WarningCollector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
