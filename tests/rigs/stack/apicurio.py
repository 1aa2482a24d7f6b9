"""Apicurio Registry: a schema registry that speaks Confluent's REST API and keeps its schemas in its memory."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import urllib3

from tests.rigs.stack.built import unpacked
from tests.rigs.stack.java import java_executable
from tests.rigs.stack.processes import LONG, Service, free_ports


class Apicurio(Service):
    """A schema registry. After another start it has the same port, and no schemas."""

    def __init__(self, folder: Path) -> None:
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}/apis/ccompat/v7"
        self._folder = folder

    def start(self) -> None:
        jar, program = unpacked("apicurio")
        settings = {"quarkus.http.host": "127.0.0.1", "quarkus.http.port": str(self.port)}
        command = [str(java_executable()), "-Xmx256m", "-XX:TieredStopAtLevel=1",
                   *(f"-D{name}={value}" for name, value in settings.items()),
                   "-jar", str(program / f"{jar.name}-{jar.version}-runner.jar")]  # fmt: skip
        self._serve("Apicurio", command, self._folder / "apicurio.log", self._answers)

    def hold(self, held: bool) -> None:
        """Let it stand still, or go on."""
        os.kill(self.process.pid, signal.SIGSTOP if held else signal.SIGCONT)

    def register(self, subject: str, schema: str, **more: Any) -> int:
        """The id that the schema gets. `more`: `schemaType`, `references`."""
        answer = urllib3.request(
            "POST", f"{self.url}/subjects/{subject}/versions", json={"schema": schema, **more}, retries=False,
            timeout=LONG,
        )  # fmt: skip
        assert answer.status == 200, answer.data
        return int(answer.json()["id"])

    def _answers(self) -> bool:
        try:
            return urllib3.request("GET", f"{self.url}/subjects", retries=False, timeout=5).status == 200
        except urllib3.exceptions.HTTPError:
            return False
