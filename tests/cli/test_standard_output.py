"""Commands in pipes: what is written when, where nobody reads it, and to terminals of other encodings."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import pyarrow as pa
import pytest

from tests.archives import PLAIN, archive_options
from tests.cli.running import words
from tests.cli.test_watch_command import batch
from tests.forking_python import run_command
from tiered_stream import __version__
from tiered_stream.cli import cat_command
from tiered_stream.cli.command_line import show
from tiered_stream.cli.watch_command import watch
from tiered_stream.observe import standard_output
from tiered_stream.observe.prometheus_endpoint import Monitor
from tiered_stream.observe.prometheus_metrics import QueryMetrics

ARCHIVE = words(archive_options(PLAIN))


def environment(**more: str) -> dict[str, str]:
    """As of a shell. PYTHONUNBUFFERED would hide what stays in buffers."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"} | more


def run(*arguments: str, **more: str) -> tuple[int, bytes, bytes]:
    command = [sys.executable, "-m", "tiered_stream", *arguments]
    ended = subprocess.run(command, capture_output=True, env=environment(**more))
    return ended.returncode, ended.stdout, ended.stderr


@contextmanager
def piped(monkeypatch: pytest.MonkeyPatch, *, unread: bool = False, encoding: str = "utf-8") -> Iterator[int]:
    """Standard output as in a pipe, whose other end it gives: a read there fails where nothing has come."""
    reads, writes = os.pipe()
    os.set_blocking(reads, False)
    if unread:
        os.close(reads)
    with io.TextIOWrapper(open(writes, "wb"), encoding) as out, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", out)
        yield reads
    if not unread:
        os.close(reads)


def records(*values: bytes) -> pa.RecordBatch:
    stamps = pa.array([0] * len(values), pa.timestamp("us", "UTC"))
    return pa.record_batch({"key": pa.array(values), "value": pa.array(values), "timestamp": stamps})


def test_records_are_printed_when_they_come_and_not_when_many_have_come(monkeypatch: pytest.MonkeyPatch) -> None:
    with piped(monkeypatch) as pipe:

        def follow() -> Iterator[pa.RecordBatch]:
            for value in (b"one", b"two"):
                yield records(value)
                assert os.read(pipe, 100) == value  # before another one is waited for

        cat_command._print(follow(), None, lambda record: record["value"])


def test_no_more_is_read_than_the_records_that_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    def unending() -> Iterator[pa.RecordBatch]:
        yield records(b"a", b"b")
        yield records(b"c", b"d")
        raise AssertionError("nobody wants more")

    with piped(monkeypatch) as pipe:
        cat_command._print(unending(), 0, lambda record: record["value"])
        cat_command._print(unending(), 3, lambda record: record["value"])
        assert os.read(pipe, 100) == b"abc"


LONG = "%o" + "x" * 10_000


@pytest.mark.parametrize(
    "command", ["cat --format LONG", "cat --json", "segments", "segments --json", "doctor", "plan"]
)
def test_a_reader_that_leaves_is_no_failure(command: str) -> None:
    ended = run_command(*command.replace("LONG", LONG).split(), *ARCHIVE, unread=True)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_reader_that_leaves_does_not_change_what_a_command_has_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code of `verify … | head -1` still says whether something differs: `show` neither raises nor exits."""
    with piped(monkeypatch, unread=True):
        console = standard_output.open_console()
        for _ in range(2):
            console.print("a line")
        assert console.quiet


@pytest.fixture
def driver() -> Iterator[str]:
    metrics = QueryMetrics()
    metrics.add(batch("orders", 3, lag=7))
    monitor = Monitor("127.0.0.1", 0, metrics.registry, str)
    yield f"127.0.0.1:{monitor.port}"
    monitor.close()


@pytest.mark.parametrize("json", [False, True])
def test_each_look_at_a_driver_is_written_into_a_pipe_when_it_was_taken(
    monkeypatch: pytest.MonkeyPatch, driver: str, json: bool
) -> None:
    looks: list[bytes] = []

    class EnoughError(Exception):
        """Three looks were seen."""

    with piped(monkeypatch) as pipe:

        def looked(seconds: float) -> None:
            looks.append(os.read(pipe, 100_000))
            if len(looks) == 3:
                raise EnoughError

        monkeypatch.setattr("tiered_stream.cli.watch_command.sleep", looked)
        with pytest.raises(EnoughError):
            watch(driver, json=json)
    assert all(b"orders" in look for look in looks)


@pytest.mark.parametrize("json", [False, True])
def test_watch_ends_when_nobody_reads_it_any_more(monkeypatch: pytest.MonkeyPatch, driver: str, json: bool) -> None:
    monkeypatch.setattr("tiered_stream.cli.watch_command.sleep", lambda _: None)
    with piped(monkeypatch, unread=True):
        watch(driver, json=json)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_is_not_utf_8_gets_other_signs(encoding: str) -> None:
    code, shown, errors = run("doctor", *ARCHIVE, PYTHONIOENCODING=encoding)
    assert (code, errors) == (0, b"")
    assert any(line.startswith(b"+ segment objects: ") for line in shown.splitlines())


def test_json_is_utf_8_whatever_the_terminal_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with piped(monkeypatch, encoding="ascii") as pipe:
        show(orjson.dumps({"name": "größer"}).decode())
        assert orjson.loads(os.read(pipe, 100)) == {"name": "größer"}


HELP_OF_ALL = """
from contextlib import suppress
from tiered_stream.cli import app
for name in [[], *([each.name or each.callback.__name__] for each in app.registered_commands)]:
    with suppress(SystemExit):
        app([*name, "--help"])
"""


def test_help_has_the_exit_codes_and_is_printed_in_any_encoding() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", HELP_OF_ALL], capture_output=True, env=environment(PYTHONIOENCODING="ascii")
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout.count(b"Usage: ") == 14
    assert ended.stdout.count(b"Exit codes: 0 ") == 12, "of all commands but warm"


def test_the_version_is_told_by_the_command_and_by_the_module() -> None:
    assert run("--version") == (0, f"tiered-stream {__version__}\n".encode(), b"")


def keys(found: Any) -> Iterator[str]:
    if isinstance(found, dict):
        yield from found
        for value in found.values():
            yield from keys(value)
    elif isinstance(found, list):
        for value in found:
            yield from keys(value)


@pytest.mark.parametrize("command", ["segments", "plan", "doctor"])
def test_json_has_names_in_snake_case(command: str) -> None:
    ended = run_command(command, "--json", *ARCHIVE)
    assert ended.returncode == 0
    found = set(keys(orjson.loads(ended.stdout)))
    assert found and all(name == name.lower() and "-" not in name for name in found)
