"""Tests that run under the real host names of clouds, in a network without any way out of this machine.

A test that takes a fixture of `INSIDE` runs in a second pytest, in namespaces of its own. This process asks that
pytest for one test after the other, and reports its results as if the test had run here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

import pytest

from tests.rigs.stack.azurite import azurite_program, why_no_azurite
from tests.rigs.stack.errors import StackError
from tests.rigs.stack.fake_gcs import fake_gcs_executable, why_no_fake_gcs
from tests.rigs.stack.jars import cache_dir, jar_paths
from tests.rigs.stack.processes import log_end
from tests.rigs.stack.versitygw import versitygw_executable, why_no_versitygw


def _prepare_documented() -> None:
    versitygw_executable()
    jar_paths("kafka", "delta", "s3a")


INSIDE = {
    "aws": (why_no_versitygw, versitygw_executable),
    "azure_cloud": (why_no_azurite, azurite_program),
    "google_cloud": (why_no_fake_gcs, fake_gcs_executable),
    "orders_broker": (lambda: None, lambda: jar_paths("kafka", "delta")),
    "documented": (why_no_versitygw, _prepare_documented),
}
"""Fixtures that only a test in the namespaces may take.

The functions return the reason why the emulator behind cannot run, and build it, which needs a network.
"""
VARIABLE = "TIERED_STREAM_TEST_CLOUD"
"""Environment variable that is set in the namespaces."""
_UNSHARE = ("unshare", "--mount", "--net")
_OUTSIDE = ("AWS_", "AZURE_", "GOOGLE_", "SSL_CERT_")
"""Prefixes of variables about clouds that the tests must not take from the outside."""


@cache
def why_no_namespaces() -> str | None:
    """Return the reason why this process can make no namespaces, or None."""
    for program in (_UNSHARE[0], "ip", "mount"):
        if not shutil.which(program):
            return f"there is no {program} on PATH: install it (Debian: util-linux, iproute2)"
    if os.geteuid() or subprocess.run([*_UNSHARE, "true"], capture_output=True, check=False).returncode:
        return "only root may make namespaces for mounts and networks: run the test as root"
    return None


class Inside:
    """A pytest in namespaces of its own, with these arguments; its output is in `log`."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        self._log = folder / "inside.log"
        (folder / "home").mkdir()
        self._connection, theirs = Pipe()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*_UNSHARE, sys.executable, "-m", __name__, str(theirs.fileno()), str(folder / "tests"), *arguments],
                pass_fds=[theirs.fileno()], env=_environment(folder / "home"), stdin=subprocess.DEVNULL, stdout=log,
                stderr=log,
            )  # fmt: skip
        theirs.close()

    def reports(self, item: pytest.Item, following: pytest.Item | None) -> Iterator[pytest.TestReport]:
        """Run a test inside, and yield its reports.

        Raises:
            StackError: the process inside ended, or does not have the test.
        """
        try:
            self._connection.send((item.nodeid, following and following.nodeid))
            while (data := self._connection.recv()) is not None:
                yield item.config.hook.pytest_report_from_serializable(config=item.config, data=data)
        except (EOFError, OSError) as error:
            self._process.wait()
            raise StackError(f"the pytest in the namespaces ended; {self._log} ends:\n{log_end(self._log)}") from error

    def close(self) -> None:
        self._connection.close()
        self._process.wait()


def _environment(home: Path) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_OUTSIDE) and not name.lower().endswith(("_proxy", "_ca_bundle"))
    }
    kernels = {"XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")}
    return {**kernels, **kept, VARIABLE: "1", "HOME": str(home), "TIERED_STREAM_CACHE": str(cache_dir())}


class CloudTests:
    """Plugin of pytest: it runs the tests of clouds inside. The process inside starts with the first of these tests."""

    def __init__(self) -> None:
        self._inside: Inside | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if not is_inside(item) or VARIABLE in os.environ or why_not_inside(item):
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        try:
            for report in self._started(item).reports(item, nextitem):
                item.ihook.pytest_runtest_logreport(report=report)
        except StackError as error:
            self.pytest_unconfigure()
            _fail(item, error)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        item.session._setupstate.teardown_exact(nextitem)  # what earlier tests left for tests of the same folder
        return True

    def pytest_unconfigure(self) -> None:
        if self._inside is not None:
            self._inside.close()
            self._inside = None

    def _started(self, item: pytest.Item) -> Inside:
        if self._inside is None:
            items = [each for each in item.session.items if is_inside(each) and not why_not_inside(each)]
            for fixture in {name for each in items for name in _clouds(each)}:
                INSIDE[fixture][1]()
            files = {str(each.path) for each in items}
            temporary: pytest.TempPathFactory = item.config._tmp_path_factory  # type: ignore[attr-defined]
            longest = f"--override-ini=faulthandler_timeout={item.config.getini('faulthandler_timeout')}"
            self._inside = Inside([longest, *sorted(files)], temporary.mktemp("cloud"))
        return self._inside


def is_inside(item: pytest.Item) -> bool:
    """Return whether the test must run in the namespaces."""
    return bool(_clouds(item))


def why_not_inside(item: pytest.Item) -> str | None:
    """Return the reason why the test cannot run in the namespaces here, or None."""
    return why_no_namespaces() or next(filter(None, (INSIDE[name][0]() for name in _clouds(item))), None)


def _clouds(item: pytest.Item) -> set[str]:
    return INSIDE.keys() & set(getattr(item, "fixturenames", ()))


def _fail(item: pytest.Item, error: Exception) -> None:
    def raises() -> None:
        raise error

    call = pytest.CallInfo.from_call(raises, "call")
    item.ihook.pytest_runtest_logreport(report=item.ihook.pytest_runtest_makereport(item=item, call=call))


class Served:
    """Plugin of the pytest inside: it runs the tests that the process outside asks for, and sends their reports."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        while True:
            try:
                name, following = self._connection.recv()
            except EOFError:  # the process outside has ended, or needs no more tests
                return True
            session._setupstate.teardown_exact(items[name])  # what was kept for a test that runs outside
            session.config.hook.pytest_runtest_protocol(item=items[name], nextitem=items.get(following))
            self._connection.send(None)

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        config = self._config
        self._connection.send(config.hook.pytest_report_to_serializable(config=config, report=report))

    def pytest_configure(self, config: pytest.Config) -> None:
        self._config = config


def main(descriptor: str, base: str, *arguments: str) -> int:
    """Run the tests that the process at the other end of the connection names; the arguments are pytest's."""
    options = ["-m", "", "--maxfail=0", "-p", "no:cacheprovider", "--basetemp", base]
    if "TEST_TIMES" in os.environ:
        options += ["-p", "tests.rigs.test_times.plugin"]
    return pytest.main([*options, *arguments], [Served(Connection(int(descriptor)))])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
