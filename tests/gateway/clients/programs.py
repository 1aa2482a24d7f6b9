"""Which command runs each client, and the processes that they are. See the package."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.rigs.stack.built import built, built_folder, digest, missing_program, run_build
from tests.rigs.stack.errors import StackError
from tests.rigs.stack.jars import CONF, jar_paths
from tests.rigs.stack.java import java_command
from tests.rigs.stack.processes import LONG, ServiceProcess, log_end, wait_until
from tests.rigs.stack.tools import CONSOLE_CONSUMER, CONSOLE_PRODUCER

HERE = Path(__file__).parent
GO_SOURCES = [HERE / "franz_go" / name for name in ("main.go", "go.mod", "go.sum")]
NODE_SOURCES = [HERE / "kafkajs" / name for name in ("client.js", "package.json", "package-lock.json")]
_UNREACHABLE = ("ENOTFOUND", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "EAI_AGAIN", "E403", "E502", "E503")
"""What npm says where its registry is not to be had."""
PRINT_ALL = [
    each for name in ("partition", "offset", "key") for each in ("--formatter-property", f"print.{name}=true")
]  # fmt: skip


@dataclass(frozen=True)
class ForeignClient:
    """A client's two commands, made of servers, topic and, to consume, a group.

    `missing` says what keeps it from running here.
    """

    produce: Callable[[str, str], Sequence[str]]
    consume: Callable[[str, str, str], Sequence[str]]
    missing: Callable[[], str | None] = lambda: None


def _own(command: Callable[[], Sequence[str]], missing: Callable[[], str | None] = lambda: None) -> ForeignClient:
    """A program of ours around the client."""
    return ForeignClient(
        lambda *where: [*command(), "produce", *where], lambda *where: [*command(), "consume", *where], missing
    )


def _franz_go() -> Sequence[str]:
    def build(folder: Path) -> None:
        run_build(
            ["go", "build", "-buildvcs=false", "-mod=readonly", "-o", str(folder / "client"), "."], HERE / "franz_go"
        )

    return [str(built("franz-go", digest(GO_SOURCES), build) / "client")]


def _kafkajs() -> Sequence[str]:
    def build(folder: Path) -> None:
        for source in NODE_SOURCES:
            (folder / source.name).write_bytes(source.read_bytes())
        run_build(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)

    return ["node", str(built("kafkajs", digest(NODE_SOURCES), build) / "client.js")]


def _needs_npm() -> str | None:
    if missing := missing_program("node") or missing_program("npm"):
        return missing
    try:
        _kafkajs()
    except StackError as error:
        if any(code in str(error) for code in _UNREACHABLE):
            return f"npm's packages cannot be fetched from here: {error}"
        raise
    return None


def _java(tool: str, arguments: Sequence[str]) -> Sequence[str]:
    return java_command(tool, [CONF, *jar_paths("kafka")], arguments, ["-Xmx256m", "-XX:TieredStopAtLevel=1"])


def _java_produce(servers: str, topic: str) -> Sequence[str]:
    reading = ["--reader-property", "parse.key=true"]
    return _java(CONSOLE_PRODUCER, ["--bootstrap-server", servers, "--topic", topic, *reading])


def _java_consume(servers: str, topic: str, group: str) -> Sequence[str]:
    reading = ["--topic", topic, "--group", group, "--from-beginning"]
    return _java(CONSOLE_CONSUMER, ["--bootstrap-server", servers, *reading, *PRINT_ALL])


def _needs_go() -> str | None:
    return None if built_folder("franz-go", digest(GO_SOURCES)).exists() else missing_program("go")


CLIENTS = {
    "librdkafka": _own(lambda: [sys.executable, "-m", "tests.gateway.clients.librdkafka"]),
    "franz-go": _own(_franz_go, _needs_go),
    "kafkajs": _own(_kafkajs, _needs_npm),
    "java": ForeignClient(_java_produce, _java_consume),
}


class Producing:
    """A client that produces lines as they are given to it."""

    def __init__(self, command: Sequence[str], log_file: Path) -> None:
        self._log = log_file.open("wb")
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=self._log, stderr=self._log)

    def send(self, lines: Iterable[bytes]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.writelines(lines)
        self._process.stdin.flush()

    def finish(self) -> None:
        """Wait until it has produced all; it must say that all went well."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(LONG) == 0, Path(self._log.name).read_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()


class Consuming:
    """A client that consumes until it is ended."""

    def __init__(self, command: Sequence[str], output: Path) -> None:
        self._output = output
        self._process = ServiceProcess("consumer", command, output)

    def wait_for(self, count: int) -> None:
        """Wait until it has printed so many different records.

        Raises:
            StackError: they do not come, or it has ended.
        """

        def come() -> bool:
            if not self._process.running:
                raise StackError(f"the consumer has ended:\n{log_end(self._output)}")
            return len(set(self.rows())) >= count

        wait_until(come, f"{count} records")

    def rows(self) -> list[tuple[int, int, bytes, bytes]]:
        """(partition, offset, key, value) of the records until now, as they came."""
        whole = self._output.read_bytes().rpartition(b"\n")[0]
        lines = (line.split(b"\t") for line in whole.splitlines() if line.startswith(b"Partition:"))
        return [(_number(partition), _number(offset), key, value) for partition, offset, key, value in lines]

    def __enter__(self) -> Self:
        self._process.start(lambda: True)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()


def _number(labelled: bytes) -> int:
    return int(labelled.partition(b":")[2])
