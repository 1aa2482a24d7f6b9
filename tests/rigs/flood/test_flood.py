"""Parts of the rig: what it sends, and which ports it finds."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

from tests.rigs.flood.__main__ import flood
from tests.rigs.flood.sender import LINE, forged
from tests.rigs.sockets import Listening, listening
from tiered_stream.observe.metrics_receiver import MetricsReceiver, parse_datagram


def test_no_forged_report_counts_and_some_would_forge_a_line() -> None:
    assert [parse_datagram(each, bytes(16)) for each in forged()] == [None] * len(forged())
    assert any(json.dumps(LINE)[1:-1].encode() in each for each in forged())


def test_a_receiver_counts_none_of_a_flood() -> None:
    with MetricsReceiver() as receiver:
        port = int(receiver.address.rpartition(":")[2])
        with flood(1_000, [port]) as sent:
            pass
        assert sent["sent"] >= 15 and receiver.total().records == 0


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
        found = listening(os.getpid())
        assert Listening(os.getpid(), "tcp", f"127.0.0.1:{server.getsockname()[1]}") in found
        assert Listening(os.getpid(), "udp", f"127.0.0.1:{datagrams.getsockname()[1]}") in found
        assert Listening(os.getpid(), "unix", path) in found
