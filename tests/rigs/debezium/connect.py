"""Kafka Connect, standalone, with Debezium's connector for PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3
from kafka.admin import NewTopic

from tests.rigs.debezium.postgres import DATABASE, USER, Postgres
from tests.rigs.stack.broker import KafkaBroker
from tests.rigs.stack.built import unpacked
from tests.rigs.stack.errors import StackError
from tests.rigs.stack.jars import CONF, jar_paths
from tests.rigs.stack.java import java_command
from tests.rigs.stack.processes import LONG, Service, free_ports, wait_until


@dataclass(frozen=True)
class Connector:
    """A connector: the tables that it captures, and settings of its own. Its topics begin with its name."""

    name: str
    tables: Sequence[str]
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def pulse(self) -> str:
        """Return the name of a table that `Connect` makes and changes."""
        return f"pulse_of_{self.name}"

    def topic(self, table: str) -> str:
        return f"{self.name}.public.{table}"

    def properties(self, database: Postgres) -> dict[str, str]:
        return {
            "name": self.name,
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "tasks.max": "1",
            "plugin.name": "pgoutput",
            "database.hostname": "127.0.0.1",
            "database.port": str(database.port),
            "database.user": USER,
            "database.password": "any",
            "database.dbname": DATABASE,
            "topic.prefix": self.name,
            "slot.name": self.name,
            "publication.name": self.name,
            "publication.autocreate.mode": "filtered",
            "table.include.list": ",".join(f"public.{table}" for table in (*self.tables, self.pulse)),
            "snapshot.mode": "initial",
            "poll.interval.ms": "50",
            **self.settings,
        }


class Connect(Service):
    """A worker that keeps its offsets in a file. After `kill`, it repeats records whose offsets it had not stored.

    Args:
        folder: for its configuration, its offsets and its log.
    """

    grace = 30.0

    def __init__(self, folder: Path, broker: KafkaBroker, database: Postgres, connectors: Sequence[Connector]) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self._folder, self._broker, self._database, self._connectors = folder, broker, database, connectors

    def start(self) -> None:
        """Start it, and wait until each connector runs its task.

        Raises:
            StackError: the worker ended, or a connector failed.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        for connector in self._connectors:
            self._make_pulse(connector)
        worker = {
            "bootstrap.servers": self._broker.bootstrap_servers,
            "listeners": self.url,
            "plugin.path": str(unpacked("debezium")[1]),
            "offset.storage.file.filename": str(self._folder / "offsets"),
            "offset.flush.interval.ms": "1000",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "topic.creation.enable": "false",
        }
        files = [_write(self._folder / "worker.properties", worker)]
        for connector in self._connectors:
            file = self._folder / f"{connector.name}.properties"
            files.append(_write(file, connector.properties(self._database)))
        path = [CONF, *jar_paths("kafka", "connect")]
        command = java_command(
            "org.apache.kafka.connect.cli.ConnectStandalone", path, [str(file) for file in files], ("-Xmx512m",)
        )
        log_file = self._folder / "connect.log"
        self._serve("Kafka Connect", command, log_file, lambda: all(map(self._runs, self._connectors)))

    def wait_until_delivered(self) -> None:
        """Wait until Kafka has every change that is committed now, as the database knows from its replication slots.

        Debezium confirms a position in the write-ahead log after Kafka has acknowledged all records before it. A later
        change is needed to pass a position, so each connector has a table of its own that is changed here.

        Raises:
            StackError: a connector failed.
        """
        end = self._database.execute("SELECT pg_current_wal_lsn()").strip()
        touch = "".join(f"UPDATE {connector.pulse} SET beats = beats + 1;" for connector in self._connectors)
        behind = f"SELECT count(*) FROM pg_replication_slots WHERE coalesce(confirmed_flush_lsn, '0/0') < '{end}'"

        def passed() -> bool:
            for connector in self._connectors:
                self._runs(connector)
            return self._database.execute(touch + behind).strip() == "0"

        wait_until(passed, f"Debezium to pass {end}", pause=0.5)

    def _make_pulse(self, connector: Connector) -> None:
        table = f"CREATE TABLE IF NOT EXISTS {connector.pulse} (id int PRIMARY KEY, beats int)"
        self._database.execute(f"{table}; INSERT INTO {connector.pulse} VALUES (1, 0) ON CONFLICT DO NOTHING;")
        others = f"__debezium-heartbeat.{connector.name}", f"{connector.name}.transaction"
        with self._broker.admin() as admin:
            missing = {connector.topic(connector.pulse), *others} - set(admin.list_topics())
            if missing:
                admin.create_topics([NewTopic(topic, 1, 1) for topic in sorted(missing)])

    def _runs(self, connector: Connector) -> bool:
        try:
            response = urllib3.request(
                "GET", f"{self.url}/connectors/{connector.name}/status", retries=False, timeout=LONG
            )
        except urllib3.exceptions.HTTPError:
            return False
        if response.status != 200:
            return False
        status: dict[str, Any] = response.json()
        states = [status["connector"], *status["tasks"]]
        if failed := [state for state in states if state["state"] == "FAILED"]:
            raise StackError(f"{connector.name} failed: {failed[0].get('trace', '')[:2000]}")
        return len(states) > 1 and all(state["state"] == "RUNNING" for state in states)


def _write(file: Path, properties: Mapping[str, str]) -> Path:
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return file
