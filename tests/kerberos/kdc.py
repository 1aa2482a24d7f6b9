"""MIT's Kerberos KDC as a process of the test: its realm, its key tables and its tickets are in one folder."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tests.rigs.stack.errors import StackError
from tests.rigs.stack.processes import Service, free_ports, listens

REALM = "EXAMPLE.TEST"
_SBIN = ("/usr/sbin", "/usr/local/sbin")

_CLIENT = """
[libdefaults]
default_realm = {realm}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
default_ccache_name = FILE:{folder}/tickets
default_client_keytab_name = FILE:{folder}/client.keytab

[realms]
{realm} = {{
    kdc = 127.0.0.1:{port}
}}
"""
_SERVER = """
[kdcdefaults]
kdc_listen = 127.0.0.1:{port}
kdc_tcp_listen = 127.0.0.1:{port}

[realms]
{realm} = {{
    database_name = {folder}/principals
    key_stash_file = {folder}/stash
    acl_file = {folder}/acl
    supported_enctypes = aes256-cts-hmac-sha1-96:normal
    max_life = 10h
    max_renewable_life = 7d
}}

[logging]
kdc = FILE:{folder}/kdc.log
"""


def why_no_kerberos() -> str | None:
    """Return a reason for a skip if this machine lacks the KDC, its tools or the package `gssapi`; else None."""
    missing = [name for name in ("krb5kdc", "kdb5_util", "kadmin.local", "kinit") if not _program(name)]
    if missing:
        return f"there is no {missing[0]} (Debian: krb5-kdc, krb5-admin-server, krb5-user): `make kerberos`"
    return None if find_spec("gssapi") else "the Python package gssapi is not installed: `make kerberos`"


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *_SBIN]))


class Kdc(Service):
    """A KDC of the realm `EXAMPLE.TEST`, and the environment of programs that use it.

    Args:
        folder: for its database, log, key tables and tickets.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Spark takes the path of a key table for a URI, so that it may have no blank.
        self.tables = Path(tempfile.mkdtemp(prefix="kdc-", dir="/tmp")) if " " in str(folder) else folder
        (self.port,) = free_ports(1)
        self.config = folder / "krb5.conf"

    @property
    def environment(self) -> dict[str, str]:
        """Variables of programs that log in by this KDC."""
        return {"KRB5_CONFIG": str(self.config)}

    def start(self) -> None:
        """Make the realm's database the first time, and start the KDC."""
        if not self.config.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            self._configure()
            self._run("kdb5_util", "create", "-s", "-W", "-P", "master-password")
        variables = [f"{name}={value}" for name, value in self._environment().items()]
        command = ["env", *variables, str(_program("krb5kdc")), "-n"]
        self._serve("KDC", command, self.folder / "kdc.out", lambda: listens(self.port))

    def _configure(self) -> None:
        values = {"realm": REALM, "folder": self.folder, "port": self.port}
        self.config.write_text(_CLIENT.format(**values))
        (self.folder / "kdc.conf").write_text(_SERVER.format(**values))
        (self.folder / "acl").write_text("")

    def copied(self, folder: Path) -> Kdc:
        """Return a KDC with the same principals at another port. It is not started."""
        other = Kdc(folder)
        folder.mkdir(parents=True)
        for file in (*self.folder.glob("principals*"), self.folder / "stash"):
            shutil.copy(file, folder)
        other._configure()
        return other

    def table(self, principal: str) -> Path:
        """Return the path of the key table that `add` writes."""
        return self.tables / f"{principal.replace('/', '-')}.keytab"

    def add(self, principal: str, life: str = "10h", password: str | None = None) -> Path:
        """Add a principal whose tickets live for `life`, and return its key table.

        `principal` is without its realm. With `password`, the principal has no key table, and the path is not there.
        """
        table = self.table(principal)
        key = f"-pw {password}" if password else "-randkey"
        self._admin(f'addprinc {key} -maxlife "{life}" {principal}')
        if password is None:
            self._admin(f"ktadd -k {table} -norandkey {principal}")
        return table

    def remove(self, principal: str) -> None:
        self._admin(f"delprinc -force {principal}")

    def change_key(self, principal: str) -> None:
        """Give a principal another key, which its key table does not have."""
        self._admin(f"cpw -randkey {principal}")

    def kinit(self, principal: str, table: Path, cache: Path, *options: str) -> None:
        """Put a ticket of `principal` into the ticket cache `cache`."""
        self._run("kinit", *options, "-c", str(cache), "-k", "-t", str(table), principal)

    def issued(self, client: str, service: str) -> int:
        """Return how many tickets for `service` the KDC has issued to `client`, both without their realm."""
        log = (self.folder / "kdc.log").read_text(errors="replace")
        wanted = f"{client}@{REALM} for {service}@{REALM}"
        return sum(": ISSUE:" in line and wanted in line for line in log.splitlines())

    def _admin(self, query: str) -> None:
        with (self.folder / "admin.lock").open("w") as lock:  # processes of a test run share the database
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = self._run("kadmin.local", "-q", query)
        if " while " in done:
            raise StackError(f"kadmin.local -q {query!r}: {done}")

    def _run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [str(_program(program)), *arguments], env={**os.environ, **self._environment()}, check=False,
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            raise StackError(f"{program} ended with status {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def _environment(self) -> Mapping[str, str]:
        return {"KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf")}


@contextmanager
def running(folder: Path) -> Iterator[Kdc]:
    """Start a KDC."""
    with Kdc(folder) as kdc:
        try:
            yield kdc
        finally:
            if kdc.tables != folder:
                shutil.rmtree(kdc.tables)
