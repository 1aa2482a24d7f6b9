"""A PostgreSQL server with logical replication, in a folder of its own, run by a user without rights."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from tests.rigs.stack.errors import StackError
from tests.rigs.stack.processes import Service, free_ports

DATABASE, USER = "shop", "rig"
UNPRIVILEGED = ("postgres", "nobody")
"""Users that may run the server if this process is root, whom PostgreSQL refuses; the first one that exists does."""
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",  # the path of a socket has at most 107 bytes
    "wal_level": "logical",
    "fsync": "off",
    "timezone": "UTC",
}
_DEBIAN = Path("/usr/lib/postgresql")
"""Debian keeps the server's programs here by version, and not on PATH."""


def why_no_postgres() -> str | None:
    """Return the reason why the server cannot run here, or None."""
    if _program("initdb") and _program("postgres") and shutil.which("psql"):
        return None
    return "there is no PostgreSQL server (initdb, postgres, psql): install it (Debian: postgresql)"


def _program(name: str) -> str | None:
    folders = sorted(_DEBIAN.glob("*/bin"), key=lambda folder: int(folder.parent.name))
    return shutil.which(name, path=os.pathsep.join(map(str, reversed(folders)))) or shutil.which(name)


class Postgres(Service):
    """A server with the database `shop`. Its data is deleted when it stops.

    Args:
        folder: for its log.
    """

    grace = 30.0

    def __init__(self, folder: Path) -> None:
        (self.port,) = free_ports(1)
        self._log_file = folder / "postgres.log"
        # A folder of TMPDIR may be closed to the user that root starts the server as.
        self._data = Path(tempfile.mkdtemp(prefix="postgres-", dir="/tmp" if os.geteuid() == 0 else None))

    def start(self) -> None:
        """Make the database, and start the server.

        Raises:
            StackError: PostgreSQL is missing, or it did not start.
        """
        if missing := why_no_postgres():
            raise StackError(missing)
        run_as: list[str] = []
        if os.geteuid() == 0:
            user = _unprivileged()
            os.chown(self._data, user.pw_uid, user.pw_gid)
            ids = (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
            # The kernel forgets whose child the process is to die with when the user changes.
            run_as = ["setpriv", *ids, "--pdeathsig", "KILL"]
        initdb = [*run_as, str(_program("initdb")), "-D", str(self._data), "-U", USER, "-A", "trust", "-E", "UTF8",
                  "--locale=C.UTF-8", "--no-sync"]  # fmt: skip
        done = subprocess.run(initdb, cwd="/", capture_output=True, text=True, check=False)
        if done.returncode:
            raise StackError(f"initdb failed: {(done.stdout + done.stderr)[-2000:]}")
        settings = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
        command = [*run_as, str(_program("postgres")), "-D", str(self._data), "-p", str(self.port), *settings]
        self._serve("PostgreSQL", command, self._log_file, self._answers)
        self.execute(f"CREATE DATABASE {DATABASE}", database="postgres")

    def stop(self) -> None:
        """Stop it without waiting for its clients, and delete its data."""
        if self._process is not None and self._process.running:
            os.kill(self._process.pid, signal.SIGINT)  # a fast shutdown
            super().stop()
        shutil.rmtree(self._data, ignore_errors=True)

    def execute(self, statements: str, database: str = DATABASE) -> str:
        """Execute the statements, and return what they print, without headers, as text with a line for each row.

        Raises:
            StackError: a statement failed.
        """
        done = subprocess.run(
            self._psql(database), input=statements, capture_output=True, text=True, check=False, env=_environment()
        )
        if done.returncode:
            raise StackError(f"psql failed: {done.stderr[-2000:]}")
        return done.stdout

    def session(self) -> Session:
        """A new session, to be closed by the caller."""
        return Session(self._psql(DATABASE), self._log_file)

    def _psql(self, database: str) -> list[str]:
        place = ("-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-d", database)
        return ["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", *place, "-f", "-"]

    def _answers(self) -> bool:
        try:
            return self.execute("SELECT 1", database="postgres").strip() == "1"
        except StackError:
            return False


class Session:
    """One connection that executes many statements, by a `psql` that stays."""

    def __init__(self, command: list[str], log_file: Path) -> None:
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=_environment()
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._statements, self._printed = self._process.stdin, self._process.stdout
        self._log_file = log_file

    def execute(self, statements: str) -> None:
        """Execute the statements, which print nothing.

        Raises:
            StackError: a statement failed. The session has ended.
        """
        try:
            self._statements.write(f"{statements}\n\\echo done\n")
            self._statements.flush()
        except BrokenPipeError:
            pass  # the next line says so
        if self._printed.readline() != "done\n":
            raise StackError(f"psql failed, see {self._log_file}, at: {statements[:2000]}")

    def close(self) -> None:
        self._statements.close()
        self._process.wait()
        self._printed.close()


def _environment() -> dict[str, str]:
    return {**os.environ, "PGCLIENTENCODING": "UTF8", "PGTZ": "UTC"}


def _unprivileged() -> pwd.struct_passwd:
    for name in UNPRIVILEGED:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            pass
    raise StackError(f"PostgreSQL does not run as root, and there is no user {' or '.join(UNPRIVILEGED)}")
