"""pytest plugin that measures each test's phases, its CPU, and the causes for which its main thread waited.

Each pytest process appends lines of JSON to a file of its own in the folder `TEST_TIMES`.
Times of causes are exclusive: what an inner cause takes is not counted for the outer cause.
"""

from __future__ import annotations

import builtins
import functools
import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.soak.held import cpu_seconds, family

SERVICES = {
    "tests.rigs.stack.broker.KafkaBroker.start": "broker start",
    "tests.rigs.stack.topics.wait_until_tiered": "tiering",
    "tests.rigs.stack.topics.wait_until_tiered_to": "tiering",
    "tests.rigs.stack.topics.roll": "tiering",
    "tests.rigs.stack.s3_server.S3Server.start": "other services start",
    "tests.rigs.stack.azurite.Azurite.start": "other services start",
    "tests.rigs.stack.fake_gcs.FakeGcs.start": "other services start",
    "tests.rigs.stack.hdfs.Hdfs.start": "other services start",
    "tests.rigs.stack.spark.spark_session": "JVM start",
}
"""Functions of the stack, and the cause that their time counts for."""
WAITS = {
    "py4j.java_gateway.GatewayConnection.send_command": "Spark jobs",
    "py4j.clientserver.ClientServerConnection.send_command": "Spark jobs",
    "time.sleep": "sleep",
    "threading.Event.wait": "threads",
    "threading.Thread.join": "threads",
    "numba.core.dispatcher._FunctionCompiler.compile": "numba compilation",
}
OTHER = "other"


class Causes:
    """Seconds by cause on the main thread, each without what its inner causes took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inner: list[float] = []

    @contextmanager
    def counting(self, cause: str) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        begun = time.perf_counter()
        self._inner.append(0.0)
        try:
            yield
        finally:
            took = time.perf_counter() - begun
            self.seconds[cause] += took - self._inner.pop()
            if self._inner:
                self._inner[-1] += took

    def wrapped(self, function: Callable[..., Any], cause: Callable[..., str]) -> Callable[..., Any]:
        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            with self.counting(cause(*args, **kwargs)):
                return function(*args, **kwargs)

        return counted


CAUSES = Causes()


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

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Iterator[None]:
        begun = time.perf_counter()
        result = yield
        self._write(kind="collection", seconds=time.perf_counter() - begun)
        _measure_waits()
        return result

    def _phase(self, item: pytest.Item, phase: str) -> Iterator[None]:
        CAUSES.seconds.clear()
        begun, cpu = time.perf_counter(), _core_seconds(item)
        try:
            cause = "hypothesis" if phase == "call" and _is_hypothesis(item) else OTHER
            with CAUSES.counting(cause):
                result = yield
        finally:
            self._write(
                kind=phase,
                test=item.nodeid,
                stack=item.get_closest_marker("stack") is not None,
                seconds=time.perf_counter() - begun,
                cpu=_core_seconds(item) - cpu,
                causes=dict(CAUSES.seconds),
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


def _is_hypothesis(item: pytest.Item) -> bool:
    return bool(getattr(getattr(item, "function", None), "is_hypothesis_test", False))


def _child_cause(process: Any, *_: object, **__: object) -> str:
    arguments: Any = process.args if hasattr(process, "args") else process
    words = [arguments] if isinstance(arguments, str | os.PathLike) else list(map(str, arguments))
    line = " ".join(map(str, words[:4]))
    if "spark-submit" in line:
        return "spark-submit"
    if "java" in Path(str(words[0])).name:
        return "JVM start"
    return "child Python" if "python" in line or "tiered-stream" in line else "child process"


def _measure_waits() -> None:
    for path, cause in {**SERVICES, **WAITS}.items():
        _wrap(path, lambda *_, cause=cause, **__: cause)
    for name in ("communicate", "wait"):
        _wrap(f"subprocess.Popen.{name}", _child_cause)
    _measure_imports()


def _wrap(path: str, cause: Callable[..., str]) -> None:
    """Wrap a function wherever a module that is loaded has it under its name."""
    parts = path.split(".")
    split = next((n for n in range(len(parts) - 1, 0, -1) if ".".join(parts[:n]) in sys.modules), None)
    if split is None:
        return
    owner: Any = sys.modules[".".join(parts[:split])]
    for part in parts[split:-1]:
        owner = getattr(owner, part, None)
    original = getattr(owner, parts[-1], None)
    if original is None:
        return
    counted = CAUSES.wrapped(original, cause)
    setattr(owner, parts[-1], counted)
    if owner is sys.modules.get(owner.__name__ if hasattr(owner, "__name__") else ""):
        for module in list(sys.modules.values()):
            if getattr(module, "__name__", "").startswith("tests.") and getattr(module, parts[-1], None) is original:
                setattr(module, parts[-1], counted)


def _measure_imports() -> None:
    original, depth = builtins.__import__, threading.local()

    def counted(name: str, *args: Any, **kwargs: Any) -> Any:
        if getattr(depth, "inside", False) or name in sys.modules:
            return original(name, *args, **kwargs)
        depth.inside = True
        try:
            with CAUSES.counting("imports"):
                return original(name, *args, **kwargs)
        finally:
            depth.inside = False

    builtins.__import__ = counted


def pytest_configure(config: pytest.Config) -> None:
    folder = os.environ.get("TEST_TIMES")
    if folder and (hasattr(config, "workerinput") or not config.getoption("numprocesses", None)):
        config.pluginmanager.register(Times(Path(folder)), "test times")
