"""Sockets on which a process and its children listen, as the kernel knows them (Linux: `proc(5)`)."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from tests.rigs.soak.held import family

_LISTENS, _BOUND = "0A", "07"
"""States of TCP sockets that listen, and of UDP sockets that are connected to nobody."""
_ACCEPTS = 1 << 16
"""Flag of a Unix socket that listens (`__SO_ACCEPTCON`)."""


@dataclass(frozen=True, slots=True, order=True)
class Listening:
    """Socket on which a process listens. `place` is an address and a port, or the path of a Unix socket."""

    pid: int
    protocol: str
    place: str

    @property
    def host(self) -> str:
        return self.place.rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.place.rpartition(":")[2])


def listening(pid: int) -> set[Listening]:
    """Return the sockets on which the process and all processes below it listen."""
    known, processes = _sockets(), (pid, *family(pid))
    return {Listening(each, *known[inode]) for each in processes for inode in inodes(each) if inode in known}


def inodes(pid: int) -> Iterator[str]:
    """Yield the inode of each socket that the process has open."""
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                kind, _, inode = os.readlink(descriptor).partition(":")
                if kind == "socket":
                    yield inode.strip("[]")


def _sockets() -> dict[str, tuple[str, str]]:
    """Return protocol and place of each socket that listens, by inode."""
    found: dict[str, tuple[str, str]] = {}
    for protocol, state in (("tcp", _LISTENS), ("udp", _BOUND)):
        for version in ("", "6"):
            for line in Path(f"/proc/net/{protocol}{version}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == state:
                    found[fields[9]] = protocol, _place(fields[1])
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split(maxsplit=7)  # a path may have blanks
        if int(fields[3], 16) & _ACCEPTS:
            found[fields[6]] = "unix", fields[7] if len(fields) > 7 else ""
    return found


def _place(text: str) -> str:
    """Convert the kernel's text, whose address is in words of the machine's byte order."""
    address, _, port = text.partition(":")
    raw = struct.pack(f"={len(address) // 8}I", *(int(address[at : at + 8], 16) for at in range(0, len(address), 8)))
    host = IPv4Address(raw) if len(raw) == 4 else IPv6Address(raw)
    return f"{host.ipv4_mapped or host if isinstance(host, IPv6Address) else host}:{int(port, 16)}"
