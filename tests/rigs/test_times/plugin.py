"""pytest plugin that measures each test's phases and fixtures, in seconds and in core seconds.

Each pytest process appends lines of JSON to a file of its own in the folder `TEST_TIMES`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.soak.held import cpu_seconds, family


class Times:
    """The plugin: one line for each phase of a test, and one for each fixture."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        self._file = (folder / f"{worker}-{os.getpid()}.jsonl").open("w")
        self._fixtures: list[float] = []

    def _write(self, **line: object) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def _phase(self, item: pytest.Item, phase: str) -> Iterator[None]:
        begun, cpu = time.perf_counter(), _core_seconds(item)
        try:
            result = yield
        finally:
            self._write(
                kind=phase,
                test=item.nodeid,
                stack=item.get_closest_marker("stack") is not None,
                seconds=time.perf_counter() - begun,
                cpu=_core_seconds(item) - cpu,
            )
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        return (yield from self._phase(item, "setup"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        return (yield from self._phase(item, "call"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        return (yield from self._phase(item, "teardown"))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        begun = time.perf_counter()
        self._fixtures.append(0.0)
        try:
            result = yield
        finally:
            took = time.perf_counter() - begun
            own = took - self._fixtures.pop()
            if self._fixtures:
                self._fixtures[-1] += took
            if own > 0.01:
                self._write(kind="fixture", fixture=f"{fixturedef.baseid}::{fixturedef.argname}", seconds=own)
        return result


def _core_seconds(item: pytest.Item) -> float:
    """Seconds of CPU that this process and its descendants have taken; those of services belong to who started them.

    The load of the machine hardly changes them. Tests without services start few processes, and wait for them.
    """
    own = os.times()
    taken = own.user + own.system + own.children_user + own.children_system
    if item.get_closest_marker("stack"):
        taken += cpu_seconds(family(os.getpid()))
    return taken


def pytest_configure(config: pytest.Config) -> None:
    folder = os.environ.get("TEST_TIMES")
    if folder and (hasattr(config, "workerinput") or not config.getoption("numprocesses", None)):
        config.pluginmanager.register(Times(Path(folder)), "test times")
