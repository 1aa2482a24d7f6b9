"""Sockets of a process are found."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from tests.rigs.sockets import Listening, listening


def test_the_sockets_of_a_process_are_found(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        socket.socket(socket.AF_UNIX) as local,
    ):
        datagrams.bind(("127.0.0.1", 0))
        local.bind(path)
        local.listen()
        places = {("tcp", server.getsockname()[1]), ("udp", datagrams.getsockname()[1])}
        wanted = {Listening(os.getpid(), kind, f"127.0.0.1:{port}") for kind, port in places}
        assert wanted | {Listening(os.getpid(), "unix", path)} <= listening(os.getpid())
