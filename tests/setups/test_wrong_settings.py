"""What is said about wrong setups is what docs/wrong-settings.md shows, and names the fix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.wrong_settings import (
    CONTACT,
    PAGE,
    SETUPS,
    Said,
    exact_time,
    observed,
    read_kept,
    tables,
    time_class,
    without_fix,
)
from tests.rigs.stack.versitygw import why_no_versitygw
from tests.setups.contact import ALL, CASES, ONE_OF_THREE, STOPPED, UNKNOWN, measure_contact
from tests.setups.place import Place, place
from tests.setups.surfaces import COMMANDS, DOCTOR, JOB, QUERY, Outcome, SparkProgram
from tests.setups.ways import WAYS, Way

WRITE = "write it with `python -m tests.docs.wrong_settings`"


@dataclass(frozen=True)
class Running:
    """The place, and the Spark program that runs queries there."""

    place: Place
    spark: SparkProgram


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    if missing := why_no_versitygw():
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("setups")
    (folder / "place").mkdir()
    with place(folder / "place") as at, SparkProgram(folder) as spark:
        yield Running(at, spark)


@pytest.mark.parametrize("name", [SETUPS, CONTACT])
def test_the_page_shows_what_was_said(name: str) -> None:
    text = PAGE.read_text("utf-8")
    assert text.partition(f"<!-- {name} -->\n")[2].partition(f"<!-- /{name} -->")[0] == tables(read_kept())[name], WRITE


@pytest.mark.parametrize("name", WAYS)
def test_the_page_has_the_fix_in_each_line(name: str) -> None:
    assert without_fix(WAYS[name], read_kept().setups[name]) == []


def test_no_secret_is_in_what_was_said() -> None:
    kept = read_kept()
    texts = [said.says for of_way in (*kept.setups.values(), *kept.contact.values()) for said in of_way.values()]
    assert not any(secret in text for secret in ("hunter2", "lake-secret", "alice-secret") for text in texts)


def test_brokers_that_are_not_there_are_reported_within_ten_seconds() -> None:
    """The page's figures are of a busy machine."""
    contact = read_kept().contact
    for case in (STOPPED, UNKNOWN):
        assert all(said.status for said in contact[case].values())
        assert all(float(said.seconds.removesuffix(" s")) < 10 for said in contact[case].values())
    assert not any(said.status or said.says for said in contact[ALL].values())
    one_up = dict(contact[ONE_OF_THREE])
    warned = one_up.pop(DOCTOR)
    assert warned.status == 0 and "broker2:9092: nobody listens there" in warned.says
    assert not any(said.status or said.says for said in one_up.values())


def told(found: dict[str, Outcome]) -> dict[str, tuple[int, str]]:
    return {who: (each.status, each.says) for who, each in found.items()}


def kept_of(said: dict[str, Said]) -> dict[str, tuple[int, str]]:
    return {who: (each.status, each.says) for who, each in said.items()}


@pytest.mark.slow
@pytest.mark.starts_spark
@pytest.mark.parametrize("name", WAYS)
def test_everything_says_what_the_page_shows(running: Running, tmp_path: Path, name: str) -> None:
    found = observed(running.place, WAYS[name], tmp_path / "way", running.spark)
    assert told(found) == kept_of(dict(read_kept().setups[name])), WRITE


@pytest.mark.slow
@pytest.mark.starts_spark
def test_brokers_that_are_not_there_are_reported_as_the_page_shows(running: Running, tmp_path: Path) -> None:
    found = dict(measure_contact(running.place, tmp_path, running.spark))
    kept = read_kept().contact
    shown = {case: {who: said for who, said in of_case.items() if who in kept[case]} for case, of_case in found.items()
             if case in kept}  # fmt: skip
    assert {case: told(said) for case, said in shown.items()} == {case: kept_of(dict(kept[case])) for case in shown}


def test_times_are_shown_in_classes() -> None:
    assert [time_class(seconds) for seconds in (0.1, 4.99, 5, 31, 600)] == [
        "< 5 s",
        "< 5 s",
        "< 10 s",
        "< 60 s",
        "> 60 s",
    ]
    assert exact_time(2.549) == "2.5 s"


def test_a_way_without_its_fix_is_noticed() -> None:
    way: Way = WAYS["wrong prefix"]
    said = {"plan": Said(f"a: {way.fixes[0]}", 2, ""), "cat": Said("everything comes from the brokers", 0, "")}
    assert without_fix(way, said) == ["cat"]


def test_the_page_has_every_way_and_known_cases() -> None:
    kept = read_kept()
    assert list(kept.setups) == list(WAYS), WRITE
    assert list(kept.contact) == [case for case in CASES if case in kept.contact], WRITE
    assert {tuple(said) for said in kept.setups.values()} == {(*COMMANDS, JOB, QUERY)}, WRITE
