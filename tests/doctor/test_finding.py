"""How checks are run, whatever becomes of each."""

from __future__ import annotations

import logging

from tiered_stream.doctor.examine import exit_code
from tiered_stream.doctor.finding import (
    Examination,
    FaultError,
    Finding,
    NotNeededError,
    Result,
    Status,
    collected_warnings,
)
from tiered_stream.errors import BrokerError, BrokerUnavailableError


def raising(error: Exception) -> Result[int]:
    raise error


def test_what_needs_a_failed_check_is_skipped_and_the_others_go_on() -> None:
    told: list[Finding] = []
    examination = Examination(told.append)
    broken = examination.check("a", lambda: raising(FaultError("it is broken", "mend it")))
    examination.check("b", lambda _: Result(1, "never"), broken)
    fine = examination.check("c", lambda: Result(0, "fine"))
    examination.check("d", lambda value: Result(value, f"had {value}", "look at it"), fine)
    assert told == examination.findings == [
        Finding("a", Status.FAILED, "it is broken", "mend it"),
        Finding("b", Status.SKIPPED, "because of: a"),
        Finding("c", Status.OK, "fine"),
        Finding("d", Status.WARNING, "had 0", "look at it"),
    ]  # fmt: skip
    assert exit_code(told) == 1
    assert exit_code(told[2:]) == 0
    assert exit_code([Finding("settings", Status.FAILED, ""), *told]) == 2, "the settings are refused"


def test_an_error_of_ours_is_mended_by_the_first_class_that_fits() -> None:
    examination = Examination(lambda _: None)
    fixes = {BrokerUnavailableError: "wait", BrokerError: "ask"}
    for error in (BrokerUnavailableError("gone\n  away"), BrokerError("no")):
        examination.check("a", lambda error=error: raising(error), fixes=fixes)  # type: ignore[misc]
    assert [(each.found, each.fix) for each in examination.findings] == [("gone away", "wait"), ("no", "ask")]


def test_what_nobody_expected_fails_its_check_alone_and_is_not_shown() -> None:
    examination = Examination(lambda _: None)
    examination.check("a", lambda: raising(RuntimeError("https://host/?X-Amz-Signature=1")))
    examination.check("b", lambda: raising(NotNeededError("no table")))
    first, second = examination.findings
    assert (first.status, first.found) == (Status.FAILED, "unexpected RuntimeError")
    assert (second.status, second.found) == (Status.SKIPPED, "no table")


def test_what_a_stranger_says_neither_steers_the_terminal_nor_fills_it() -> None:
    examination = Examination(lambda _: None)
    examination.check("a", lambda: Result(1, "broker \x1b[2J\u202eat\n one line " + "x" * 10_000))
    (finding,) = examination.findings
    assert finding.found.startswith("broker \ufffd[2J\ufffdat one line x")
    assert len(finding.found) <= 2_000


def test_warnings_of_the_package_become_part_of_a_finding() -> None:
    logger = logging.getLogger("tiered_stream.options.parsing")
    with collected_warnings() as heard:
        logger.warning("option %s\n is unknown", "x")
        logger.info("nothing")
    logger.warning("not heard")
    assert heard == ["option x\n is unknown"]
